"""A prompt from its POST to its end: events, history and job as recorded."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.support.comfyui import Wire, long_graph, recorded, three_nodes, told


def renamed(value: Any, old: str, new: str) -> Any:
    """A recording with one text put in another's place."""
    return json.loads(json.dumps(value).replace(old, new))


async def test_a_success_is_told_as_recorded(wire: Wire) -> None:
    """F2.1 to F2.3, F3.1 and F3.3."""
    rows = recorded("success")
    request, reply = rows[0]["request"], rows[0]["reply"]
    client_id, prefix = str(uuid.uuid4()), f"wire/{uuid.uuid4().hex}"
    graph = three_nodes(prefix)
    async with wire.socket(client_id) as mine, wire.socket(str(uuid.uuid4())) as other:
        prompt_id = await wire.queue(graph, client_id=client_id, extra_data=request["extra_data"])
        heard = await mine.ended(prompt_id)
        _, number = (await wire.entry(prompt_id))["prompt"][1], (await wire.entry(prompt_id))["prompt"][0]
        name = prefix.split("/")[1]
        events = [row["event"] for row in rows if "event" in row]
        expected = renamed(renamed(events, reply["prompt_id"], prompt_id), "ok_00001_", f"{name}_00001_")
        expected = renamed(expected, '"subfolder": "rec"', '"subfolder": "wire"')
        assert told(heard) == told(expected)
        statuses = [event["data"] for event in told(heard, statuses=True) if event["type"] == "status"]
        assert statuses == [event["data"] for event in events if event["type"] == "status"]
        # Another client hears of the queue only.
        await other.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        assert {event["type"] for event in other.heard} == {"status"}
    entry = await wire.entry(prompt_id)
    old = next(row["history"] for row in rows if "history" in row)[reply["prompt_id"]]
    assert list(entry) == list(old)
    assert entry["prompt"][2:3] == [graph]
    assert entry["prompt"][4] == ["3"]
    assert entry["prompt"][3]["my_key"] == "kept"
    assert set(entry["prompt"][3]) == set(old["prompt"][3])
    assert [message[0] for message in entry["status"]["messages"]] == [
        message[0] for message in old["status"]["messages"]
    ]
    assert entry["meta"] == old["meta"]
    job = await wire.get(f"/api/jobs/{prompt_id}")
    old_job = next(row["job"] for row in rows if "job" in row)
    assert list(job) == list(old_job)
    assert (job["status"], job["priority"], job["workflow_id"]) == ("completed", number, "wf-1")
    assert job["preview_output"] == {
        "filename": f"{name}_00001_.png", "subfolder": "wire", "type": "output", "nodeId": "3", "mediaType": "images",
    }  # fmt: skip


async def test_a_second_run_is_answered_from_the_cache_with_the_same_file(wire: Wire) -> None:
    """F2.4 and F5.1."""
    graph = three_nodes(f"wire/{uuid.uuid4().hex}")
    _, first = await wire.run(graph)
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        prompt_id = await wire.queue(graph, client_id=client_id)
        heard = told(await socket.ended(prompt_id))
    assert [event["type"] for event in heard] == [
        event["type"] for event in told([row["event"] for row in recorded("cached")])
    ]
    cached = next(event for event in heard if event["type"] == "execution_cached")
    assert cached["data"]["nodes"] == ["1", "2", "3"]
    assert (await wire.entry(prompt_id))["outputs"] == first["outputs"]


async def test_an_unknown_extra_input_makes_a_saved_file_unique(wire: Wire) -> None:
    """F5.2."""
    graph = three_nodes(f"wire/{uuid.uuid4().hex}")
    _, first = await wire.run(graph)
    graph["3"]["inputs"]["_nonce"] = "another"
    _, second = await wire.run(graph)
    assert second["outputs"] != first["outputs"]
    assert second["status"]["messages"][1][1]["nodes"] == ["1", "2"]


