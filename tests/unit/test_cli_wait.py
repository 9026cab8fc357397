"""Waiting through what goes wrong: an API that is away, a worker that dies, jobs that fail, a lost reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import web

from tests.support.cli import Terminal
from tests.support.service import Service, service, small_workflow


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
    words = ("portrait", str(Path(__file__).parents[2] / "examples" / "astronaut.jpg"), "x", "--steps", "24")
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


async def test_a_lost_reply_to_a_portrait_makes_no_second_job(parts: Service, tmp_path: Path) -> None:
    await parts.api()
    cut = asyncio.Event()

    async def passing(request: web.Request) -> web.StreamResponse:
        """Hand a request to the API; of the first portrait's answer, nothing reaches the client."""
        headers = {
            name: request.headers[name] for name in ("Content-Type", "Idempotency-Key") if name in request.headers
        }
        url = f"{parts.url}{request.path_qs}"
        async with parts.http.request(request.method, url, data=await request.read(), headers=headers) as answer:
            body = await answer.read()
            if request.method == "POST" and not cut.is_set():
                cut.set()
                assert request.transport is not None
                request.transport.abort()
            return web.Response(body=body, status=answer.status, content_type="application/json")

    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", passing)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        photo = str(Path(__file__).parents[2] / "examples" / "astronaut.jpg")
        sent = await Terminal(tmp_path, f"http://{host}:{port}").run("portrait", photo, "x", "--no-wait")
    finally:
        await runner.cleanup()
    assert cut.is_set()
    assert sent.status == 0, sent.err
    listed = await Terminal(tmp_path, parts.url).run("jobs", "list")
    assert [line.split("\t")[0] for line in listed.out.splitlines()] == [sent.out.strip()]


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

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", moved)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        answer = await Terminal(tmp_path, f"http://{host}:{port}").run("health", GENFLOW_API_KEY="secret-key")
    finally:
        await runner.cleanup()
    assert seen == ["Bearer secret-key"], "a redirect is not followed"
    assert answer.status == 4
