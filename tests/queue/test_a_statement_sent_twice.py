"""A statement that is sent again after a lost connection finds what it did the first time."""

from __future__ import annotations

from uuid import uuid4

import pytest

from genflow.queue import LeaseLost, Registry, SlotTaken
from tests.queue.conftest import Bench


async def test_an_intent_sent_again_finds_itself_in_the_last_slot_and_beside_a_cancel(bench: Bench) -> None:
    server = await bench.server(slots=1)
    job = await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    submit = uuid4()
    first = await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=1)
    assert await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=1) == first
    await bench.queue.cancel(job)
    assert await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=1) == first
    await bench.let_leases_run_out()
    await bench.sweeps.rescue()
    with pytest.raises(LeaseLost):
        await ledger.intent(hold, submit=submit, server_id=server, boot=None, slots=1)


async def test_a_write_that_changed_nothing_moves_no_deadline(bench: Bench) -> None:
    server = await bench.server(slots=1)
    await bench.enqueue()
    await bench.enqueue()
    [hold] = await bench.claim("w1", server)
    [other] = await bench.claim("w1", server)
    ledger = await bench.worker("w1")
    await ledger.intent(hold, submit=uuid4(), server_id=server, boot=None, slots=1)
    until = other.deadline
    with pytest.raises(SlotTaken):
        await ledger.intent(other, submit=uuid4(), server_id=server, boot=None, slots=1)
    assert other.deadline == until


async def test_what_is_recorded_under_an_id_of_its_own_may_be_sent_twice(bench: Bench) -> None:
    worker, asset = uuid4(), uuid4()
    upload = {
        "hash": b"h" * 32, "sha256": b"s", "size": 1, "name": "n", "type": "image", "content_type": "image/png",
        "began": None, "tags": [], "keep_s": 60.0, "key": "k", "key_ttl": 60.0, "tenant": 1,
    }  # fmt: skip
    for _ in range(2):
        await Registry(bench.writer, worker).register_worker(name="w", host="h", version="0")
        ids = await bench.writer.write("create_upload", upload | {"asset": asset})
        assert [row["id"] for row in ids] == [asset]
    assert len(await bench.rows("select 1 from genflow.workers")) == 1