async def test_two_equal_outputs_in_one_prompt_report_one_file(wire: Wire) -> None:
    """F5.3."""
    graph = three_nodes(f"wire/{uuid.uuid4().hex}")
    graph["a-b:c"] = json.loads(json.dumps(graph["3"]))
    _, entry = await wire.run(graph)
    assert entry["outputs"]["3"] == entry["outputs"]["a-b:c"]


async def test_a_failing_node_is_told_as_recorded(wire: Wire) -> None:
    """F3.6."""
    rows = recorded("error")
    client_id = str(uuid.uuid4())
    graph = json.loads(json.dumps(rows[0]["prompt"]))
    graph["1"]["inputs"]["color"] = uuid.uuid4().int % 0xFFFFFF
    async with wire.socket(client_id) as socket:
        prompt_id = await wire.queue(graph, client_id=client_id)
        heard = told(await socket.ended(prompt_id))
    events = told([row["event"] for row in rows if "event" in row])
    old_id = next(event["data"]["prompt_id"] for event in events if event["type"] == "execution_start")
    for event in heard:
        if event["type"] == "execution_error":
            assert isinstance(event["data"].pop("traceback"), list)
            assert set(event["data"].pop("current_inputs")) == {"image", "channel"}
            assert set(event["data"].pop("current_outputs")) == {"1", "2", "3", "4"}
    assert heard == renamed(events, old_id, prompt_id)
    entry = await wire.entry(prompt_id)
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    job = await wire.get(f"/api/jobs/{prompt_id}")
    assert (job["status"], job["execution_error"]["exception_type"]) == ("failed", "IndexError")


async def test_a_blur_as_wide_as_the_picture_fails_when_it_runs(wire: Wire) -> None:
    graph = three_nodes()
    graph["1"]["inputs"] |= {"width": 20, "height": 20}
    graph["2"] = {"class_type": "ImageBlur", "inputs": {"image": ["1", 0], "blur_radius": 20, "sigma": 1.0}}
    _, entry = await wire.run(graph)
    event, data = entry["status"]["messages"][-1]
    assert (event, data["node_id"], data["exception_type"]) == ("execution_error", "2", "RuntimeError")
    assert "Padding size should be less than the corresponding input dimension" in data["exception_message"]


async def test_more_pixels_than_memory_is_an_error_of_the_node_and_the_server_goes_on(wire: Wire) -> None:
    """F3.6."""
    graph = three_nodes()
    graph["1"]["inputs"] |= {"width": 16384, "height": 16384, "batch_size": 4096}
    _, entry = await wire.run(graph)
    event, data = entry["status"]["messages"][-1]
    assert (event, data["node_id"]) == ("execution_error", "1")
    _, entry = await wire.run(three_nodes())
    assert entry["status"]["completed"] is True


async def test_a_prefix_outside_the_output_folder_fails_when_it_runs(wire: Wire) -> None:
    """F6.2."""
    _, entry = await wire.run(three_nodes("../../evil"))
    event, data = entry["status"]["messages"][-1]
    assert (event, data["node_id"]) == ("execution_error", "3")
    assert data["exception_message"].startswith("**** ERROR: Saving image outside the output folder is not allowed.")
    assert entry["outputs"] == {}


async def test_without_a_client_id_progress_is_broadcast_and_the_rest_is_not(wire: Wire) -> None:
    """F2.5."""
    async with wire.socket(str(uuid.uuid4())) as socket:
        prompt_id = await wire.queue(three_nodes())
        await socket.until(lambda event: event["data"] == {"status": {"exec_info": {"queue_remaining": 0}}})
        heard = {event["type"] for event in socket.heard}
    assert heard == {"status", "progress_state"}
    assert (await wire.entry(prompt_id))["status"]["completed"] is True


