"""`genflow dead`: list, show, requeue, purge the jobs that failed for good."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genflow.cli.exits import Exit, Misuse
from genflow.cli.jobs import AsJson, gather, print_fields, print_rows

if TYPE_CHECKING:
    from genflow.cli.client import Client

PATH = "/genflow/v1/dead-letters"

dead = typer.Typer(no_args_is_help=True, help="Jobs that failed for good: look at them, requeue them, purge them.")

Since = Annotated[str | None, typer.Option(help="Failed since: 30m, 1h, 2d ago, or an RFC 3339 time.")]
Until = Annotated[str | None, typer.Option(help="Failed until: 30m, 1h, 2d ago, or an RFC 3339 time.")]
Class = Annotated[str | None, typer.Option("--class", help="Of this class, such as oom or permanent.")]
Code = Annotated[str | None, typer.Option(help="With this error code, such as node_execution_error.")]
Node = Annotated[str | None, typer.Option(help="Failed in a node of this class, such as KSampler.")]
Server = Annotated[str | None, typer.Option(help="Last tried on this server.")]
Batch = Annotated[str | None, typer.Option(help="Of this batch.")]
Reason = Annotated[str | None, typer.Option(help="With this text in the reason.")]
Requeued = Annotated[
    bool, typer.Option("--requeued", help="Those that were requeued already, which else are left out.")
]
DeadIds = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, or their first eight digits.")]
All = Annotated[bool, typer.Option("--all", help="Every dead letter is meant.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@dead.command("list")
def list_dead(
    since: Since = None,
    until: Until = None,
    klass: Class = None,
    code: Code = None,
    node: Node = None,
    server: Server = None,
    batch: Batch = None,
    reason: Reason = None,
    requeued: Requeued = False,
    group: Annotated[str | None, typer.Option(help="Count them by class, code, reason, node or server.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most this many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the latest first."""
    from genflow.cli.talk import run_client

    wanted = _wanted(since, until, klass, code, node, server, batch, reason, requeued)
    run_client(_list(wanted, group, limit, as_json), as_json=as_json)


