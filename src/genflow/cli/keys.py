"""`genflow keys`: who may ask. It works on the database itself, so that a first key can be made before there is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genflow.cli.exits import Exit
from genflow.cli.jobs import AsJson, print_rows
from genflow.cli.options import SHARED, with_settings
from genflow.settings import Settings

if TYPE_CHECKING:
    from genflow.accounts import Accounts, KeyRecord

keys = typer.Typer(no_args_is_help=True, help="Make, list, end and replace the keys that clients send.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]

_COLUMNS = ("name", "tenant", "role", "prefix", "created_at", "last_used_at", "ends_at")
PATIENCE_S = 10.0
"""Seconds that the database may be away."""
_OVERLAP_S = 24 * 3600.0
_LONGEST = 100


def _plain(name: str) -> str:
    if not 1 <= len(name) <= _LONGEST or not name.isprintable():
        raise typer.BadParameter(f"a name has 1 to {_LONGEST} printable characters")
    return name


@keys.command()
@with_settings(SHARED)
def create(
    settings: Settings,
    name: Name,
    *,
    role: Annotated[
        str,
        typer.Option("--role", metavar="submit|operator", help="operator of the house: also servers and workers."),
    ] = "submit",
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Whose jobs and files its are; a new name is a new tenant.")
    ] = "house",
    as_json: AsJson = False,
) -> None:
    """Make a key and show it, this once: what is kept does not tell it."""
    if role not in ("submit", "operator"):
        raise typer.BadParameter(f"--role is submit or operator, not {role!r}")

    async def made(accounts: Accounts) -> Any:
        from genflow.accounts import Role

        return _told(await accounts.create(_plain(name), role=Role(role), tenant=_plain(tenant)))

    _go(settings, made, as_json, _show_key)


@keys.command("list")
@with_settings(SHARED)
def list_keys(settings: Settings, *, as_json: AsJson = False) -> None:
    """List the keys that work."""

    async def listed(accounts: Accounts) -> Any:
        return {"keys": [_shown(record) for record in await accounts.listed()]}

    _go(settings, listed, as_json, lambda found: print_rows(_COLUMNS, found["keys"], narrow=("name", "tenant", "role")))


@keys.command()
@with_settings(SHARED)
def revoke(settings: Settings, name: Name, *, as_json: AsJson = False) -> None:
    """End a key. Running processes believe in it for three seconds more at most."""

    async def revoked(accounts: Accounts) -> Any:
        await accounts.revoke(name)
        return {"revoked": name}

    _go(settings, revoked, as_json, lambda told: typer.echo(f"{told['revoked']} works no longer"))


@keys.command()
@with_settings(SHARED)
def rotate(
    settings: Settings,
    name: Name,
    *,
    keep_s: Annotated[
        float, typer.Option("--keep-s", min=0.0, help="Seconds that the old key works beside the new one.")
    ] = _OVERLAP_S,
    as_json: AsJson = False,
) -> None:
    """Make a new key in place of one, which works for a while more, and show it, this once."""

    async def rotated(accounts: Accounts) -> Any:
        return _told(await accounts.rotate(name, keep_s=keep_s))

    _go(settings, rotated, as_json, _show_key)


def _go(
    settings: Settings, work: Callable[[Accounts], Awaitable[Any]], as_json: bool, show: Callable[[Any], None]
) -> None:
    from genflow.cli.talk import print_json, run_client

    async def done() -> Exit:
        told = await _done(settings, work)
        if as_json:
            print_json(told)
        else:
            show(told)
        return Exit.OK

    run_client(done(), as_json=as_json)


async def _done(settings: Settings, work: Callable[[Accounts], Awaitable[Any]]) -> Any:
    from genflow import app
    from genflow.accounts import Accounts
    from genflow.cli.client import Refused
    from genflow.errors import GenflowError
    from genflow.postgres.pool import open_pool
    from genflow.queue import DirectWriter

    quiet = settings if "log_level" in settings.model_fields_set else settings.model_copy(update={"log_level": "error"})
    app.prepare(quiet)
    try:
        async with app.open_database(settings) as conninfo, await open_pool(conninfo, 1, 1) as pool:
            return await work(Accounts(DirectWriter(pool, patience_s=PATIENCE_S)))
    except GenflowError as error:
        raise Refused(error.status, error.code, error.message, error.details or {}) from None


def _told(made: tuple[str, KeyRecord]) -> dict[str, Any]:
    key, record = made
    return {"key": key, **_shown(record)}


def _shown(record: KeyRecord) -> dict[str, Any]:
    def instant(value: Any) -> str | None:
        return None if value is None else value.isoformat()

    return {
        "name": record.name,
        "tenant": record.tenant,
        "role": record.role.value,
        "prefix": record.prefix,
        "created_at": instant(record.created_at),
        "last_used_at": instant(record.last_used_at),
        "ends_at": instant(record.ends_at),
    }


def _show_key(told: dict[str, Any]) -> None:
    typer.echo(told["key"])
    typer.echo(f"the key {told['name']} ({told['role']} of {told['tenant']}); it is not shown again", err=True)
