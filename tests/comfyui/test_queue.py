"""Queue, history and cancelling (docs/design/comfyui.md, sections 3 and 4)."""

from __future__ import annotations

import asyncio
import uuid

from tests.support.comfyui import Wire, long_graph, three_nodes


async def test_queue_delete_takes_pending_prompts_only_and_leaves_no_history(wire: Wire) -> None:
    """F4.3."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        running = await wire.queue(long_graph(), client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing")
        pending = await wire.queue(three_nodes(), client_id=client_id)
        assert (await wire.get(f"/api/jobs/{pending}"))["status"] == "pending"
        assert (await wire.get(f"/api/jobs/{running}"))["status"] == "in_progress"
        for prompt_id in (pending, running, str(uuid.uuid4())):
            assert await wire.ask("POST", "/queue", json={"delete": [prompt_id]}) == (200, b"")
        queue = await wire.get("/queue")
        assert [item[1] for item in queue["queue_running"]] == [running]
        assert queue["queue_pending"] == []
        assert await wire.get(f"/history/{pending}") == {}
        assert await wire.ask("GET", f"/api/jobs/{pending}") == (404, {"error": "Job not found"})
        await wire.ask("POST", f"/api/jobs/{running}/cancel")
        await socket.ended(running)


async def test_delete_removes_one_of_two_prompts_with_one_id_per_mention(wire: Wire) -> None:
    """F1.3."""
    blocker = await wire.queue(long_graph())
    prompt_id = str(uuid.uuid4())
    for _ in range(2):
        await wire.post(three_nodes(), prompt_id)
    await wire.ask("POST", "/queue", json={"delete": [prompt_id]})
    assert [item[1] for item in (await wire.get("/queue"))["queue_pending"]] == [prompt_id]
    await wire.ask("POST", "/queue", json={"clear": True})
    assert (await wire.get("/queue"))["queue_pending"] == []
    await wire.ask("POST", f"/api/jobs/{blocker}/cancel")


async def test_cancel_tells_whether_there_was_something_to_cancel(wire: Wire) -> None:
    """F4.4."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        running = await wire.queue(long_graph(), client_id=client_id)
        pending = await wire.queue(three_nodes(), client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing")
        for prompt_id, cancelled in ((pending, True), (running, True), (str(uuid.uuid4()), False)):
            reply = await wire.ask("POST", f"/api/jobs/{prompt_id}/cancel")
            assert reply == (200, {"cancelled": cancelled})
        await socket.ended(running)
    assert (await wire.get(f"/api/jobs/{running}"))["status"] == "cancelled"
    assert await wire.ask("POST", f"/api/jobs/{running}/cancel") == (200, {"cancelled": False})
    status, body = await wire.ask("POST", "/api/jobs/cancel", json={"job_ids": ["x"]})
    assert (status, body["invalid_ids"]) == (400, ["x"])


async def test_an_interrupt_with_nothing_running_does_not_hurt_the_next_prompt(wire: Wire) -> None:
    """F4.5."""
    assert await wire.ask("POST", "/interrupt", data=b"nope") == (200, b"")
    _, entry = await wire.run(three_nodes())
    assert entry["status"]["completed"] is True


async def test_an_older_entry_hides_a_pending_prompt_of_the_same_id(wire: Wire) -> None:
    """F7.1."""
    done, _ = await wire.run(three_nodes())
    blocker = await wire.queue(long_graph())
    await wire.post(three_nodes(), done)
    assert (await wire.get(f"/api/jobs/{done}"))["status"] == "completed"
    assert [item[1] for item in (await wire.get("/queue"))["queue_pending"]] == [done]
    # Deleting the entry brings the pending one to light.
    assert await wire.ask("POST", "/history", json={"delete": [done]}) == (200, b"")
    assert (await wire.get(f"/api/jobs/{done}"))["status"] == "pending"
    await wire.ask("POST", "/queue", json={"clear": True})
    await wire.ask("POST", f"/api/jobs/{blocker}/cancel")


async def test_history_shows_the_last_ones_oldest_first(wire: Wire) -> None:
    """F3.8."""
    ids = [(await wire.run(three_nodes()))[0] for _ in range(4)]
    assert list(await wire.get("/history?max_items=3")) == ids[1:]
    assert await wire.get("/history?max_items=0") == {}
    await wire.ask("POST", "/history", json={"delete": ids[:1]})
    assert await wire.get(f"/history/{ids[0]}") == {}
    await wire.ask("POST", "/history", json={"clear": True})
    assert await wire.get("/history") == {}
    assert (await wire.get("/api/jobs"))["jobs"] == []


async def test_a_null_in_extra_pnginfo_makes_the_jobs_list_a_500(wire: Wire) -> None:
    """F1.15."""
    await wire.ask("POST", "/history", json={"clear": True})
    prompt_id, _ = await wire.run(three_nodes(), extra_data={"extra_pnginfo": {"workflow": None}})
    assert (await wire.ask("GET", "/api/jobs"))[0] == 500
    assert (await wire.ask("GET", f"/api/jobs/{prompt_id}"))[0] == 500
    assert list(await wire.get(f"/history/{prompt_id}")) == [prompt_id]
    await wire.ask("POST", "/history", json={"delete": [prompt_id]})
    assert (await wire.ask("GET", "/api/jobs"))[0] == 200


async def test_free_memory_drops_the_node_cache_and_unload_models_does_not(wire: Wire) -> None:
    """F5.5."""
    graph = three_nodes(f"wire/{uuid.uuid4().hex}")
    _, first = await wire.run(graph)
    await wire.ask("POST", "/free", json={"unload_models": True})
    _, second = await wire.run(graph)
    assert second["outputs"] == first["outputs"]
    await wire.ask("POST", "/free", json={"unload_models": True, "free_memory": True})
    _, third = await wire.run(graph)
    assert third["outputs"] != first["outputs"]


async def test_depth_and_prefixed_routes(wire: Wire) -> None:
    """F1.17 and F7.1."""
    assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 0}}
    assert await wire.get("/api/prompt") == {"exec_info": {"queue_remaining": 0}}
    assert await wire.get("/api/queue") == {"queue_running": [], "queue_pending": []}


