"""The client against the simulator, as a server of today and as one of the 0.3.x line."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from PIL import Image

from genflow.comfy import (
    ComfyServer,
    NodeFinished,
    OutputGone,
    Preview,
    RunEnded,
    RunStarted,
    ServerAnswered,
    ServerUnreachable,
)
from genflow.outputs import walk_outputs
from genflow.protocol import Known, PostReply, Reply, prompt_body, same_work
from genflow.simulator import SimulatedServer, SimulatorOptions, running
from tests.unit.wire import client

pytestmark = pytest.mark.parametrize("old", [False, True], ids=["today", "0.3.x"])


def graph(photo: str | None = None) -> dict[str, Any]:
    source: dict[str, Any] = {"width": 64, "height": 48, "batch_size": 1, "color": 3}
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": photo}}
        if photo
        else {"class_type": "EmptyImage", "inputs": source},
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "me"}},
    }


@dataclass
class Bench:
    """A simulated server, its client, and one job."""

    server: SimulatedServer
    comfy: ComfyServer
    job_id: UUID

    async def post(
        self,
        submit: UUID,
        *,
        job_id: UUID | None = None,
        work: dict[str, Any] | None = None,
        client_id: str = "c-1",
        no: int = 1,
        timeout_s: float = 20.0,
    ) -> PostReply:
        job_id = job_id or self.job_id
        body = prompt_body(
            work or graph(),
            job_id=job_id,
            submit=submit,
            token=1,
            client_id=client_id,
            submit_no=no,
            extra_data=None,
        )
        return await self.comfy.post(body, job_id=job_id, timeout_s=timeout_s, gate=lambda: True)

    async def seen(self, event: str, count: int = 1, job_id: UUID | None = None) -> None:
        await self.server.books.wait(event, str(job_id or self.job_id), count, 30)

    async def known(self, submit: UUID, *, doubt: bool = False) -> Known:
        return (await self.comfy.ask(self.job_id, submit, doubt=doubt)).known

    @property
    def executions(self) -> int:
        return self.server.books.page(str(self.job_id)).executions


@contextlib.asynccontextmanager
async def bench(*, old: bool, **knobs: Any) -> AsyncIterator[Bench]:
    options = SimulatorOptions(old=old, seconds_per_step=0.0, seconds_per_megapixel=0.0, knobs=knobs)
    async with running(options) as (server,), client(server.url) as comfy:
        yield Bench(server, comfy, uuid4())


async def png() -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (32, 24), (10, 20, 30)).save(held, "PNG")
    return held.getvalue()


async def test_a_photo_goes_in_and_a_picture_comes_out_of_one_run(old: bool) -> None:
    photo = await png()

    async def chunks() -> AsyncIterator[bytes]:
        yield photo[:100]
        yield photo[100:]

    async with bench(old=old, previews=True) as made:
        submit = uuid4()
        folder = f"genflow/{made.job_id}"
        for _ in range(2):
            name = await made.comfy.upload("photo.png", folder, chunks(), len(photo), lambda: True)
            assert name == f"{folder}/photo.png", "an upload may be repeated"
        work = graph(name)
        async with made.comfy.watch("c-1") as events:
            reply = await made.post(submit, work=work)
            assert (reply.kind, reply.number) == (Reply.ACCEPTED, 0.0)
            told = []
            async for event in events:
                told.append(event)
                if event == RunEnded(made.job_id, None, settled=True):
                    break
        assert RunStarted(made.job_id) in told
        answer = await made.comfy.ask(made.job_id, submit, doubt=False)
        assert (answer.known, answer.submit) == (Known.ENDED, submit)
        entry = answer.entry
        assert entry is not None
        assert entry.outcome == "success"
        assert same_work(work, entry.graph)
        assert entry.exec_start_ms is not None
        assert entry.exec_end_ms is not None
        assert entry.exec_start_ms <= entry.exec_end_ms
        (output,) = walk_outputs(entry.outputs)
        assert (output.subfolder, output.folder_type) == (f"genflow/{made.job_id}/1", "output")
        assert NodeFinished(made.job_id, "3", [output]) in told
        assert all(event.job_id == made.job_id for event in told if isinstance(event, Preview))
        picture = b"".join([chunk async for chunk in made.comfy.view(output)])
        with Image.open(io.BytesIO(picture)) as image:
            assert image.getpixel((0, 0)) == (245, 235, 225)
        assert made.executions == 1


async def test_a_job_is_unknown_then_pending_then_running_then_ended(old: bool) -> None:
    async with bench(old=old, hold=1) as made:
        neighbour, submit = uuid4(), uuid4()
        assert await made.known(submit) is Known.UNKNOWN
        await made.post(uuid4(), job_id=neighbour)
        await made.seen("held", job_id=neighbour)
        await made.post(submit, client_id="c-2")
        assert await made.comfy.depth() == 2
        for doubt in (False, True):
            assert await made.known(submit, doubt=doubt) is Known.PENDING
        assert await made.known(uuid4(), doubt=True) is Known.EARLIER_OPEN
        await made.comfy.cancel(neighbour)
        await made.seen("running")
        for doubt in (False, True):
            assert await made.known(submit, doubt=doubt) is Known.RUNNING
        assert await made.known(uuid4(), doubt=True) is Known.EARLIER_OPEN
        made.server.set_knobs({"release": True})
        await made.seen("ended")
        assert await made.known(submit) is Known.ENDED
        assert await made.known(uuid4()) is Known.EARLIER_ENDED
        await made.comfy.history_delete(made.job_id)
        assert await made.known(submit) is Known.UNKNOWN


async def test_an_old_entry_hides_an_open_item_until_it_is_deleted(old: bool) -> None:
    async with bench(old=old) as made:
        first, second = uuid4(), uuid4()
        await made.post(first)
        await made.seen("ended")
        made.server.set_knobs({"hold": 1})
        await made.post(second, no=2)
        await made.seen("running", 2)
        assert await made.known(second) is Known.EARLIER_ENDED
        await made.comfy.history_delete(made.job_id)
        assert await made.known(second, doubt=True) is Known.RUNNING
        assert await made.known(first, doubt=True) is Known.EARLIER_OPEN


async def test_one_whose_post_may_have_left_is_looked_for_behind_an_old_entry(old: bool) -> None:
    async with bench(old=old) as made:
        first, second, third = uuid4(), uuid4(), uuid4()

        async def behind(submit: UUID) -> tuple[Known, UUID | None]:
            answer = await made.comfy.ask(made.job_id, submit, doubt=True, behind=True)
            return answer.known, None if answer.entry is None else answer.entry.submit

        await made.post(first)
        await made.seen("ended")
        assert await behind(first) == (Known.ENDED, first)
        assert await behind(second) == (Known.UNKNOWN, first), "unknown, and told what stands in its place"
        made.server.set_knobs({"hold": 1})
        await made.post(second, no=2)
        await made.post(third, no=3)
        await made.seen("running", 2)
        assert await behind(second) == (Known.RUNNING, None)
        assert await behind(third) == (Known.PENDING, None)
        assert await behind(uuid4()) == (Known.UNKNOWN, first)
        await made.comfy.history_delete(made.job_id)
        assert await behind(uuid4()) == (Known.UNKNOWN, None), "another's open prompt is not this one's"


@pytest.mark.parametrize(
    ("mode", "kind", "queued"),
    [
        ("lost", Reply.OPEN_DOUBT, True),
        ("html", Reply.OPEN_DOUBT, False),
        ("502", Reply.OPEN_DOUBT, False),
        ("500", Reply.SETTLED_DOUBT, True),
        ("node_errors", Reply.HALF_VALID, True),
    ],
)
async def test_a_doubtful_reply_is_settled_by_asking(old: bool, mode: str, kind: Reply, queued: bool) -> None:
    async with bench(old=old, reply=mode) as made:
        submit = uuid4()
        assert (await made.post(submit)).kind is kind
        if queued:
            await made.seen("ended")
        assert await made.known(submit) is (Known.ENDED if queued else Known.UNKNOWN)
        assert made.executions == int(queued)


async def test_a_500_that_did_not_queue_is_unknown_at_once(old: bool) -> None:
    async with bench(old=old, reply={"mode": "500", "queued": False}) as made:
        submit = uuid4()
        assert (await made.post(submit)).kind is Reply.SETTLED_DOUBT
        assert await made.known(submit) is Known.UNKNOWN


async def test_a_reply_later_than_the_timeout_is_open_doubt_and_the_prompt_is_there(old: bool) -> None:
    async with bench(old=old, reply={"mode": "late", "seconds": 20}) as made:
        submit = uuid4()
        assert (await made.post(submit, timeout_s=0.3)).kind is Reply.OPEN_DOUBT
        await made.seen("ended")
        assert await made.known(submit) is Known.ENDED


async def test_a_body_too_large_and_a_bad_graph_are_refused(old: bool) -> None:
    async with bench(old=old, too_large=1) as made:
        assert (await made.post(uuid4())).error_type == "too_large"
        bad = graph()
        bad["1"]["inputs"]["width"] = -5
        reply = await made.post(uuid4(), work=bad)
        assert (reply.kind, reply.node_id, reply.node_class, reply.input_name) == (
            Reply.REFUSED,
            "1",
            "EmptyImage",
            "width",
        )
        assert made.executions == 0


async def test_an_error_and_out_of_memory_are_told_with_their_node(old: bool) -> None:
    async with bench(old=old, script="error,oom") as made:
        for no, kind in ((1, "IndexError"), (2, "torch.OutOfMemoryError")):
            submit = uuid4()
            await made.post(submit, no=no)
            await made.seen("ended", no)
            entry = (await made.comfy.ask(made.job_id, submit, doubt=False)).entry
            assert entry is not None
            assert entry.outcome == "error"
            assert entry.error is not None
            assert (entry.error.node_id, entry.error.exception_type) == ("2", kind)


async def test_cancel_stops_the_one_that_runs_and_no_neighbour(old: bool) -> None:
    async with bench(old=old, hold=2) as made:
        submit, neighbour = uuid4(), uuid4()
        await made.post(submit)
        await made.seen("held")
        await made.post(uuid4(), job_id=neighbour, client_id="c-2")
        await made.comfy.cancel(made.job_id)
        await made.seen("ended")
        answer = await made.comfy.ask(made.job_id, submit, doubt=False)
        assert answer.entry is not None
        assert answer.entry.outcome == "interrupted"
        made.server.set_knobs({"release": True})
        await made.seen("ended", job_id=neighbour)
        assert made.server.books.page(str(neighbour)).interruptions == 0


async def test_cancel_and_queue_delete_take_a_pending_one_out_and_leave_the_running_one(old: bool) -> None:
    async with bench(old=old, hold=2) as made:
        neighbour = uuid4()
        await made.post(uuid4(), job_id=neighbour)
        await made.seen("held", job_id=neighbour)
        for take_out in (made.comfy.cancel, made.comfy.queue_delete):
            submit = uuid4()
            await made.post(submit, client_id="c-2")
            await take_out(made.job_id)
            assert await made.known(submit) is Known.UNKNOWN
        await made.comfy.queue_delete(neighbour)
        made.server.set_knobs({"release": True})
        await made.seen("ended", job_id=neighbour)
        page = made.server.books.page(str(neighbour))
        assert (page.executions, page.interruptions, made.executions) == (1, 0, 0)


async def test_a_restart_is_a_new_boot_that_knows_nothing(old: bool) -> None:
    async with bench(old=old, hold=1) as made:
        submit = uuid4()
        boot = await made.comfy.read_boot()
        assert await made.comfy.read_boot() == boot
        await made.post(submit)
        await made.seen("held")
        await made.server.restart()
        assert await made.known(submit) is Known.UNKNOWN
        assert await made.comfy.read_boot() != boot


async def test_a_server_that_is_down_or_stands_still_cant_tell(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genflow.comfy.client.CALL_TIMEOUT_S", 0.3)
    async with bench(old=old) as made:
        made.server.freeze(2)
        assert await made.known(uuid4()) is Known.CANT_TELL
        with pytest.raises(ServerUnreachable):
            await made.comfy.depth()
        await made.server.stop()
        assert await made.known(uuid4()) is Known.CANT_TELL
        reply = await made.post(uuid4())
        assert (reply.kind, reply.error_type) == (Reply.REFUSED, "connect")


async def test_a_download_that_fails_is_never_a_file(old: bool) -> None:
    async with bench(old=old) as made:
        submit = uuid4()
        await made.post(submit)
        await made.seen("ended")
        entry = (await made.comfy.ask(made.job_id, submit, doubt=False)).entry
        assert entry is not None
        (output,) = walk_outputs(entry.outputs)
        for knob, expected in (
            ("view_fail", ServerAnswered),
            ("view_missing", OutputGone),
            ("view_empty", OutputGone),
            ("view_truncated", ServerUnreachable),
        ):
            made.server.set_knobs({knob: 1})
            with pytest.raises(expected):
                async for _ in made.comfy.view(output):
                    pass
        assert [len(chunk) async for chunk in made.comfy.view(output)]


async def test_a_socket_dropped_in_mid_run_ends_its_stream_and_asking_goes_on(old: bool) -> None:
    async with bench(old=old, script="drop") as made:
        submit = uuid4()
        async with asyncio.timeout(30), made.comfy.watch("c-1") as events:
            await made.post(submit)
            async for _ in events:
                pass
            assert events.closed
        await made.seen("ended")
        assert await made.known(submit) is Known.ENDED


async def test_somebody_elses_poison_in_queue_and_history_hurts_no_answer(old: bool) -> None:
    async with bench(old=old, hold=1) as made:
        poison = {"prompt": graph(), "number": float("nan"), "extra_data": {"extra_pnginfo": {"workflow": None}}}
        other, submit = uuid4(), uuid4()
        body = json.dumps({**poison, "prompt_id": str(other)}).encode()
        await made.comfy.post(body, job_id=other, timeout_s=20, gate=lambda: True)
        await made.seen("held", job_id=other)
        await made.post(submit)
        assert await made.known(submit, doubt=True) is Known.PENDING
        answer = await made.comfy.ask(other, submit, doubt=False)
        assert answer.known is Known.EARLIER_OPEN, "/api/jobs/ID of a poisoned prompt is a 500; the queue tells"


async def test_object_info_and_stats_are_objects(old: bool) -> None:
    async with bench(old=old) as made:
        assert "SaveImage" in await made.comfy.object_info()
        assert "system" in await made.comfy.system_stats()
        assert await made.comfy.has_jobs_route() is not old
