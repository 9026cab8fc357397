"""The client commands against a real `genflow up` with simulated servers, as a newcomer uses them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from tests.support.cli import Terminal
from tests.support.portraits import face_photo
from tests.support.postgres import TestServer
from tests.support.service import Service, service

SMALL = ("--width", "256", "--height", "256")
FOREVER = ("--steps", "100")
"""Ten seconds at the simulator's pace: longer than what such a test does with the job."""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "me.jpg"
    path.write_bytes(face_photo())
    return path


@asynccontextmanager
async def running_up(test_server: TestServer, folder: Path) -> AsyncIterator[Service]:
    """A `genflow up --simulate 2` on a database of its own."""
    database = test_server.create()
    try:
        async with service(database, folder) as running:
            flags = ("--simulate", "2", "--port", "0", "--health-port", "0", "--grace-s", "0")
            running.url = (await running.start("up", "up", "--json", *flags)).ready["ready"]
            yield running
    finally:
        test_server.drop(database)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(test_server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """The service of this module's tests."""
    async with running_up(test_server, tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture
def terminal(up: Service, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, up.url)


async def test_a_portrait_lands_in_its_file(terminal: Terminal, photo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    out.write_bytes(b"an older picture")
    done = await terminal.run("portrait", str(photo), "in oil", "--out", "out.png", "--seed", str(2**64 - 1), *SMALL)
    assert (done.status, done.out) == (0, "out.png\n")
    done.says("seed 18446744073709551615")
    done.says("100% succeeded")
    with Image.open(out) as picture:
        picture.load()
        assert picture.size == (256, 256)
    assert sorted(os.listdir(tmp_path)) == ["me.jpg", "out.png"], "no half-written file stays"


async def test_several_pictures_of_one_run_are_numbered(terminal: Terminal, photo: Path, tmp_path: Path) -> None:
    words = ("portrait", str(photo), "x", "--out", "a.png", "--count", "2", "--metadata", "order=7", "--json", *SMALL)
    done = await terminal.run(*words)
    assert done.status == 0, done.err
    assert done.json["saved"] == ["a-1.png", "a-2.png"]
    assert done.json["metadata"] == {"order": "7"}
    assert (tmp_path / "a-1.png").read_bytes() != (tmp_path / "a-2.png").read_bytes()
    assert not (tmp_path / "a.png").exists()


async def test_what_is_refused_names_the_value_and_touches_nothing(
    terminal: Terminal, photo: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.png"
    out.write_bytes(b"an older picture")
    before = (await terminal.run("jobs", "list")).out
    refused = await terminal.run("portrait", str(photo), "x", "--out", "out.png", "--steps", "1000")
    assert refused.status == 2
    refused.says("steps: must be from 1 to 100 [invalid_parameter]")
    as_json = await terminal.run("portrait", str(photo), "x", "--sampler", "eular", "--json")
    assert as_json.status == 2
    assert as_json.json["error"]["details"]["field"] == "sampler"
    for words, said in (
        (("portrait", "nobody.jpg", "x"), "the photo nobody.jpg can't be read: No such file or directory"),
        (("portrait", str(photo), "x", "--out", "no/where.png"), "the folder no for where.png does not exist"),
        (("portrait", str(photo), "x", "--metadata", "order"), "--metadata takes KEY=VALUE, not 'order'"),
        (("portrait", __file__, "x"), "[unsupported_image]"),
    ):
        refused = await terminal.run(*words)
        assert refused.status == 2
        refused.says(said)
    assert out.read_bytes() == b"an older picture"
    assert (await terminal.run("jobs", "list")).out == before


async def test_without_waiting_the_job_is_found_again(terminal: Terminal, photo: Path, tmp_path: Path) -> None:
    words = ("portrait", str(photo), "x", "--no-wait", "--key", "order-7", *SMALL)
    job_id = (await terminal.run(*words)).out.strip()
    again = await terminal.run(*words)
    assert again.status == 2
    again.says("[idempotency_key_reuse]")
    waited = await terminal.run("jobs", "wait", job_id, "--out", "late.png")
    assert (waited.status, waited.out) == (0, f"{job_id}  succeeded\nlate.png\n")
    assert (tmp_path / "late.png").stat().st_size > 1000
    listed = await terminal.run("jobs", "list", "--state", "succeeded")
    rows = [line.split("\t") for line in listed.out.splitlines()]
    assert [job_id, "succeeded"] in [row[:2] for row in rows]
    assert {row[1] for row in rows} == {"succeeded"}
    shown = await terminal.run("jobs", "show", job_id)
    assert shown.status == 0
    assert "prompt = x, seed = " in shown.out
    assert "\nattempts\n1\t" in shown.out
    story = (await terminal.run("jobs", "show", job_id, "--json")).json["story"]
    assert (story["takeovers"], len(story["submits"])) == (0, 1)
    missing = await terminal.run("jobs", "show", job_id.replace(job_id[:8], "0" * 8))
    assert missing.status == 1
    missing.says("[not_found]")


async def test_cancel_stops_a_job_and_leaves_an_ended_one(terminal: Terminal, photo: Path) -> None:
    job_id = (await terminal.run("portrait", str(photo), "x", "--no-wait", *FOREVER)).out.strip()
    canceled = await terminal.run("jobs", "cancel", job_id)
    assert canceled.status == 0
    waited = await terminal.run("jobs", "wait", job_id, "--json")
    assert (waited.status, waited.json["jobs"][0]["status"]) == (1, "canceled")
    done = (await terminal.run("portrait", str(photo), "x", "--json", *SMALL)).json["id"]
    late = await terminal.run("jobs", "cancel", done)
    assert (late.status, late.out) == (1, f"{done}  succeeded\n")


async def test_leaving_the_wait_leaves_the_job(terminal: Terminal, photo: Path) -> None:
    async with terminal.running("portrait", str(photo), "x", "--out", "me.png", "--steps", "40", *SMALL) as command:
        await command.said("running on")
        command.process.send_signal(signal.SIGINT)
        left = await command.end()
    assert left.status == 130
    (job_id,) = [line.split()[1].rstrip(",") for line in left.err.splitlines() if line.startswith("job ")][:1]
    left.says(f"job {job_id} goes on without this command; look at it with: genflow jobs wait {job_id} --out me.png")
    assert (await terminal.run("jobs", "wait", job_id)).status == 0


async def test_health_tells_ready_from_not_ready_from_unreachable(test_server: TestServer, tmp_path: Path) -> None:
    async with running_up(test_server, tmp_path) as up:
        terminal = Terminal(tmp_path, up.url)
        ready = await terminal.run("health")
        assert (ready.status, ready.out.splitlines()[0]) == (0, f"{up.url}  ready")
        await up.sql("drop schema genflow cascade")
        broken = await terminal.run("health", "--json")
        assert broken.status == 1
        assert broken.json["ready"] is False
        assert broken.json["checks"]["schema"] != "ok"
    gone = await terminal.run("health")
    assert gone.status == 4
    gone.says(f"no genflow answers at {up.url} (Connection refused); GENFLOW_URL names the address")
    elsewhere = await terminal.run("health", GENFLOW_URL="localhost:8190")
    assert elsewhere.status == 2
    elsewhere.says("GENFLOW_URL must be an address such as")
