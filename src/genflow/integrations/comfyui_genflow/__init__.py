"""genflow's guard: a ComfyUI extension that keeps a late POST of genflow out of the queue.

Copy this folder into ComfyUI's `custom_nodes` and restart ComfyUI. It adds no nodes, needs no other package and imports
nothing of genflow.

A POST of genflow says in `extra_data.genflow` which submit it is (`submit`, a UUID of its own) and with which right
(`token`, which grows with each holder of the job). Refused, before they are queued, are a submit that was seen or
barred before, and a token below the highest one seen for its prompt id: the late POST of a worker that was frozen past
its lease, and bytes that the network held back. A retry has a new submit. A prompt without that mark passes untouched.

The two rules alone leave a gap: the late POST may come after the next holder asked and before that holder's own POST.
So before genflow takes a submit as never queued it bars it here (`POST /genflow/guard`), and asks once more.

How it refuses: by an aiohttp middleware. A handler of `add_on_prompt_handler` can't, for ComfyUI swallows what it
raises and queues the prompt all the same. Extensions are loaded after the server's application was made and before its
runner freezes it (`start_comfyui` in ComfyUI's main.py), so the list of middlewares is still open. Ours is the
innermost: foreign pages are turned away before it.

Check and queueing are one: both happen under a lock of the prompt id, for ComfyUI gives way to other requests while it
validates a graph. So a twin of a POST is answered when the first one is, and the answer is true by then.

What it knows outlives a restart of ComfyUI: a barred POST may arrive after it. It is one line a POST (about 90 bytes)
in the user directory, for the temp directory is wiped at start. A bar is synced to the disk, a POST's line only
written: it survives the end of the process, not of the machine. Where it can't be written the guard goes on in memory,
and says so at `GET /genflow/guard`. The newest `KEPT` submits and prompt ids are kept, oldest dropped first: at five
seconds a run those of almost three days. What comes later than that is where it would be without a guard: detected by
genflow, and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

VERSION = 1
"""Of what the guard understands and answers."""
KEPT = 50_000
"""How many submits, and how many prompt ids, are remembered."""
PATHS = frozenset({"/prompt", "/api/prompt"})
STATUS = 409
ERROR_TYPE = "genflow_guard"

NODE_CLASS_MAPPINGS: dict[str, Any] = {}
"""ComfyUI asks every extension for its nodes: there are none."""

log = logging.getLogger(__name__)


class Guard:
    """The rules, and what they rest on. Pure but for the file in which it is kept."""

    def __init__(self, file: Path | None = None, *, kept: int = KEPT) -> None:
        self._kept = kept
        self._submits: dict[str, None] = {}
        self._tokens: dict[str, int] = {}
        self._file = file
        self._lines = 0
        self.durable = file is not None
        """Whether what is known outlives this process."""
        if file is not None:
            self._load(file)

    def refuses(self, prompt_id: str, submit: str, token: int) -> str | None:
        """Why this POST must not be queued: "stale" (token) or "seen" (submit); None, and remembered, if it may."""
        if token < self._tokens.get(prompt_id, token):
            return "stale"
        if submit in self._submits:
            return "seen"
        self._remember(prompt_id, submit, token)
        self._write(prompt_id, submit, token, sync=False)
        return None

    def bar(self, prompt_id: str, submit: str, token: int) -> bool:
        """Let this submit in no more, nor any lower token of its prompt id; whether it was known already."""
        seen = submit in self._submits
        self._remember(prompt_id, submit, token)
        self._write(prompt_id, submit, self._tokens[prompt_id], sync=True)
        return seen

    @property
    def known(self) -> int:
        """How many submits are remembered."""
        return len(self._submits)

    def _remember(self, prompt_id: str, submit: str, token: int) -> None:
        # Taken out and put back, so that the order is that of the last mention.
        highest = max(token, self._tokens.pop(prompt_id, token))
        self._submits.pop(submit, None)
        self._tokens[prompt_id] = highest
        self._submits[submit] = None
        for known in (self._submits, self._tokens):
            if len(known) > self._kept:
                del known[next(iter(known))]

    def _load(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="ascii", errors="replace") if file.exists() else ""
            # What a crash left half written has no end of line, and is no line.
            for line in text.split("\n")[:-1]:
                fields = line.split(" ")
                if len(fields) == 3 and fields[2].isdigit():
                    self._remember(fields[0], fields[1], int(fields[2]))
                    self._lines += 1
            if text and not text.endswith("\n"):
                with file.open("a", encoding="ascii") as end:
                    end.write("\n")
        except OSError as error:
            self._give_up(error)

    def _write(self, prompt_id: str, submit: str, token: int, *, sync: bool) -> None:
        if self._file is None or not self.durable:
            return
        try:
            with self._file.open("a", encoding="ascii") as end:
                end.write(f"{prompt_id} {submit} {token}\n")
                end.flush()
                if sync:
                    os.fsync(end.fileno())
            self._lines += 1
            if self._lines > 2 * self._kept:
                self._shorten(self._file)
        except OSError as error:
            self._give_up(error)

    def _shorten(self, file: Path) -> None:
        lines = file.read_text(encoding="ascii").split("\n")[-self._kept - 1 :]
        new = file.with_suffix(".new")
        with new.open("w", encoding="ascii") as end:
            end.write("\n".join(lines))
            end.flush()
            os.fsync(end.fileno())
        new.replace(file)
        self._lines = len(lines) - 1

    def _give_up(self, error: OSError) -> None:
        self.durable = False
        log.warning("genflow guard: %s can't be used (%s): a restart of ComfyUI forgets", self._file, error)


class Turns:
    """One at a time for each prompt id; a lock lives as long as somebody waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, prompt_id: str) -> AsyncIterator[None]:
        """Wait for the turn of this prompt id."""
        lock, users = self._locks.get(prompt_id, (asyncio.Lock(), 0))
        self._locks[prompt_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(prompt_id)
            if users > 1:
                self._locks[prompt_id] = (lock, users - 1)


def _name(value: Any) -> bool:
    """Whether a value can be an id: short, one word, ASCII."""
    return (
        isinstance(value, str) and 0 < len(value) <= 64 and value.isascii() and value.isprintable() and " " not in value
    )


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def mark_of(body: bytes) -> tuple[str, str, int] | None:
    """Prompt id, submit and token of a POST of genflow; None for what is not one, which is none of our business."""
    if b'"genflow"' not in body:
        return None
    try:
        posted = json.loads(body)
        prompt_id, mark = posted["prompt_id"], posted["extra_data"]["genflow"]
        submit, token = mark["submit"], mark["token"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (prompt_id, submit, token) if _name(prompt_id) and _name(submit) and _whole(token) else None


def refusal(reason: str, submit: str) -> web.Response:
    """The answer to a POST that is not let in: its status and its type are nobody else's."""
    message = {
        "stale": "a later holder of this job was here: nothing was queued",
        "seen": "this submit was here before, or was barred: nothing was queued now",
    }[reason]
    error = {"type": ERROR_TYPE, "message": message, "details": "", "extra_info": {"reason": reason, "submit": submit}}
    return web.json_response({"error": error, "node_errors": {}}, status=STATUS)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Doorway:
    """The guard at an aiohttp application's door."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._turns = Turns()

    def middleware(self) -> Any:
        """To be appended to the application's middlewares."""

        @web.middleware
        async def genflow_guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method != "POST" or request.path not in PATHS:
                return await handler(request)
            mark = mark_of(await request.read())  # aiohttp keeps the body for the handler behind us
            if mark is None:
                return await handler(request)
            async with self._turns.of(mark[0]):
                reason = self.guard.refuses(*mark)
                if reason is None:
                    return await handler(request)
            log.warning("genflow guard: a late POST of prompt %s was refused: %s", mark[0], reason)
            return refusal(reason, mark[1])

        return genflow_guard

    async def about(self, request: web.Request) -> web.Response:
        """`GET /genflow/guard`: that there is one, and whether it remembers over a restart."""
        return web.json_response({"guard": VERSION, "durable": self.guard.durable, "known": self.guard.known})

    async def bar(self, request: web.Request) -> web.Response:
        """`POST /genflow/guard`: let a submit in no more. A POST of its prompt id that is under way ends first."""
        try:
            asked = json.loads(await request.read())
            prompt_id, submit, token = asked["prompt_id"], asked["submit"], asked["token"]
        except (ValueError, TypeError, KeyError, RecursionError):
            prompt_id = submit = token = None
        if not (_name(prompt_id) and _name(submit) and _whole(token)):
            return web.json_response({"error": "prompt_id, submit and token are wanted"}, status=400)
        async with self._turns.of(prompt_id):
            return web.json_response({"seen": self.guard.bar(prompt_id, submit, token)})


def _file_of_this_server() -> Path | None:
    """Where it is kept: one file for each port, for several servers may share a user directory."""
    try:
        folder = Path(sys.modules["folder_paths"].get_user_directory())
        folder.mkdir(parents=True, exist_ok=True)
        port = getattr(getattr(sys.modules.get("comfy.cli_args"), "args", None), "port", 0)
    except (KeyError, AttributeError, OSError) as error:
        log.warning("genflow guard: no user directory (%r): a restart of ComfyUI forgets", error)
        return None
    return folder / f"genflow_guard_{port}.log"


def _install() -> None:
    """Stand at the door of the ComfyUI that loads us; anywhere else nothing happens."""
    server = getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)
    if server is None:
        return
    door = Doorway(Guard(_file_of_this_server()))
    server.app.middlewares.append(door.middleware())
    # ComfyUI puts each of these under /api too.
    server.routes.get("/genflow/guard")(door.about)
    server.routes.post("/genflow/guard")(door.bar)
    log.info("genflow guard %s: %s submits known", VERSION, door.guard.known)


_install()