async def _list(wanted: dict[str, Any], group: str | None, limit: int, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    query = {name: "true" if value is True else value for name, value in wanted.items()}
    async with connect() as client:
        if group is not None:
            told = await client.get(PATH, query | {"group": group})
            if as_json:
                print_json(told)
            else:
                print_rows(("count", "key", "latest_at", "example"), told["groups"], narrow=("count", "key", "example"))
            return Exit.OK
        found, cursor = await gather(client, PATH, "dead_letters", query, limit)
    if as_json:
        print_json({"dead_letters": found, "next_cursor": cursor})
    else:
        columns = ("id", "failed_at", "class", "code", "node_class", "server", "attempts", "reason")
        print_rows(columns, found, narrow=("id", "failed_at", "reason"))
    return Exit.OK


@dead.command()
def show(
    dead_id: Annotated[str, typer.Argument(metavar="ID", help="An id, or its first eight digits.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a dead letter: why, where it was tried, for how long, and the graph that was posted."""
    from genflow.cli.talk import run_client

    run_client(_show(dead_id, as_json), as_json=as_json)


async def _show(dead_id: str, as_json: bool) -> Exit:
    from genflow.cli.client import connect
    from genflow.cli.talk import print_json

    async with connect() as client:
        letter = await client.get(f"{PATH}/{dead_id}")
    if as_json:
        print_json(letter)
        return Exit.OK
    aside = ("traceback", "workflow", "posted", "attempts", "submits", "reason")
    print_fields({name: value for name, value in letter.items() if name not in aside})
    for title, columns in (
        ("attempts", ("no", "server", "seconds", "gpu_seconds", "outcome", "code", "reason")),
        ("submits", ("no", "server", "state", "accepted_at", "ended_at", "executed", "gpu_ms")),
    ):
        if letter[title]:
            typer.echo(f"\n{title}")
            print_rows(columns, letter[title])
    if letter["traceback"]:
        typer.echo("\ntraceback (of the server)\n" + "".join(letter["traceback"]).rstrip())
    graph = letter["posted"]
    typer.echo("\nnothing was posted; the workflow" if graph is None else "\nthe graph as it was posted")
    typer.echo(letter["workflow"] if graph is None else json.dumps(graph, indent=1, ensure_ascii=False))
    if letter["requeued_as"] is None:
        typer.echo(f"\nrequeue it: genflow dead requeue {letter['id']}")
    return Exit.OK


@dead.command()
def requeue(
    dead_ids: DeadIds = None,
    since: Since = None,
    until: Until = None,
    klass: Class = None,
    code: Code = None,
    node: Node = None,
    server: Server = None,
    batch: Batch = None,
    reason: Reason = None,
    requeued: Requeued = False,
    every: All = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NODE.INPUT=VALUE", help="Change an input, such as 3.seed=7.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were requeued already.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make new jobs of dead letters: those named, or all that match. The dead letters stay, marked."""
    from genflow.cli.talk import run_client

    wanted = _wanted(since, until, klass, code, node, server, batch, reason, requeued)
    body = {"dry_run": dry_run, "again": again}
    run_client(change("requeue", dead_ids or [], wanted, every, body, as_json, sets or []), as_json=as_json)


@dead.command()
def purge(
    dead_ids: DeadIds = None,
    since: Since = None,
    until: Until = None,
    klass: Class = None,
    code: Code = None,
    node: Node = None,
    server: Server = None,
    batch: Batch = None,
    reason: Reason = None,
    requeued: Requeued = False,
    every: All = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters: those named, or all that match. Their ids stay known and run nothing."""
    from genflow.cli.talk import run_client

    wanted = _wanted(since, until, klass, code, node, server, batch, reason, requeued)
    run_client(change("purge", dead_ids or [], wanted, every, {"dry_run": dry_run}, as_json), as_json=as_json)


async def change(
    verb: str,
    ids: list[str],
    wanted: dict[str, Any],
    every: bool,
    body: dict[str, Any],
    as_json: bool,
    sets: Sequence[str] = (),
) -> Exit:
    """Requeue or purge: these, or all that are wanted; the exit status."""
    from genflow.cli.client import Refused, connect
    from genflow.cli.talk import note, print_json

    _check_meant(verb, ids, wanted, every)
    body = body | ({"set": _set_of(sets)} if sets else {})
    done: list[Any] = []
    refused: list[dict[str, Any]] = []
    async with connect() as client:
        answers = _named(client, verb, ids, body) if ids else _matching(client, verb, wanted | {"all": every} | body)
        try:
            async for answer in answers:
                done += answer.get(f"{verb}d", [])
                refused += answer.get("refused", [])
                if not as_json:
                    _tell(answer, dry_run=body["dry_run"])
        except Refused as fault:
            if not done:
                raise
            stopped = {"id": None} | fault.envelope()  # such as a queue that is full: what was done stays
            refused.append(stopped)
            if not as_json:
                _tell({"refused": [stopped]}, dry_run=body["dry_run"])
    if as_json:
        print_json({f"{verb}d": done, "refused": refused, "dry_run": body["dry_run"]})
    else:
        note(
            f"{len(done)} {'would be ' if body['dry_run'] else ''}{verb}d"
            + (f", {len(refused)} not" if refused else "")
        )
    return Exit.NEGATIVE if refused else Exit.OK


def _tell(answer: dict[str, Any], *, dry_run: bool) -> None:
    from genflow.cli.talk import complain

    for each in answer.get("requeued", []):
        typer.echo(f"{each['requeued_from']}  {each['id'] or 'would be requeued'}")
    for each in answer.get("purged", []):
        typer.echo(f"{each}  {'would be purged' if dry_run else 'purged'}")
    for each in answer.get("refused", []):
        complain(f"{each['id'] or 'stopped'}: {each['error']['message']} [{each['error']['code']}]")


def _check_meant(verb: str, ids: list[str], wanted: dict[str, Any], every: bool) -> None:
    narrowed = any(name != "requeued" for name in wanted)
    if ids and (wanted or every):
        raise Misuse("name dead letters or say which match, not both")
    if every and narrowed:
        raise Misuse("--all means every dead letter: leave the other filters out, or --all")
    if not ids and not narrowed and not every:
        raise Misuse(f"name dead letters, say which match (--class, --code, --since …), or {verb} them --all")


async def _named(client: Client, verb: str, ids: list[str], body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Each of these by itself; what is refused of one leaves the others."""
    from genflow.cli.client import Refused

    for each in ids:
        try:
            if verb == "requeue":
                yield {"requeued": [await client.post(f"{PATH}/{each}/requeue", json=body)]}
            elif body["dry_run"]:
                yield {"purged": [(await client.get(f"{PATH}/{each}"))["id"]]}
            else:
                yield await client.delete(f"{PATH}/{each}")
        except Refused as fault:
            if len(ids) == 1:
                raise
            yield {"refused": [{"id": each} | fault.envelope()]}


async def _matching(client: Client, verb: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """All that match, a hundred at a time."""
    cursor: str | None = None
    while True:
        answer = await client.post(f"{PATH}/{verb}", json=body | ({} if cursor is None else {"cursor": cursor}))
        yield answer
        cursor = answer["next_cursor"]
        if cursor is None:
            return


def _wanted(
    since: str | None,
    until: str | None,
    klass: str | None,
    code: str | None,
    node: str | None,
    server: str | None,
    batch: str | None,
    reason: str | None,
    requeued: bool,
) -> dict[str, Any]:
    """The filters that were given, under the API's names."""
    given = {
        "since": since,
        "until": until,
        "class": klass,
        "code": code,
        "node": node,
        "server": server,
        "batch": batch,
        "reason": reason,
    }
    return {name: value for name, value in given.items() if value is not None} | (
        {"requeued": True} if requeued else {}
    )


def _set_of(sets: Sequence[str]) -> dict[str, Any]:
    """What `--set` says: a value is JSON where it can be read so, else a text. Misuse for one without `=`."""
    from genflow.workflow import read_json

    values: dict[str, Any] = {}
    for given in sets:
        name, equals, text = given.partition("=")
        if not equals or "." not in name:
            raise Misuse(f"--set takes NODE.INPUT=VALUE, such as 3.seed=7, not {shlex.quote(given)}")
        if name in values:
            raise Misuse(f"--set {name} is given twice")
        try:
            values[name] = read_json(text)
        except ValueError:
            values[name] = text
    return values
