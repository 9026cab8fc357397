"""The API over the queue of `bench` and a store in a temporary folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.support.api import Client, serving


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.fixture
def settings() -> Settings:
    return Settings.model_validate({"portrait": {"loras": {"oil": "style_dummy.safetensors"}}})


@pytest.fixture
async def api(bench: Bench, store: LocalStore, settings: Settings) -> AsyncIterator[Client]:
    async with serving(bench.queue, store, settings, bench.pool) as client:
        yield client
