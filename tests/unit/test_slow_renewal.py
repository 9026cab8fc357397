"""The renewal before a POST: one that took longer than settle leaves nothing of what the server said before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from genflow.failures import Policy
from genflow.protocol import Answer, Known, PostReply, Reply
from genflow.worker import submitting
from genflow.worker.asking import Finding
from genflow.worker.collecting import Collecting
from genflow.worker.held import HeldJob
from genflow.worker.judging import Judging
from genflow.worker.submitting import Submitting

SETTLE_S = 30.0


@pytest.mark.parametrize(("renewals", "did"), [
    ([1.0], ["ask", "renew", "POST"]),
    ([SETTLE_S - 1], ["ask", "renew", "POST"]),
    ([SETTLE_S + 1, SETTLE_S + 1, 1.0], ["ask", "renew", "ask", "renew", "ask", "renew", "POST"]),
])  # fmt: skip
async def test_the_server_is_asked_again_after_a_renewal_longer_than_settle(
    monkeypatch: pytest.MonkeyPatch, renewals: list[float], did: list[str]
) -> None:
    job = Job(renewals)
    monkeypatch.setattr(submitting, "boottime", lambda: job.now)
    monkeypatch.setattr(submitting, "room", job.room)
    submit = await Submitting(cast(HeldJob, job), cast(Judging, None), cast(Collecting, None)).submit({})
    assert submit is not None
    assert job.did == did


class Job:
    """A held job on a server that knows nothing of it and takes its prompt."""

    def __init__(self, renewals: list[float]) -> None:
        self.now, self.did, self.renewals = 1_000.0, list[str](), iter(renewals)
        self.id, self.attempt = uuid4(), 0
        self.run: Any = SimpleNamespace(leaving=None, cancel_asked=False, check=lambda: None)
        self.hold: Any = SimpleNamespace(token=1, allows=lambda seconds=0.0: True)
        self.claim = self.out = None
        self.extra_data = None
        self.work = SimpleNamespace(workflow='{"1": {"class_type": "A", "inputs": {}}}', policy=Policy())
        self.asker = SimpleNamespace(clear=self._clear)
        self.server = SimpleNamespace(
            id=1, name="s0", given="s0", slots=1, boot=None, takes_new=True, comfy=SimpleNamespace(post=self._post)
        )
        self.ledger = SimpleNamespace(intent=self._intent, receipt=self._receipt)
        self.tools = SimpleNamespace(timing=SimpleNamespace(settle_s=SETTLE_S), tell=lambda told: None)

    def listen(self) -> Any:
        return SimpleNamespace(opened=self._opened, client_id="c")

    async def room(self, tools: object, run: object) -> float:
        self.did.append("renew")
        self.now += next(self.renewals)
        return 10.0

    async def _opened(self) -> None:
        pass

    async def _intent(self, hold: object, **named: object) -> Any:
        return SimpleNamespace(no=1, attempt=1)

    async def _clear(self, submit: UUID) -> Finding:
        self.did.append("ask")
        return Finding(Answer(Known.UNKNOWN))

    async def _post(self, body: object, **named: object) -> PostReply:
        self.did.append("POST")
        return PostReply(Reply.ACCEPTED, status=200, number=1.0)

    async def _receipt(self, hold: object, no: int, **named: object) -> bool:
        return False
