"""The books: what a simulated server was really asked and really did. The proof of "one run".

They are kept outside of the server's memory, so that a simulated restart wipes everything but them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from genflow.simulator.journal import Journal

EVENTS = (
    "posted", "running", "ended", "interrupted", "held", "upload", "emptied", "deleted", "view", "freed", "socket",
    "change", "restarted",
)  # fmt: skip
"""What `GET /simulator/wait` can wait for."""

LOG_LIMIT = 100_000


@dataclass
class Submit:
    """What happened to one submit of a prompt id."""

    posts: int = 0
    executions: int = 0
    interruptions: int = 0
    files: list[str] = field(default_factory=list)


@dataclass
class Page:
    """The book of one prompt id."""

    posts: int = 0
    executions: int = 0
    interruptions: int = 0
    files: list[str] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    """Which of the files were emptied by an upload of no bytes."""
    deletions: int = 0
    """How often its entry was deleted from the history."""
    submits: dict[str, Submit] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)

    def shown(self) -> dict[str, Any]:
        """This page as JSON."""
        return {
            "posts": self.posts,
            "executions": self.executions,
            "interruptions": self.interruptions,
            "files": list(self.files),
            "emptied": list(self.emptied),
            "deletions": self.deletions,
            "submits": {uuid: asdict(submit) for uuid, submit in self.submits.items()},
        }


def mark_of(extra_data: Any) -> tuple[str | None, Any]:
    """The submit's UUID and its token, as genflow writes them into `extra_data.genflow`."""
    mark = extra_data.get("genflow") if isinstance(extra_data, dict) else None
    if isinstance(mark, dict) and isinstance(mark.get("submit"), str):
        return mark["submit"], mark.get("token")
    return None, None


def _path(subfolder: str, name: str) -> str:
    return f"{subfolder}/{name}" if subfolder else name


class Books:
    """Counts per prompt id and submit, and a log of executions with wall-clock milliseconds.

    What happens to prompts, and when, also goes to a journal.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal or Journal()
        self._pages: dict[str, Page] = {}
        self._totals: Counter[str] = Counter()
        self._owners: dict[tuple[str, str, str], str] = {}
        self._log: deque[list[Any]] = deque(maxlen=LOG_LIMIT)
        self._emptied: deque[dict[str, Any]] = deque(maxlen=LOG_LIMIT)
        self._waiters: set[asyncio.Future[None]] = set()

    def page(self, prompt_id: str) -> Page:
        """The page of a prompt id, empty if nothing was ever heard of it."""
        return self._pages.get(prompt_id) or Page()

    def _open(self, prompt_id: str) -> Page:
        return self._pages.setdefault(prompt_id, Page())

    def _counted(self, prompt_id: str, submit: str | None) -> list[Page | Submit]:
        """Where something counts: the prompt id's page, and the part of it that is this submit's."""
        page = self._open(prompt_id)
        return [page] if submit is None else [page, page.submits.setdefault(submit, Submit())]

    def note(self, event: str, prompt_id: str | None = None) -> None:
        """Count an event and wake those who wait."""
        self._totals[event] += 1
        if prompt_id is not None:
            self._open(prompt_id).events[event] += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def posted(self, prompt_id: str, submit: str | None, token: Any = None) -> None:
        """A prompt was queued, under the token that it showed."""
        for each in self._counted(prompt_id, submit):
            each.posts += 1
        self._journal.write("posted", prompt_id, submit, token=token)
        self.note("posted", prompt_id)

    def booted(self) -> None:
        """The server starts, with nothing in its memory."""
        self._journal.write("booted")

    def close(self) -> None:
        """The server is gone for good."""
        self._journal.close()

    def removed(self, prompt_id: str, submit: str | None) -> None:
        """A pending prompt was taken back."""
        self._journal.write("removed", prompt_id, submit)

    def started(self, prompt_id: str, submit: str | None) -> list[Any]:
        """An execution begins. Returns its line of the log, to be handed to `ended`."""
        for each in self._counted(prompt_id, submit):
            each.executions += 1
        line = [prompt_id, time.time() * 1000, None]
        self._log.append(line)
        self._journal.write("running", prompt_id, submit)
        self.note("running", prompt_id)
        return line

    def ended(self, line: list[Any], submit: str | None, outcome: str, *, interrupted: bool) -> None:
        """An execution ended: by `success`, `interrupted`, or the type of its error."""
        line[2] = time.time() * 1000
        self._journal.write("ended", line[0], submit, outcome=outcome)
        if interrupted:
            for each in self._counted(line[0], submit):
                each.interruptions += 1
            self.note("interrupted", line[0])
        self.note("ended", line[0])

    def killed(self, line: list[Any], submit: str | None) -> None:
        """An execution was cut off by the end of its server; it did not end by itself."""
        line[2] = time.time() * 1000
        self._journal.write("killed", line[0], submit)

    def wrote(self, prompt_id: str, submit: str | None, kind: str, subfolder: str, name: str, folder: Path) -> None:
        """A file was written, in the server's folder of its kind."""
        self._journal.wrote(prompt_id, submit, kind, _path(subfolder, name), folder / subfolder / name)
        for each in self._counted(prompt_id, submit):
            each.files.append(_path(subfolder, name))
        self._owners[(kind, subfolder, name)] = prompt_id

    def emptied(self, kind: str, subfolder: str, name: str, agent: str) -> None:
        """A file was emptied by an upload of no bytes; it counts for the prompt that wrote it."""
        owner = self._owners.get((kind, subfolder, name))
        if owner is not None:
            self._open(owner).emptied.append(_path(subfolder, name))
        told = {"filename": name, "subfolder": subfolder, "type": kind, "prompt": owner, "agent": agent}
        self._emptied.append(told)
        self._journal.write("emptied", owner, kind=kind, name=_path(subfolder, name))
        self.note("emptied", owner)

    def deleted(self, prompt_id: str) -> None:
        """An entry was deleted from the history."""
        self._open(prompt_id).deletions += 1
        self._journal.write("deleted", prompt_id)
        self.note("deleted", prompt_id)

    def viewed(self, kind: str, subfolder: str, name: str) -> None:
        """A file was asked for by /view; it counts for the prompt that wrote it."""
        self.note("view", self._owners.get((kind, subfolder, name)))

    def count(self, event: str, prompt_id: str | None) -> int:
        """How often an event happened, for one prompt or for the whole server."""
        return self._totals[event] if prompt_id is None else self.page(prompt_id).events[event]

    async def wait(self, event: str, prompt_id: str | None, count: int, timeout_s: float) -> int:
        """Wait until an event happened `count` times. Raises TimeoutError after `timeout_s` seconds."""
        async with asyncio.timeout(timeout_s):
            while (seen := self.count(event, prompt_id)) < count:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)
        return seen

    def shown(self) -> dict[str, Any]:
        """The books as `GET /simulator/books` gives them."""
        return {
            "prompts": {prompt_id: page.shown() for prompt_id, page in self._pages.items() if page.posts},
            "uploads": self._totals["upload"],
            "views": self._totals["view"],
            "freed": self._totals["freed"],
            "emptied": list(self._emptied),
        }

    def log(self) -> list[list[Any]]:
        """`[prompt id, start ms, end ms]` of every execution in order; an open one has no end yet."""
        return [list(line) for line in self._log]
