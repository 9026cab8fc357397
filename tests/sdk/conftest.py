"""A running genflow of two simulated servers, which clients reach as their users would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sdk.clients import TYPESCRIPT, is_here
from tests.support.forks import ForkServer
from tests.support.service import Service, service

collect_ignore = [
    *([] if is_here("php") and is_here("chromium") else ["test_client_examples.py"]),
    *([] if (TYPESCRIPT / "node_modules").is_dir() else ["test_typescript_sdk.py"]),
]
"""`make test` brings what they need, and says so in its last line where it can't."""


@pytest.fixture
async def genflow(database: str, tmp_path: Path, forks: ForkServer) -> AsyncIterator[Service]:
    """A fleet with its API."""
    async with service(database, tmp_path, forks) as running:
        await running.simulate_together(2)
        await running.api()
        await running.worker()
        yield running
        print(running.last_words(60))  # pytest shows it where the test failed
