"""A process under injection sees the clock jump and the disk fill up, through the calls that genflow makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.inject import Page
from tests.support.repository import ROOT

# Its own process: the calls are replaced for good.
_PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import structlog
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from chaos.inject import Page, inject
from genflow.errors import GenflowError
from genflow.protocol import boottime
from genflow.storage.local import LocalStore

page, store = Page(Path(sys.argv[1])), LocalStore(Path(sys.argv[2]))
inject(page)

async def bytes_of():
    yield b"a picture"

def put():
    try:
        return asyncio.run(store.put(bytes_of())).size
    except GenflowError as error:
        return error.code


for line in sys.stdin:
    print(json.dumps([boottime(), put()]), flush=True)
"""


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path / "page")


def test_the_clock_jumps_and_the_disk_fills_up_when_told(tmp_path: Path, page: Page) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "page"), str(tmp_path / "store")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def look() -> tuple[float, object]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            at, put = json.loads(process.stdout.readline())
            return at, put

        before, put = look()
        assert put == len(b"a picture")
        page.jump(1_000)
        page.fill(True)
        after, put = look()
        assert put == "storage_unavailable"
        assert 1_000 <= after - before < 1_100
        page.fill(False)
        assert look()[1] == len(b"a picture")
    assert not list((tmp_path / "store" / "blobs" / "incoming").iterdir()), "a full disk leaves nothing behind"
