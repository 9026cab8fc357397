"""A file of a run that is gone: the names that its server has for the run by now are tried before another run."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from uuid import uuid4

import pytest

from genflow.comfy import OutputGone
from genflow.jobs import State
from genflow.outputs import Output
from genflow.protocol import Answer, HistoryEntry, Known
from genflow.worker import files
from genflow.worker.asking import Finding
from genflow.worker.collecting import Collecting
from genflow.worker.held import HeldJob
from genflow.worker.run import GivenAway
from genflow.worker.telling import Done, Told

SUBMIT = uuid4()
BEGAN = datetime(2026, 12, 1, tzinfo=UTC)


def outputs(name: str) -> dict[str, Any]:
    return {"3": {"images": [{"filename": name, "subfolder": "genflow/x/1", "type": "output"}]}}


def ended(name: str, outcome: Any = "success") -> Answer:
    return Answer(Known.ENDED, HistoryEntry(outcome, SUBMIT, outputs(name), None, 1, 2, {}))


class Again(Exception):
    """The forced run."""


class Later(Exception):
    """The download is tried again."""


class Job:
    """A job whose run is over, on a server that has these files and says this of its prompt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, there: set[str], says: Answer) -> None:
        self.there, self.says = there, says
        self.id, self.attempt, self.asked, self.tried = uuid4(), 1, 0, list[str]()
        self.told: list[Told] = []
        self.work = SimpleNamespace(collects=0)
        self.server = SimpleNamespace(name="s0", given="s0")
        self.asker = SimpleNamespace(look=self._look)
        self.hold = self.run = None
        self.ledger = SimpleNamespace(finish=self._finish, clock=self._clock)
        self.out = SimpleNamespace(no_result=self._no_result, release=self._release)
        store = SimpleNamespace(name=self._name)
        self.tools = SimpleNamespace(previews=False, store=store, tell=self.told.append, collect_window_s=60.0)
        monkeypatch.setattr(files, "store_output", self._store)

    async def collect(self) -> None:
        await Collecting(cast(HeldJob, self)).download(outputs("a_00001_.png"), SUBMIT)

    async def _look(self, submit: object) -> Finding:
        assert submit == SUBMIT
        self.asked += 1
        return Finding(self.says)

    async def _store(self, tools: object, run: object, server: object, output: Output) -> Any:
        self.tried.append(output.filename)
        if output.filename not in self.there:
            raise OutputGone(f"{output.filename} is gone")
        return SimpleNamespace(node_id=output.node_id, name=output.filename, hash=b"h")

    async def _clock(self) -> datetime:
        return BEGAN

    async def _finish(self, hold: object, stored: list[Any], *, began: datetime) -> State:
        assert began is BEGAN, "what is kept counts from before it was stored"
        return State.SUCCEEDED

    async def _name(self, job: str, named: object) -> None:
        pass

    async def _no_result(self, why: str, *, again: bool) -> NoReturn:
        raise Again if again else AssertionError(why)

    async def _release(self, delay_s: float, *, collect_failed: bool) -> NoReturn:
        raise Later


async def test_another_name_of_the_same_run_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, there={"a_00002_.png"}, says=ended("a_00002_.png"))
    with pytest.raises(GivenAway):
        await job.collect()
    assert job.tried == ["a_00001_.png", "a_00002_.png"]
    [done] = job.told
    assert isinstance(done, Done)


@pytest.mark.parametrize(
    ("says", "there"),
    [
        (ended("a_00001_.png"), set()),
        (ended("a_00002_.png", "error"), {"a_00002_.png"}),
        (Answer(Known.UNKNOWN), set()),
        (ended("a_00002_.png"), set()),
    ],
    ids=["the same name", "a run that failed", "nothing", "a name that is gone too"],
)
async def test_without_another_file_one_more_run_is_made(
    monkeypatch: pytest.MonkeyPatch, says: Answer, there: set[str]
) -> None:
    job = Job(monkeypatch, there=there, says=says)
    with pytest.raises(Again):
        await job.collect()
    assert job.asked == 1, "once: no names are followed round and round"


async def test_a_server_that_cannot_tell_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, there=set(), says=Answer(Known.CANT_TELL, away=True))
    with pytest.raises(Later):
        await job.collect()


async def test_a_file_that_is_there_is_asked_about_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, there={"a_00001_.png"}, says=Answer(Known.UNKNOWN))
    with pytest.raises(GivenAway):
        await job.collect()
    assert job.asked == 0
