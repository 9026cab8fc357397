"""Flags made from the settings: `queue_limit` is `--queue-limit`, its meaning and bounds are those of settings.py."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from genflow.settings import Settings

STORE = ("store", "store_endpoint", "store_region", "store_path_style")
SHARED = (
    "database_url", "data", *STORE, "log_level", "log_json", "failpoints", "lease", "retention_s", "blob_grace_s",
)  # fmt: skip
API = (
    "host", "port", "insecure", "auth", "public_url", "cors_origins", "max_batch_bytes", "max_asset_bytes", "url_ttl_s",
    "redirect", "redirect_s", "max_streams", "stream_heartbeat_s", "idempotency",
)  # fmt: skip
# What a job is accepted under, whatever way it comes.
JOBS = (
    "queue_limit", "max_workflow_bytes", "attempts", "base_delay_ms", "max_delay_ms", "jitter", "timeout_s",
    "silence_s", "oom", "max_takeovers", "max_resubmits", "scrub", "validation",
)  # fmt: skip
# What becomes of a template's parameters.
MAKING = (
    "templates", "fetch_allow", "max_fetch_bytes", "max_photo_bytes", "max_photo_pixels", "min_photo_side",
)  # fmt: skip
RABBIT = ("rabbitmq", "rabbitmq_queue", "ack", "prefetch")
WORKER = (
    "gpu", "instance", "slots", "max_in_flight", "health_host", "health_port", "probe_s", "no_server_s", "max_queue",
    "quarantine_s", "stuck_s", "poll_ms", "claim_poll_s", "grace_s", "on_grace", "heartbeat", "margin", "post_timeout",
    "settle", "stop_grace_s", "previews", "collect_window_s", "server_lost_after_s",
)  # fmt: skip

ALIASES = {"slots": ["--depth"], "rabbitmq_queue": ["--queue"]}


def with_settings(fields: Iterable[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each of these settings; it gets them together as its first argument.

    A flag wins over the environment, the environment over the file. A value that doesn't fit ends with exit status 2
    and names its flag.
    """
    names = tuple(fields)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            chosen = {name: value for name in names if (value := given.pop(name, None)) not in (None, [])}
            command(read_settings(**chosen), **given)

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
        flags = [_flag(name, Settings.model_fields[name]) for name in names]
        run.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *flags)}
        return run

    return decorate


def read_settings(**flags: Any) -> Settings:
    """The settings under these flags. A usage error that names each value that doesn't fit."""
    try:
        return Settings(**flags)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'settings'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise typer.BadParameter(problems) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    dashed = name.replace("_", "-")
    kind = _plain(field.annotation)
    help_text = f"{field.description} \\[env: GENFLOW_{name.upper()}]"
    default = field.get_default()
    shown: dict[str, Any] = (
        {"show_default": str(default)} if isinstance(default, str | int | float | Path) else {"show_default": False}
    )
    if name == "gpu":
        annotation: Any = Annotated[
            list[str] | None,
            typer.Option("--gpu", metavar="NAME=URL", help=help_text.replace("separated by commas", "by --gpu each")),
        ]
    elif kind is bool:
        annotation = Annotated[bool | None, typer.Option(f"--{dashed}/--no-{dashed}", help=help_text, **shown)]
    else:
        annotation = Annotated[
            kind | None,
            typer.Option(f"--{dashed}", *ALIASES.get(name, []), help=help_text, **shown),
        ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _plain(annotation: Any) -> Any:
    """The type without `None`."""
    if get_origin(annotation) in (UnionType, Union):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0]
    return annotation