async def test_an_interruption_is_told_and_kept_as_recorded(wire: Wire) -> None:
    """F3.4."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        prompt_id = await wire.queue(long_graph(), client_id=client_id)
        await socket.until(lambda event: event["type"] == "executing" and event["data"]["node"] == "2")
        assert await wire.ask("POST", "/interrupt", json={"prompt_id": str(uuid.uuid4())}) == (200, b"")
        assert await wire.ask("POST", "/interrupt", json={"prompt_id": prompt_id}) == (200, b"")
        heard = await socket.ended(prompt_id)
    ending = [event["type"] for event in heard if event["type"] in ("execution_interrupted", "status", "executing")]
    assert ending[-3:] == ["execution_interrupted", "status", "executing"]
    entry = await wire.entry(prompt_id)
    old = recorded("interrupted")[0]
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    event, data = entry["status"]["messages"][-1]
    assert event == old["status"]["messages"][-1][0]
    assert list(data) == list(old["status"]["messages"][-1][1])
    assert (entry["outputs"], entry["meta"]) == ({}, {})
    job = await wire.get(f"/api/jobs/{prompt_id}")
    assert (job["status"], list(job)) == (old["job_status"], old["job_keys"])


async def test_numbers_arrive_exactly_as_sent(wire: Wire) -> None:
    """F1.9."""
    # Unknown inputs are kept as they came, so the history shows what the server understood.
    graph = three_nodes()
    graph["1"]["inputs"] |= {"_seed": 18446744073709551615, "_cfg": 6.5}
    _, entry = await wire.run(graph)
    kept = entry["prompt"][2]["1"]["inputs"]
    assert (kept["_seed"], kept["_cfg"]) == (18446744073709551615, 6.5)


async def test_a_failed_prompt_keeps_the_outputs_of_the_nodes_that_had_finished(wire: Wire) -> None:
    """F3.5."""
    graph = three_nodes(f"wire/{uuid.uuid4().hex}")
    graph["4"] = {"class_type": "ImageToMask", "inputs": {"image": ["2", 0], "channel": "alpha"}}
    graph["5"] = {"class_type": "MaskToImage", "inputs": {"mask": ["4", 0]}}
    graph["6"] = {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "wire/never"}}
    prompt_id, entry = await wire.run(graph)
    event, data = entry["status"]["messages"][-1]
    assert (event, data["node_id"], data["node_type"]) == ("execution_error", "4", "ImageToMask")
    assert list(entry["outputs"]) == ["3"]
    assert (await wire.ask("GET", "/view", params=entry["outputs"]["3"]["images"][0]))[0] == 200
    job = await wire.get(f"/api/jobs/{prompt_id}")
    assert (job["status"], job["outputs"]) == ("failed", entry["outputs"])


async def test_a_cached_run_reports_a_file_that_is_gone(wire: Wire) -> None:
    """F5.2."""
    # Over HTTP a file is taken off by emptying it; the run neither sees that nor writes it again.
    mark = uuid.uuid4().hex
    graph = three_nodes(f"{mark}/a")
    _, first = await wire.run(graph)
    image = first["outputs"]["3"]["images"][0]
    await wire.upload(b"", image["filename"], subfolder=mark, type="output", overwrite="1")
    _, second = await wire.run(graph)
    assert (second["status"]["completed"], second["outputs"]) == (True, first["outputs"])
    assert await wire.ask("GET", "/view", params=image) == (200, b"")


async def test_prompts_run_one_after_another_in_the_order_of_their_posts(wire: Wire) -> None:
    """F1.11."""
    client_id = str(uuid.uuid4())
    async with wire.socket(client_id) as socket:
        ids = [await wire.queue(three_nodes(), client_id=client_id) for _ in range(3)]
        heard = await socket.ended(ids[-1])
    told = [event["data"].get("prompt_id") for event in heard if event["type"] != "status"]
    assert list(dict.fromkeys(told)) == ids
    assert told == sorted(told, key=ids.index), "events of one run never stand between those of another"
    # History: oldest first. Jobs: newest first.
    assert list(await wire.get("/history?max_items=3")) == ids
    page = await wire.get("/api/jobs?limit=3")
    assert [job["id"] for job in page["jobs"]] == ids[::-1]
    assert set(page["pagination"]) == {"offset", "limit", "total", "has_more"}