async def test_the_history_does_not_know_what_is_pending_or_running(wire: Wire) -> None:
    """F3.2."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        running = await wire.queue(long_graph(), client_id=client_id)
        pending = await wire.queue(three_nodes(), client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing")
        for prompt_id in (running, pending, str(uuid.uuid4())):
            assert await wire.ask("GET", f"/history/{prompt_id}") == (200, {})
        await wire.ask("POST", f"/api/jobs/{running}/cancel")
        await socket.ended(pending)


async def test_an_open_job_tells_neither_graph_nor_extra_data(wire: Wire) -> None:
    """F7.1."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        running = await wire.queue(long_graph(), client_id=client_id, extra_data={"genflow": {"submit": "x"}})
        pending = await wire.queue(three_nodes(), client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing")
        for prompt_id, status in ((running, "in_progress"), (pending, "pending")):
            job = await wire.get(f"/api/jobs/{prompt_id}")
            assert job["status"] == status
            told = {"id", "status", "priority", "create_time", "outputs_count", "previewable_outputs_count"}
            assert set(job) == told
        await wire.ask("POST", f"/api/jobs/{running}/cancel")
        await socket.ended(pending)


async def test_a_deleted_entry_is_unknown_to_the_jobs_route_too(wire: Wire) -> None:
    """F6.9."""
    prompt_id, _ = await wire.run(three_nodes())
    assert await wire.ask("POST", "/history", json={"delete": [prompt_id]}) == (200, b"")
    assert await wire.ask("GET", f"/api/jobs/{prompt_id}") == (404, {"error": "Job not found"})


async def test_an_interrupt_acts_on_the_running_prompt_only(wire: Wire) -> None:
    """F4.1."""
    client_id = str(uuid.uuid4())
    done, _ = await wire.run(three_nodes())
    async with wire.socket(client_id) as socket:
        running = await wire.queue(long_graph(), client_id=client_id)
        pending = await wire.queue(three_nodes(), client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing" and event["data"]["node"] == "2")
        for prompt_id in (pending, done):
            assert await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id}) == (200, b"")
        heard = await socket.until(lambda event: event["type"] == "executing" and event["data"]["node"] == "3")
        assert heard[-1]["data"]["prompt_id"] == running
        await wire.ask("POST", "/interrupt", json={"prompt_id": running})
        await socket.ended(pending)
    assert (await wire.get(f"/api/jobs/{running}"))["status"] == "cancelled"
    assert (await wire.get(f"/api/jobs/{pending}"))["status"] == "completed"


async def test_a_deleted_pending_prompt_leaves_no_event_but_status(wire: Wire) -> None:
    """F4.3."""
    client_id = str(uuid.uuid4())
    blocker = await wire.queue(long_graph(), client_id=str(uuid.uuid4()))
    async with wire.socket(client_id) as socket:
        pending = await wire.queue(three_nodes(), client_id=client_id)
        await wire.ask("POST", "/queue", json={"delete": [pending]})
        await wire.ask("POST", f"/api/jobs/{blocker}/cancel")
        await socket.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert {event["type"] for event in socket.heard} == {"status"}


async def test_free_lets_the_running_prompt_end_and_the_next_finds_nothing_cached(wire: Wire) -> None:
    """F5.5."""
    graph = three_nodes(f"wire/{uuid.uuid4().hex}")
    _, first = await wire.run(graph)
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        running = await wire.queue(long_graph(), client_id=client_id)
        again = await wire.queue(graph, client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing")
        await wire.ask("POST", "/free", json={"unload_models": True, "free_memory": True})
        await socket.ended(again)
    assert (await wire.entry(running))["status"]["completed"] is True
    assert (await wire.entry(again))["outputs"] != first["outputs"]


async def test_a_cancel_right_after_the_post_always_acts(wire: Wire) -> None:
    """F4.4."""
    for _ in range(5):
        prompt_id = await wire.queue(long_graph())
        assert await wire.ask("POST", f"/api/jobs/{prompt_id}/cancel") == (200, {"cancelled": True})
        async with asyncio.timeout(20):
            while await wire.get("/prompt") != {"exec_info": {"queue_remaining": 0}}:
                pass
        status, job = await wire.ask("GET", f"/api/jobs/{prompt_id}")
        assert (status, job.get("status")) in ((200, "cancelled"), (404, None))
