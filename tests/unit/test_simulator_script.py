"""Each script word does to its prompt what it says, and the next prompt is not touched."""

from __future__ import annotations

import uuid

import pytest

from genflow.simulator import SimulatorOptions, parse_script
from tests.support.comfyui import Wire, simulated, three_nodes


async def following_prompt_runs(wire: Wire) -> None:
    _, entry = await wire.run(three_nodes())
    assert entry["status"]["completed"] is True


async def test_500_is_aiohttps_own_answer_and_queues_nothing() -> None:
    async with simulated(script=("500",)) as (wire, server):
        prompt_id = str(uuid.uuid4())
        status, body = await wire.post(three_nodes(), prompt_id)
        assert (status, body) == (500, "500 Internal Server Error\n\nServer got itself in trouble")
        assert (await wire.ask("GET", f"/api/jobs/{prompt_id}"))[0] == 404
        assert server.books.shown()["prompts"] == {}
        await following_prompt_runs(wire)


async def test_invalid_is_a_400_that_names_the_sampler() -> None:
    async with simulated(script=("invalid",)) as (wire, _):
        status, body = await wire.post(three_nodes())
        assert (status, body["error"]["type"]) == (400, "prompt_outputs_failed_validation")
        culprit = body["node_errors"]["3"]
        assert culprit["class_type"] == "KSampler"
        assert culprit["errors"][0]["type"] == "exception_during_inner_validation"
        await following_prompt_runs(wire)


async def test_error_fails_in_node_2_with_the_recorded_words() -> None:
    async with simulated(script=("error",)) as (wire, _):
        _, entry = await wire.run(three_nodes())
        event, data = entry["status"]["messages"][-1]
        assert (event, data["node_id"], data["node_type"]) == ("execution_error", "2", "ImageToMask")
        assert data["exception_type"] == "IndexError"
        assert data["exception_message"].strip() == "index 3 is out of bounds for dimension 3 with size 3"
        await following_prompt_runs(wire)


async def test_oom_strikes_the_second_node_by_id() -> None:
    async with simulated(script=("oom",)) as (wire, _):
        graph = three_nodes()
        graph["10"] = graph.pop("2")
        graph["3"]["inputs"]["images"] = ["10", 0]
        _, entry = await wire.run(graph)
        data = entry["status"]["messages"][-1][1]
        assert (data["node_id"], data["node_type"]) == ("3", "SaveImage")
        assert data["exception_type"] == "torch.OutOfMemoryError"
        assert data["exception_message"].split("\n")[0] == "Allocation on device "
        assert "TIPS" in data["exception_message"]
        await following_prompt_runs(wire)


async def test_a_failing_word_fails_even_a_cached_graph() -> None:
    async with simulated(script=("ok", "oom")) as (wire, _):
        graph = three_nodes(colour=5)
        await wire.run(graph)
        _, entry = await wire.run(graph)
        assert entry["status"]["messages"][-1][0] == "execution_error"


async def test_drop_cuts_the_clients_socket_and_finishes() -> None:
    async with simulated(script=("drop",)) as (wire, server):
        async with wire.socket("mine") as mine, wire.socket("other") as other:
            prompt_id = await wire.queue(three_nodes(), client_id="mine")
            await mine.until(lambda event: event["type"] == "closed")
            await other.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert "executed" not in [event["type"] for event in mine.heard]
        assert (await wire.entry(prompt_id))["status"]["completed"] is True
        assert server.books.page(prompt_id).executions == 1


async def test_hang_stops_at_the_second_node_until_it_is_cancelled() -> None:
    async with simulated(script=("hang",)) as (wire, server):
        async with wire.socket("mine") as socket:
            prompt_id = await wire.queue(three_nodes(), client_id="mine")
            await socket.until(lambda event: event["type"] == "executing" and event["data"]["node"] == "2")
            assert await socket.silent()
            assert (await wire.get(f"/api/jobs/{prompt_id}"))["status"] == "in_progress"
            await wire.ask("POST", f"/api/jobs/{prompt_id}/cancel")
            await socket.ended(prompt_id)
        assert (await wire.get(f"/api/jobs/{prompt_id}"))["status"] == "cancelled"
        assert server.books.page(prompt_id).interruptions == 1
        await following_prompt_runs(wire)


async def test_slow_takes_ten_times_as_long() -> None:
    async with simulated(script=("ok", "slow"), seconds_per_megapixel=4.0) as (wire, server):
        await wire.run(three_nodes())
        await wire.run(three_nodes())
        plain, slow = [end - start for _, start, end in server.books.log()]
        assert slow >= 3 * 64 * 48 / 1e6 * 4.0 * 10 * 1000 - 4
        assert slow > 4 * plain


def test_an_unknown_word_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown script word 'okay'; known words: ok, 500,"):
        SimulatorOptions(script=("okay",))
    assert parse_script(" ok, oom ,") == ["ok", "oom"]
