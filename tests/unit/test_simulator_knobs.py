"""Every knob, turned while the server runs, does what docs/reference/simulator.md says of it."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import aiohttp
import pytest

from genflow.simulator.knobs import KNOBS, Knobs
from tests.support.comfyui import Wire, simulated, three_nodes
from tests.support.portraits import face_photo, portrait_graph
from tests.support.repository import ROOT

DONE = {"status": {"exec_info": {"queue_remaining": 0}}}


def test_every_knob_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "simulator.md").read_text(encoding="utf-8")
    assert [name for name in KNOBS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"view_fial": 1}, "unknown knob 'view_fial'; known knobs: reply, "),
        ({"view_fail": "x"}, "knob 'view_fail' takes a number of times"),
        ({"view_fail": -1}, "knob 'view_fail' takes a number of times"),
        ({"socket_silent": 1}, "knob 'socket_silent' takes true or false"),
        ({"reply": {"mode": "gone"}}, "knob 'reply' takes an object whose mode is one of lost, late,"),
        ({"reply": {"mode": "lost", "until": 5}}, "not until"),
        ({"socket_drop": {"percent": 101}}, "a number from 0 to 100"),
        ({"hold": 0}, "the number of a node in running order"),
        ({"script": "ok,nope"}, "unknown script word 'nope'"),
        ({"error": "boom"}, "one of error, oom, cuda"),
        ({"speed_factor": 0}, "a number above 0"),
        ({"models": {"loras": "x"}}, "an object of folder = list of file names"),
        ({"lacks": "ImageInvert"}, "a list of node classes"),
        ([], "the body must be an object"),
    ],
)
async def test_what_a_knob_does_not_take_is_named_and_nothing_is_set(body: Any, words: str) -> None:
    async with simulated() as (wire, server):
        before = server.knobs.shown()
        if isinstance(body, dict):
            body = {"view_missing": 3, **body}
        status, answer = await wire.ask("POST", "/simulator/knobs", json=body)
        assert status == 400
        assert words in answer["error"]
        assert server.knobs.shown() == before


async def test_positions_are_shown() -> None:
    async with simulated(script=("ok", "oom")) as (wire, _):
        await wire.knobs(view_fail=3, reply={"mode": "lost", "times": 2})
        shown = await wire.get("/simulator/knobs")
        assert shown["view_fail"] == 3
        assert shown["reply"] == {"mode": "lost", "queued": True, "seconds": 0.0, "times": 2}
        assert shown["script"] == ["ok", "oom"]


def test_a_count_runs_out_and_true_does_not() -> None:
    knobs = Knobs()
    knobs.set({"view_fail": 2, "view_missing": True, "socket_stall": {"seconds": 1, "times": 2}})
    assert [knobs.take("view_fail") is not None for _ in range(3)] == [True, True, False]
    assert all(knobs.take("view_missing") is not None for _ in range(5))
    assert [knobs.take("socket_stall") is not None for _ in range(3)] == [True, True, False]


# POST /prompt


async def posted(wire: Wire, prompt_id: str, **fields: Any) -> tuple[int, Any] | None:
    """The answer to a POST, None if the connection was cut."""
    try:
        return await wire.post(three_nodes(), prompt_id, **fields)
    except aiohttp.ClientError:
        return None


@pytest.mark.parametrize(
    ("reply", "status", "queued"),
    [
        ({"mode": "lost"}, None, True),
        ({"mode": "lost", "queued": False}, None, False),
        ("html", 200, False),
        ({"mode": "html", "queued": True}, 200, True),
        ("502", 502, False),
        ({"mode": "502", "queued": True}, 502, True),
        ("500", 500, True),
        ({"mode": "500", "queued": False}, 500, False),
        ("node_errors", 200, True),
    ],
)
async def test_reply(reply: Any, status: int | None, queued: bool) -> None:
    async with simulated() as (wire, server):
        await wire.knobs(reply=reply)
        prompt_id = str(uuid.uuid4())
        answer = await posted(wire, prompt_id)
        assert (answer[0] if answer else None) == status
        assert server.books.page(prompt_id).posts == int(queued)
        mode = reply if isinstance(reply, str) else reply["mode"]
        if mode in ("html", "502"):
            assert answer is not None
            assert answer[1].startswith("<html>")
        if mode == "node_errors":
            assert answer is not None
            assert answer[1]["node_errors"]["9"]["class_type"] == "SaveImage"
        if queued:
            await wire.happened("ended", prompt_id)
        again = await posted(wire, str(uuid.uuid4()))
        assert again is not None
        assert (again[0], again[1]["node_errors"]) == (200, {})


async def test_a_late_reply_comes_after_the_prompt_was_queued_or_before() -> None:
    async with simulated() as (wire, server):
        for queued in (True, False):
            await wire.knobs(reply={"mode": "late", "seconds": 0.4, "queued": queued})
            prompt_id = str(uuid.uuid4())
            posting = asyncio.create_task(posted(wire, prompt_id))
            if queued:
                await wire.happened("ended", prompt_id)
            else:
                await asyncio.wait([posting], timeout=0.2)
                assert server.books.page(prompt_id).posts == 0
            assert not posting.done()
            answer = await posting
            assert answer is not None
            assert answer[0] == 200
            await wire.happened("ended", prompt_id)
            assert server.books.page(prompt_id).posts == 1


async def test_too_large() -> None:
    async with simulated(knobs={"too_large": 1}) as (wire, _):
        status, body = await wire.post(three_nodes())
        assert (status, body) == (413, "Maximum request body size 104857600 exceeded.")
        assert (await wire.post(three_nodes()))[0] == 200


async def test_posted_twice_is_seen_in_the_books() -> None:
    async with simulated(knobs={"posted_twice": 1}) as (wire, _):
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("ended", prompt_id, count=2)
        book = await wire.book(prompt_id)
        assert (book["posts"], book["executions"]) == (2, 2)


@pytest.mark.parametrize(
    ("kind", "exception"),
    [
        ("error", "IndexError"),
        ("oom", "torch.OutOfMemoryError"),
        ("cuda", "torch.AcceleratorError"),
        ("missing_model", "Exception"),
    ],
)
async def test_error_in_the_run(kind: str, exception: str) -> None:
    async with simulated() as (wire, _):
        await wire.knobs(error=kind)
        _, entry = await wire.run(three_nodes())
        event, data = entry["status"]["messages"][-1]
        assert (event, data["exception_type"]) == ("execution_error", exception)
        if kind == "cuda":
            assert data["exception_message"].startswith("CUDA error: an illegal memory access was encountered")
        if kind == "missing_model":
            assert data["exception_message"] == "ClipVision model not found.\n"
        _, entry = await wire.run(three_nodes())
        assert entry["status"]["completed"] is True


@pytest.mark.parametrize(
    ("kind", "error", "node_error"),
    [
        ("invalid", "prompt_outputs_failed_validation", "exception_during_inner_validation"),
        ("missing_node", "missing_node_type", None),
        ("value_not_in_list", "prompt_outputs_failed_validation", "value_not_in_list"),
    ],
)
async def test_error_in_validation(kind: str, error: str, node_error: str | None) -> None:
    async with simulated() as (wire, _):
        await wire.knobs(error={"class": kind, "times": 2})
        for _ in range(2):
            status, body = await wire.post(three_nodes())
            assert (status, body["error"]["type"]) == (400, error)
            types = [reason["type"] for node in body["node_errors"].values() for reason in node["errors"]]
            assert types == ([node_error] if node_error else [])
        assert (await wire.post(three_nodes()))[0] == 200


async def test_script_words_can_be_added_while_it_runs() -> None:
    async with simulated() as (wire, _):
        await wire.knobs(script="500,ok")
        assert (await wire.post(three_nodes()))[0] == 500
        assert (await wire.post(three_nodes()))[0] == 200


# The run


async def test_speeds_can_be_changed() -> None:
    async with simulated() as (wire, server):
        await wire.upload(face_photo(), "face.jpg")
        await wire.knobs(seconds_per_step=0.1, seconds_per_megapixel=1.0)
        await wire.run(portrait_graph("face.jpg", seed=1, steps=3))
        await wire.knobs(speed_factor=10)
        await wire.run(portrait_graph("face.jpg", seed=2, steps=3))
        first, second = [end - start for _, start, end in server.books.log()]
        megapixels = (2 * 256 * 320 + 240 * 320) / 1e6
        assert first >= 300 + megapixels * 1000 - 2
        assert second < first / 2


async def test_hold_stops_before_a_node_until_release() -> None:
    async with simulated() as (wire, _):
        await wire.knobs(hold=2)
        async with wire.socket("mine") as socket:
            prompt_id = await wire.queue(three_nodes(), client_id="mine")
            await wire.happened("held", prompt_id)
            await socket.until(lambda event: event["type"] == "executing" and event["data"]["node"] == "1")
            await wire.knobs(release=True)
            heard = await socket.ended(prompt_id)
        nodes = [event["data"]["node"] for event in heard if event["type"] == "executing"]
        assert nodes == ["2", "3", None]
        # Released for good: the next run is not held.
        assert (await wire.run(three_nodes()))[1]["status"]["completed"] is True


async def test_a_held_run_can_be_interrupted() -> None:
    async with simulated(knobs={"hold": 1}) as (wire, _):
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("held", prompt_id)
        await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id})
        await wire.happened("interrupted", prompt_id)


async def test_history_delay_comes_between_success_and_entry() -> None:
    async with simulated(knobs={"history_delay_ms": 400}) as (wire, _):
        async with wire.socket("mine") as socket:
            prompt_id = await wire.queue(three_nodes(), client_id="mine")
            await socket.until(lambda event: event["type"] == "execution_success")
            assert await wire.get(f"/history/{prompt_id}") == {}
            assert (await wire.get(f"/api/jobs/{prompt_id}"))["status"] == "in_progress"
            await socket.ended(prompt_id)
        assert (await wire.entry(prompt_id))["status"]["completed"] is True


async def test_empty_outputs_is_a_success_without_files() -> None:
    async with simulated(knobs={"empty_outputs": 1}) as (wire, server):
        prompt_id, entry = await wire.run(three_nodes())
        assert (entry["status"]["status_str"], entry["outputs"]) == ("success", {})
        assert server.books.page(prompt_id).files == []
        assert (await wire.run(three_nodes()))[1]["outputs"] != {}


async def test_cached_without_file_reports_a_name_that_is_not_there() -> None:
    async with simulated(knobs={"cached_without_file": 1}) as (wire, _):
        _, entry = await wire.run(three_nodes())
        assert entry["status"]["messages"][1][1]["nodes"] == ["1", "2", "3"]
        image = entry["outputs"]["3"]["images"][0]
        assert (await wire.ask("GET", "/view", params=image))[0] == 404


async def test_interrupt_ignored_answers_and_runs_on() -> None:
    async with simulated(knobs={"interrupt_ignored": True, "hold": 2}) as (wire, _):
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("held", prompt_id)
        assert await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id}) == (200, b"")
        assert await wire.ask("POST", f"/api/jobs/{prompt_id}/cancel") == (200, {"cancelled": True})
        await wire.knobs(release=True)
        await wire.happened("ended", prompt_id)
        assert (await wire.entry(prompt_id))["status"]["completed"] is True


async def test_a_dead_worker_answers_and_runs_nothing_until_a_restart() -> None:
    async with simulated(knobs={"worker_dead": True}) as (wire, server):
        first = await wire.queue(three_nodes())
        second = await wire.queue(three_nodes())
        queue = await wire.get("/queue")
        assert [item[1] for item in queue["queue_running"]] == [first]
        assert [item[1] for item in queue["queue_pending"]] == [second]
        await wire.ask("POST", "/interrupt", json={})
        assert (await wire.get(f"/api/jobs/{first}"))["status"] == "in_progress"
        assert server.books.page(first).executions == 0
        await wire.knobs(worker_dead=False)
        await server.restart()
        assert (await wire.run(three_nodes()))[1]["status"]["completed"] is True


async def test_gc_stall_stops_http_after_a_prompt() -> None:
    async with simulated(knobs={"gc_stall": {"seconds": 0.4}}) as (wire, _):
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("ended", prompt_id)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.get("/prompt"), 0.1)
        assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 0}}


# Sockets


async def test_socket_silent_sends_nothing() -> None:
    async with simulated(knobs={"socket_silent": True}) as (wire, _), wire.socket("mine") as socket:
        prompt_id = await wire.queue(three_nodes(), client_id="mine")
        await wire.happened("ended", prompt_id)
        assert await socket.silent()


async def test_socket_drop_cuts_as_often_as_it_is_told() -> None:
    async with simulated(knobs={"socket_drop": {"percent": 100, "times": 2}}) as (wire, server):
        for dropped in (True, True, False):
            async with wire.socket("mine") as socket:
                prompt_id = await wire.queue(three_nodes(), client_id="mine")
                await wire.happened("ended", prompt_id)
                if dropped:
                    await socket.until(lambda event: event["type"] == "closed")
                else:
                    await socket.ended(prompt_id)
            assert (await wire.entry(prompt_id))["status"]["completed"] is True
        assert server.knobs.get("socket_drop") is None


async def test_socket_stall_delays_everybodys_events_and_no_http() -> None:
    async with simulated(knobs={"socket_stall": {"seconds": 0.5}}) as (wire, _), wire.socket("mine") as socket:
        prompt_id = await wire.queue(three_nodes(), client_id="mine")
        await wire.happened("ended", prompt_id)
        assert (await wire.entry(prompt_id))["status"]["completed"] is True
        assert len(socket.heard) == 1
        await socket.ended(prompt_id)


async def test_socket_refused_answers_the_handshake_with_503() -> None:
    async with simulated(knobs={"socket_refused": 1}) as (wire, _):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with wire.socket("mine"):
                pass
        assert refused.value.status == 503
        async with wire.socket("mine") as socket:
            assert socket.heard[0]["type"] == "status"


async def test_socket_orphan_hears_its_greeting_and_nothing_more() -> None:
    async with simulated(knobs={"socket_orphan": 1}) as (wire, _):
        async with wire.socket("mine") as orphan:
            await wire.run(three_nodes(), client_id="other")
            assert await orphan.silent()
        async with wire.socket("mine") as socket:
            prompt_id = await wire.queue(three_nodes(), client_id="mine")
            await socket.ended(prompt_id)


async def test_cross_broadcast_sends_a_clients_events_to_everybody() -> None:
    async with simulated(knobs={"cross_broadcast": True}) as (wire, _), wire.socket("mine") as socket:
        prompt_id = await wire.queue(three_nodes(), client_id="other")
        heard = await socket.ended(prompt_id)
        assert "execution_success" in [event["type"] for event in heard]


async def test_previews_come_as_each_client_wants_them() -> None:
    async with simulated(knobs={"previews": True}) as (wire, _):
        await wire.upload(face_photo(), "face.jpg")
        for seed, metadata in ((1, False), (2, True)):
            async with wire.socket("mine") as socket:
                if metadata:
                    flags = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
                    await socket.socket.send_json(flags)
                    await socket.next()
                prompt_id = await wire.queue(portrait_graph("face.jpg", seed=seed), client_id="mine")
                heard = await socket.ended(prompt_id)
            frames = [event["data"] for event in heard if event["type"] == "binary"]
            assert len(frames) == 4
            kinds = [event["type"] for event in heard]
            first = kinds.index("binary")
            if metadata:
                length = int.from_bytes(frames[0][4:8])
                assert frames[0][:4] == (4).to_bytes(4)
                assert frames[0][8 + length :][:2] == b"\xff\xd8"
                assert prompt_id.encode() in frames[0][8 : 8 + length]
                assert kinds[first - 1 : first + 2] == ["progress_state", "binary", "progress"]
            else:
                assert frames[0][:8] == (1).to_bytes(4) + (1).to_bytes(4)
                assert frames[0][8:10] == b"\xff\xd8"
                assert kinds[first - 2 : first] == ["progress_state", "progress"]


async def test_events_out_of_order_still_all_come() -> None:
    async with simulated(knobs={"events_out_of_order": True}) as (wire, _), wire.socket("mine") as socket:
        prompt_id = await wire.queue(three_nodes(), client_id="mine")
        await wire.happened("ended", prompt_id)
        kinds: list[str] = []
        while not {"execution_success", "executed", "execution_start"} <= set(kinds) or len(kinds) < 14:
            event = await socket.next()
            kinds.append(event["type"])
        own = [kind for kind in kinds if kind != "status"]
        assert own[:2] == ["execution_cached", "execution_start"]


# Files


@pytest.mark.parametrize(("knob", "status"), [("view_fail", 500), ("view_missing", 404), ("view_empty", 200)])
async def test_views_fail_as_often_as_they_are_told(knob: str, status: int) -> None:
    async with simulated() as (wire, _):
        _, entry = await wire.run(three_nodes())
        image = entry["outputs"]["3"]["images"][0]
        await wire.knobs(**{knob: 2})
        for _ in range(2):
            got, body = await wire.ask("GET", "/view", params=image)
            assert got == status
            if knob == "view_empty":
                assert body == b""
        assert (await wire.get("/view", params=image))[:4] == b"\x89PNG"


async def test_view_truncated_breaks_off() -> None:
    async with simulated(knobs={"view_truncated": 1}) as (wire, _):
        _, entry = await wire.run(three_nodes())
        image = entry["outputs"]["3"]["images"][0]
        with pytest.raises(aiohttp.ClientError):
            await wire.get("/view", params=image)
        assert (await wire.get("/view", params=image))[-8:-4] == b"IEND"


# The server


async def test_freeze_stops_http_and_no_run() -> None:
    async with simulated(knobs={"hold": 1}) as (wire, _):
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("held", prompt_id)
        await wire.knobs(freeze={"seconds": 0.5}, release=True)
        asking = asyncio.create_task(wire.get("/prompt"))
        await wire.happened("ended", prompt_id)
        assert not asking.done()
        assert await asking == {"exec_info": {"queue_remaining": 0}}


async def test_models_are_what_the_server_has() -> None:
    async with simulated() as (wire, _):
        await wire.upload(face_photo(), "face.jpg")
        await wire.knobs(models={"ipadapter": []})
        status, body = await wire.post(portrait_graph("face.jpg"))
        reason = body["node_errors"]["12"]["errors"][0]
        assert (status, reason["type"]) == (400, "value_not_in_list")
        assert reason["details"] == "ipadapter_file: 'ip-adapter-faceid-plusv2_sd15.bin' not in []"
        assert await wire.get("/models/ipadapter") == []
        info = await wire.get("/object_info/IPAdapterModelLoader")
        assert info["IPAdapterModelLoader"]["input"]["required"]["ipadapter_file"][0] == []


async def test_a_node_that_the_server_lacks_is_unknown_there() -> None:
    async with simulated(knobs={"lacks": ["ImageInvert"]}) as (wire, _):
        status, body = await wire.post(three_nodes())
        assert (status, body["error"]["type"]) == (400, "missing_node_type")
        assert "ImageInvert" not in await wire.get("/object_info")
        await wire.knobs(lacks=[])
        assert "ImageInvert" in await wire.get("/object_info")
        await wire.queue(three_nodes())


async def test_busy_prompts_stand_for_ever_and_never_block() -> None:
    async with simulated(busy=2) as (wire, _):
        assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 2}}
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("ended", prompt_id)
        await wire.knobs(busy=1)
        queue = await wire.get("/queue")
        assert [item[3]["client_id"] for item in queue["queue_pending"]] == ["another-client"] * 3


async def test_busy_for_runs_before_ours() -> None:
    async with simulated(busy=2, busy_for=0.2) as (wire, server):
        prompt_id = await wire.queue(three_nodes())
        await wire.happened("ended", prompt_id)
        log = server.books.log()
        assert len(log) == 3
        assert log[-1][0] == prompt_id
        assert log[-1][1] - log[0][1] >= 400 - 5
