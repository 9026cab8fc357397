"""A failed run is told with node, class, type and message, and what its finished nodes made is kept, marked as partial;
out of memory frees the server and gets one more try, and the next job succeeds.
"""

from __future__ import annotations

from tests.support.service import Service, small_workflow


async def test_an_error_keeps_what_the_finished_nodes_made(genflow: Service) -> None:
    await genflow.simulate()
    await genflow.api(scrub=True)
    await genflow.worker()
    graph = small_workflow(prefix="made")
    graph["7"] = {"class_type": "ImageToMask", "inputs": {"image": ["2", 0], "channel": "alpha"}}
    graph["8"] = {"class_type": "MaskToImage", "inputs": {"mask": ["7", 0]}}
    graph["9"] = {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "never"}}
    job = await genflow.submit(graph)
    ended = await genflow.ended(job)
    assert (ended["status"], ended["outputs"]) == ("failed", []), "a failure has no result"
    story = await genflow.story(job)
    [attempt] = story["attempts"]
    assert (attempt["node_id"], attempt["node_class"], attempt["code"]) == ("7", "ImageToMask", "node_execution_error")
    assert "IndexError: index 3 is out of bounds" in attempt["reason"]
    [partial] = story["partial_outputs"]
    assert (partial["node_id"], partial["partial"], partial["name"].startswith("made_")) == ("3", True, True)
    async with genflow.http.get(f"{genflow.url}/api/v2/assets/{partial['id']}/content") as reply:
        assert (reply.status, len(await reply.read())) == (200, partial["size_bytes"])


async def test_out_of_memory_frees_the_server_and_gets_one_more_try(genflow: Service) -> None:
    [sim] = await genflow.simulate(script="oom,ok,oom,oom,ok")
    await genflow.api(jitter=False, base_delay_ms=100)
    await genflow.worker()
    first = await genflow.submit()
    await genflow.succeeded(first)
    assert await genflow.book(first) == {"posts": 2, "executions": 2, "interruptions": 0}
    await sim.wait("freed", count=1)
    twice = await genflow.submit(small_workflow(color=2))
    assert (await genflow.ended(twice))["error"]["code"] == "out_of_memory"
    assert [attempt["code"] for attempt in (await genflow.story(twice))["attempts"]] == ["out_of_memory"] * 2
    await sim.wait("freed", count=3)
    await genflow.succeeded(await genflow.submit(small_workflow(color=3)))
    _, letter = await genflow.request("GET", f"/genflow/v1/dead-letters/{twice}")
    assert letter["reason"].startswith("gave up after 2 attempts, last: execution_error, node 2 (ImageInvert)"), letter
