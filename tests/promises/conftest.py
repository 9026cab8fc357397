"""Every promise is kept by real processes: API and workers apart, one Postgres, simulated servers, a lease of 3 s."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.forks import ForkServer
from tests.support.rabbit import programs
from tests.support.service import Service, service

collect_ignore_glob = [] if programs() else ["*rabbitmq*"]
"""`make test` brings RabbitMQ, and says so in its last line where it can't."""


@pytest.fixture
async def genflow(database: str, tmp_path: Path, forks: ForkServer) -> AsyncIterator[Service]:
    """A service of this test's own."""
    async with service(database, tmp_path, forks) as running:
        yield running
        print(running.last_words(60))  # pytest shows it where the test failed
