"""POST /prompt: what is taken, what is refused, and in which words."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import pytest

from tests.support.comfyui import Wire, long_graph, recorded, three_nodes

CORE = frozenset(
    {"EmptyImage", "ImageInvert", "SaveImage", "ImageToMask", "MaskToImage", "LoadImage", "NoSuchNode", None}
)


def without(value: Any, *keys: str) -> Any:
    """A body without some keys, wherever they stand."""
    if isinstance(value, dict):
        return {key: without(inner, *keys) for key, inner in value.items() if key not in keys}
    return [without(inner, *keys) for inner in value] if isinstance(value, list) else value


def core_only(row: dict[str, Any]) -> bool:
    return all(node.get("class_type") in CORE for node in row["prompt"].values())


@pytest.mark.parametrize("row", [row for row in recorded("validation") if core_only(row)], ids=lambda row: row["case"])
async def test_validation_speaks_as_recorded(wire: Wire, row: dict[str, Any]) -> None:
    """F1.5 to F1.8."""
    status, body = await wire.post(row["prompt"])
    if "body" in row:
        assert (status, without(body, "tooltip", "traceback")) == (400, row["body"])
    else:
        assert (status, without(body["node_errors"], "tooltip", "traceback")) == (200, row["node_errors"])


async def test_only_the_good_outputs_of_a_partly_valid_graph_run(wire: Wire) -> None:
    """F1.5."""
    graph = three_nodes() | {
        "9": {"class_type": "SaveImage", "inputs": {"images": ["1", 9], "filename_prefix": "wire/bad"}}
    }
    _, entry = await wire.run(graph)
    assert entry["prompt"][4] == ["3"]
    assert list(entry["outputs"]) == ["3"]


@pytest.mark.parametrize("row", recorded("prompt_ids"), ids=lambda row: repr(row["prompt_id"])[:20])
async def test_prompt_ids_are_taken_as_recorded(wire: Wire, row: dict[str, Any]) -> None:
    """F1.2."""
    body: dict[str, Any] = {"prompt": three_nodes()}
    if row["has"]:
        body["prompt_id"] = row["prompt_id"]
    status, reply = await wire.ask("POST", "/prompt", json=body)
    assert status == row["status"]
    assert reply.get("error") == row["error"]
    if status == 200:
        assert reply["prompt_id"] == (row["prompt_id"] or str(uuid.UUID(reply["prompt_id"])))


@pytest.mark.parametrize("row", recorded("bad_bodies"), ids=lambda row: f"{row['path']} {row['raw'][:30]}")
async def test_odd_bodies_are_answered_as_recorded(wire: Wire, row: dict[str, Any]) -> None:
    """F1.10."""
    status, body = await wire.ask("POST", row["path"], data=row["raw"].encode())
    assert status == row["status"]
    if row["body"] is not None:
        assert body == row["body"]


async def test_extra_data_of_a_wrong_shape_is_a_500(wire: Wire) -> None:
    """F1.10."""
    for raw in ("null", "[]"):
        status, _ = await wire.post(three_nodes(), extra_data=json.loads(raw))
        assert status == 500


async def test_one_id_posted_twice_runs_twice_and_keeps_the_first_place(wire: Wire) -> None:
    """F1.3."""
    prompt_id = str(uuid.uuid4())
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        for colour in (0x112233, 0x445566):
            status, _ = await wire.post(three_nodes(colour=colour), prompt_id, client_id=client_id)
            assert status == 200
            await socket.ended(prompt_id)
            if colour == 0x112233:
                later, _ = await wire.run(three_nodes())
    assert (await wire.entry(prompt_id))["prompt"][2]["1"]["inputs"]["color"] == 0x445566
    assert list(await wire.get("/history?max_items=1")) == [later]


async def test_a_500_may_have_queued_the_prompt(wire: Wire) -> None:
    """F1.4."""
    blocker = await wire.queue(long_graph(), client_id="none-listens")
    prompt_id = str(uuid.uuid4())
    first, _ = await wire.post(three_nodes(), prompt_id, number=5)
    second, body = await wire.post(three_nodes(), prompt_id, number=5)
    queue = await wire.get("/queue")
    assert (first, second) == (200, 500)
    assert body == "500 Internal Server Error\n\nServer got itself in trouble"
    assert [item[1] for item in queue["queue_pending"]] == [prompt_id, prompt_id]
    await wire.ask("POST", "/queue", json={"clear": True})
    await wire.ask("POST", f"/api/jobs/{blocker}/cancel")


async def test_lower_numbers_run_first_and_front_overtakes(wire: Wire) -> None:
    """F1.11."""
    blocker = await wire.queue(long_graph())
    _, plain = await wire.post(three_nodes())
    _, front = await wire.post(three_nodes(), front=True)
    _, text = await wire.post(three_nodes(), number="3.5")
    assert front["number"] == -(plain["number"] + 1)
    assert text["number"] == 3.5
    pending = (await wire.get("/queue"))["queue_pending"]
    assert sorted(item[0] for item in pending)[0] == front["number"]
    await wire.ask("POST", "/queue", json={"clear": True})
    await wire.ask("POST", f"/api/jobs/{blocker}/cancel")


async def test_a_list_of_targets_runs_only_those_outputs(wire: Wire) -> None:
    """F1.12."""
    graph = three_nodes() | {
        "4": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "wire/four"}}
    }
    _, entry = await wire.run(graph, partial_execution_targets=["4"])
    assert list(entry["outputs"]) == ["4"]
    status, body = await wire.post(graph, partial_execution_targets=["77"])
    assert (status, body["error"]["type"]) == (400, "prompt_no_outputs")


async def test_a_foreign_page_is_refused(wire: Wire) -> None:
    """F1.16."""
    body = json.dumps({"prompt": three_nodes()})
    assert await wire.ask("POST", "/prompt", data=body, headers={"Origin": "http://evil.example"}) == (403, b"")
    assert await wire.ask("GET", "/queue", headers={"Sec-Fetch-Site": "cross-site"}) == (403, b"")


async def test_unknown_paths_and_methods(wire: Wire) -> None:
    """F1.17."""
    assert (await wire.ask("GET", "/nope"))[0] == 404
    assert (await wire.ask("GET", "/jobs"))[0] == 404
    assert await wire.ask("DELETE", "/queue") == (405, "405: Method Not Allowed")
    assert (await wire.ask("GET", "/history?max_items=x"))[0] == 500


async def test_a_body_over_the_limit_is_413(wire: Wire) -> None:
    """F1.10."""
    limit = (await wire.get("/features"))["max_upload_size"]
    status, _ = await wire.ask("POST", "/prompt", data=io.BytesIO(bytes(limit + 1)))
    assert status == 413
    assert await wire.get("/prompt") == {"exec_info": {"queue_remaining": 0}}


async def test_extra_data_is_kept_in_the_queue_and_in_the_history_without_the_secrets(wire: Wire) -> None:
    """F1.13."""
    mark = {"submit": str(uuid.uuid4()), "token": 3}
    blocker = await wire.queue(long_graph())
    extra = {"genflow": mark, "api_key_comfy_org": "secret", "auth_token_comfy_org": "secret"}
    pending = await wire.queue(three_nodes(), extra_data=extra, client_id="one")
    (item,) = (await wire.get("/queue"))["queue_pending"]
    assert (item[1], item[4], set(item[3])) == (pending, ["3"], {"genflow", "client_id", "create_time"})
    assert item[3]["genflow"] == mark
    await wire.ask("POST", f"/api/jobs/{blocker}/cancel")
    assert (await wire.polled(pending))["prompt"][3] == item[3]


async def test_numbers_may_be_texts_and_have_ranges(wire: Wire) -> None:
    """F1.9."""
    graph = three_nodes()
    graph["1"]["inputs"] |= {"width": "32", "height": 67}
    _, entry = await wire.run(graph)
    assert entry["prompt"][2]["1"]["inputs"]["width"] == 32
    wrong = {-1: "value_smaller_than_min", 0x1000000: "value_bigger_than_max", "x": "invalid_input_type"}
    for colour, kind in wrong.items():
        graph["1"]["inputs"]["color"] = colour
        status, body = await wire.post(graph)
        assert (status, [error["type"] for error in body["node_errors"]["1"]["errors"]]) == (400, [kind])
