"""genflow's guard: its rules, what it keeps, and how it stands at the door of an application like ComfyUI's."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import uuid
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from genflow.integrations import comfyui_genflow
from genflow.integrations.comfyui_genflow import Guard, mark_of
from genflow.protocol import Reply, classify_post

JOB, OTHER, ONE, TWO = (str(uuid.UUID(int=number)) for number in range(1, 5))
HEADERS = {"Server": "Python/3.12 aiohttp/3.14"}


@pytest.mark.parametrize(
    ("posts", "reasons"),
    [
        ([(JOB, ONE, 1)], [None]),
        ([(JOB, ONE, 1), (JOB, ONE, 1)], [None, "seen"]),
        ([(JOB, ONE, 1), (JOB, ONE, 2)], [None, "seen"]),
        ([(JOB, ONE, 1), (JOB, TWO, 1)], [None, None]),  # the same holder's retry, or its resubmit after a restart
        ([(JOB, ONE, 2), (JOB, TWO, 1)], [None, "stale"]),
        ([(JOB, ONE, 2), (JOB, TWO, 1), (JOB, TWO, 2)], [None, "stale", None]),  # a refusal leaves no trace
        ([(JOB, ONE, 2), (OTHER, TWO, 1)], [None, None]),
    ],
)
def test_what_is_let_in(posts: list[tuple[str, str, int]], reasons: list[str | None]) -> None:
    guard = Guard()
    assert [guard.refuses(*post) for post in posts] == reasons


def test_what_is_barred_is_let_in_no_more() -> None:
    guard = Guard()
    assert guard.bar(JOB, ONE, 2) is False
    assert guard.refuses(JOB, ONE, 2) == "seen"
    assert guard.refuses(JOB, TWO, 1) == "stale"
    assert guard.refuses(JOB, TWO, 2) is None
    assert guard.bar(JOB, TWO, 2) is True


def test_its_memory_is_bounded_and_the_oldest_goes_first() -> None:
    guard = Guard(kept=3)
    for number in range(5):
        assert guard.refuses(str(number), f"submit-{number}", 1) is None
    assert guard.known == 3
    assert guard.refuses("2", "submit-2", 1) == "seen"
    assert guard.refuses("0", "submit-0", 1) is None


def test_what_it_knows_outlives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "guard.log"
    first = Guard(file)
    first.refuses(JOB, ONE, 3)
    first.bar(OTHER, TWO, 5)
    with file.open("a") as end:
        end.write(f"{OTHER} half-a-li")  # killed in the middle of a line
    second = Guard(file)
    assert (second.known, second.durable) == (2, True)
    assert second.refuses(JOB, ONE, 3) == "seen"
    assert second.refuses(OTHER, ONE, 4) == "stale"
    assert second.refuses(OTHER, "three", 5) is None
    assert Guard(file).refuses(OTHER, "three", 5) == "seen"


def test_its_file_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "guard.log"
    guard = Guard(file, kept=10)
    for number in range(100):
        guard.refuses(str(number), f"submit-{number}", 1)
        assert len(file.read_text().splitlines()) <= 21
    again = Guard(file, kept=10)
    assert [again.refuses(str(number), f"submit-{number}", 1) for number in (90, 99)] == ["seen", "seen"]


def test_a_file_that_can_not_be_written_costs_the_restart_only(tmp_path: Path) -> None:
    guard = Guard(tmp_path / "no" / "such" / "folder" / "guard.log")
    assert guard.refuses(JOB, ONE, 1) is None
    assert guard.refuses(JOB, ONE, 1) == "seen"
    assert guard.durable is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"genflow"',
        b"[]",
        json.dumps({"prompt_id": JOB, "prompt": {"1": "genflow"}}).encode(),
        json.dumps({"prompt_id": JOB, "extra_data": {"genflow": None}}).encode(),
        json.dumps({"prompt_id": JOB, "extra_data": {"genflow": {"submit": 1, "token": 1}}}).encode(),
        json.dumps({"prompt_id": JOB, "extra_data": {"genflow": {"submit": ONE, "token": True}}}).encode(),
        json.dumps({"prompt_id": JOB, "extra_data": {"genflow": {"submit": "two words", "token": 1}}}).encode(),
        json.dumps({"extra_data": {"genflow": {"submit": ONE, "token": 1}}}).encode(),
    ],
)
def test_what_is_not_genflows_is_none_of_its_business(body: bytes) -> None:
    assert mark_of(body) is None


class Door:
    """An application as ComfyUI makes it: routes in one table, added with and without /api once extensions are in."""

    def __init__(self) -> None:
        self.app = web.Application(client_max_size=2_000)
        self.routes = web.RouteTableDef()
        self.arrived: list[str] = []
        self.queued: list[str] = []
        self.validating = asyncio.Event()
        self.validated = asyncio.Event()
        self.validated.set()
        self.routes.post("/prompt")(self.post_prompt)

    async def post_prompt(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.arrived.append(body.get("extra_data", {}).get("genflow", {}).get("submit", ""))
        self.validating.set()
        await self.validated.wait()
        self.queued.append(body["prompt_id"])
        return web.json_response({"prompt_id": body["prompt_id"], "number": 0, "node_errors": {}})

    async def serve(self) -> tuple[web.AppRunner, str]:
        api = web.RouteTableDef()
        for route in self.routes:
            assert isinstance(route, web.RouteDef)
            api.route(route.method, "/api" + route.path)(route.handler, **route.kwargs)
        self.app.add_routes(api)
        self.app.add_routes(self.routes)
        runner = web.AppRunner(self.app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def load_as_comfyui_does(monkeypatch: pytest.MonkeyPatch, door: Door, user: Path) -> ModuleType:
    """Load the folder as a custom node, into a process in which ComfyUI's own modules stand."""
    server = SimpleNamespace(PromptServer=SimpleNamespace(instance=door))
    monkeypatch.setitem(sys.modules, "server", server)
    monkeypatch.setitem(sys.modules, "folder_paths", SimpleNamespace(get_user_directory=lambda: str(user)))
    monkeypatch.setitem(sys.modules, "comfy.cli_args", SimpleNamespace(args=SimpleNamespace(port=8188)))
    spec = importlib.util.spec_from_file_location("custom_nodes_comfyui_genflow", comfyui_genflow.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def posted(submit: str, token: int, prompt_id: str = JOB) -> dict[str, Any]:
    return {"prompt_id": prompt_id, "prompt": {}, "extra_data": {"genflow": {"submit": submit, "token": token}}}


async def test_as_an_extension_it_refuses_on_both_routes_before_anything_is_queued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    door = Door()
    module = load_as_comfyui_does(monkeypatch, door, tmp_path / "user")
    assert module.NODE_CLASS_MAPPINGS == {}
    runner, url = await door.serve()
    try:
        async with aiohttp.ClientSession() as session:

            async def post(path: str, body: Any) -> tuple[int, bytes]:
                async with session.post(url + path, json=body) as reply:
                    return reply.status, await reply.read()

            assert (await post("/prompt", posted(ONE, 2)))[0] == 200
            for path in ("/prompt", "/api/prompt"):
                for body, kind, error_type in (
                    (posted(ONE, 2), Reply.SETTLED_DOUBT, "guard_seen"),
                    (posted(TWO, 1), Reply.REFUSED, "guard_stale"),
                ):
                    status, told = await post(path, body)
                    reply = classify_post(uuid.UUID(JOB), status, HEADERS, told)
                    assert (status, reply.kind, reply.error_type) == (409, kind, error_type)
            assert door.queued == [JOB]
            for _ in range(2):  # other people's, twice as they like
                assert (await post("/prompt", {"prompt_id": OTHER, "prompt": {}}))[0] == 200
            assert (await post("/prompt", posted("x", 3) | {"prompt": "x" * 3_000}))[0] == 413
            for prefix in ("", "/api"):
                async with session.get(f"{url}{prefix}/genflow/guard") as about:
                    assert await about.json() == {"guard": 1, "durable": True, "known": 1}
            assert await post("/api/genflow/guard", {"prompt_id": JOB, "submit": TWO, "token": 2}) == (
                200,
                b'{"seen": false}',
            )
            assert (await post("/genflow/guard", {"prompt_id": JOB}))[0] == 400
            assert (await post("/prompt", posted(TWO, 2)))[0] == 409
            assert (tmp_path / "user" / "genflow_guard_8188.log").read_text().count("\n") == 2
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("second", ["its twin", "the next holder's", "a bar"])
async def test_nothing_comes_between_check_and_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: str
) -> None:
    """While a POST is being validated, whatever else comes for its prompt id waits: then the answer is true."""
    door = Door()
    load_as_comfyui_does(monkeypatch, door, tmp_path)
    door.validated.clear()
    runner, url = await door.serve()
    path, body = {
        "its twin": ("/prompt", posted(ONE, 1)),
        "the next holder's": ("/prompt", posted(TWO, 2)),
        "a bar": ("/genflow/guard", {"prompt_id": JOB, "submit": ONE, "token": 2}),
    }[second]
    try:
        async with aiohttp.ClientSession() as session:

            async def post(path: str, body: Any) -> int:
                async with session.post(url + path, json=body) as reply:
                    await reply.read()
                    return reply.status

            first = asyncio.create_task(post("/prompt", posted(ONE, 1)))
            await door.validating.wait()
            late = asyncio.create_task(post(path, body))
            other = await asyncio.wait_for(post("/genflow/guard", {"prompt_id": OTHER, "submit": "x", "token": 1}), 5)
            assert other == 200, "another job's does not wait"
            assert (late.done(), door.arrived) == (False, [ONE])
            door.validated.set()
            assert await first == 200
            assert await late == (409 if second == "its twin" else 200)
            assert door.arrived == ([ONE, TWO] if second == "the next holder's" else [ONE])
    finally:
        await runner.cleanup()


def test_any_other_409_is_no_word_of_the_guard() -> None:
    for body in (b"", b"{}", b'{"error": "x"}', b'{"error": {"type": "conflict"}}'):
        assert classify_post(uuid.UUID(JOB), 409, HEADERS, body).kind is Reply.OPEN_DOUBT
