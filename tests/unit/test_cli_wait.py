"""Waiting through what goes wrong: an API that is away, a worker that dies, jobs that fail, a lost reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import web
from blake3 import blake3

from tests.support.cli import Terminal
from tests.support.repository import ROOT
from tests.support.service import Service, service, small_workflow

PHOTO = str(ROOT / "examples" / "astronaut.jpg")


@pytest.fixture
async def parts(database: str, tmp_path: Path) -> AsyncIterator[Service]:
    """A service without any process yet."""
    async with service(database, tmp_path) as running:
        yield running


async def test_a_wait_outlives_a_short_outage_of_the_api(parts: Service, tmp_path: Path) -> None:
    api = await parts.api()
    job_id = await parts.submit()
    async with Terminal(tmp_path, parts.url).running("jobs", "wait", str(job_id)) as command:
        await command.said("queued, place 1")
        await api.kill()
        await command.said("the API is away, waiting 30 s more")
        await parts.api(port=int(parts.url.rpartition(":")[2]))
        await parts.request("POST", f"/api/v2/jobs/{job_id}/cancel")
        ended = await command.end()
    assert (ended.status, ended.out) == (1, f"{job_id}  canceled\n")
    ended.says("canceled")


async def test_a_dead_worker_shows_as_a_lease_that_runs_out(parts: Service, tmp_path: Path) -> None:
    await parts.simulate(2, seconds_per_step=0.5)
    await parts.api()
    first = await parts.worker("first")
    words = ("portrait", PHOTO, "x", "--steps", "24")
    async with Terminal(tmp_path, parts.url).running(*words, "--out", "me.png") as command:
        await command.said("KSampler")
        await first.kill()
        await command.said("waiting: lease of a dead worker runs out in")
        await parts.worker("second")
        ended = await command.end()
    assert ended.status == 0, ended.err
    (line,) = [line for line in ended.err.splitlines() if line.startswith("job ")]
    job_id = line.split()[1].rstrip(",")
    assert (await parts.book(UUID(job_id)))["executions"] == 1
    assert (tmp_path / "me.png").stat().st_size > 1000


async def test_dead_letters_among_jobs_end_with_a_status_of_their_own(parts: Service, tmp_path: Path) -> None:
    await parts.simulate(1, script="invalid,ok")
    await parts.api()
    await parts.worker()
    terminal = Terminal(tmp_path, parts.url)
    bad = str(await parts.submit())
    one = await terminal.run("jobs", "wait", bad)
    assert one.status == 1
    assert f"{bad}  failed" in one.out
    assert "[invalid_workflow]" in one.out
    good = str(await parts.submit(small_workflow(color=7)))
    both = await terminal.run("jobs", "wait", good, bad, "--json")
    assert both.status == 3
    assert [job["status"] for job in both.json["jobs"]] == ["succeeded", "failed"]


@asynccontextmanager
async def between(
    parts: Service, answer: Callable[[web.Request, bytes, int], Awaitable[web.StreamResponse]]
) -> AsyncIterator[str]:
    """An address that hands requests on to the API; `answer` says what comes of each answer's body and status."""

    async def pass_on(request: web.Request) -> web.StreamResponse:
        wanted = ("Content-Type", "Idempotency-Key")
        headers = {name: request.headers[name] for name in wanted if name in request.headers}
        url, body = f"{parts.url}{request.path_qs}", await request.read()
        async with parts.http.request(request.method, url, data=body, headers=headers) as reply:
            return await answer(request, await reply.read(), reply.status)

    async with listening(pass_on) as url:
        yield url


@asynccontextmanager
async def listening(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The address of a server that answers everything with `handler`."""
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def cut(request: web.Request) -> None:
    """Break the client's connection."""
    assert request.transport is not None
    request.transport.abort()


async def test_a_lost_reply_to_a_portrait_makes_no_second_job(parts: Service, tmp_path: Path) -> None:
    await parts.api()
    lost = asyncio.Event()

    async def lose_the_first(request: web.Request, body: bytes, status: int) -> web.StreamResponse:
        if request.method == "POST" and not lost.is_set():
            lost.set()
            cut(request)
        return web.Response(body=body, status=status, content_type="application/json")

    async with between(parts, lose_the_first) as url:
        sent = await Terminal(tmp_path, url).run("portrait", PHOTO, "x", "--no-wait")
    assert lost.is_set()
    assert sent.status == 0, sent.err
    listed = await Terminal(tmp_path, parts.url).run("jobs", "list")
    assert [line.split("\t")[0] for line in listed.out.splitlines()] == [sent.out.strip()]


async def test_a_download_that_breaks_off_is_begun_anew_beside_the_old_file(parts: Service, tmp_path: Path) -> None:
    await parts.simulate(1)
    await parts.api()
    await parts.worker()
    job_id = await parts.submit()
    outputs = (await parts.succeeded(job_id))["outputs"]
    out = tmp_path / "out.png"
    out.write_bytes(b"an older picture")
    there: list[bytes] = []

    async def cut_the_first(request: web.Request, body: bytes, status: int) -> web.StreamResponse:
        if not request.path.endswith("/content"):
            return web.Response(body=body, status=status, content_type="application/json")
        there.append(out.read_bytes())
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        if len(there) == 1:
            await response.write(body[: len(body) // 2])
            cut(request)
        else:
            await response.write(body)
        return response

    async with between(parts, cut_the_first) as url:
        waited = await Terminal(tmp_path, url).run("jobs", "wait", str(job_id), "--out", "out.png")
    assert waited.status == 0, waited.err
    assert there == [b"an older picture"] * 2
    assert f"blake3:{blake3(out.read_bytes()).hexdigest()}" == outputs[0]["hash"]


async def test_something_else_at_the_address_is_named_so(parts: Service, tmp_path: Path) -> None:
    (simulator,) = await parts.simulate(1)
    answer = await Terminal(tmp_path, simulator.url).run("health")
    assert answer.status == 4
    answer.says(f"what answers at {simulator.url} is no genflow: 404 Not Found")


async def test_the_key_goes_with_every_request_and_to_no_other_address(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def moved(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with listening(moved) as url:
        answer = await Terminal(tmp_path, url).run("health", GENFLOW_API_KEY="secret-key")
    assert seen == ["Bearer secret-key"], "a redirect is not followed"
    assert answer.status == 4
