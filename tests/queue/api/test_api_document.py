"""The OpenAPI document: every route stands in it, and nothing else; tools can read it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from jsonschema import Draft202012Validator

from genflow.accounts import Accounts
from genflow.api import create_app
from genflow.api.document import ROUTES
from genflow.api.schemas import SCHEMAS
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.support.api import Client


def operations(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


async def test_it_holds_every_route_and_no_other(
    bench: Bench, store: LocalStore, settings: Settings, api: Client
) -> None:
    accounts = Accounts(bench.writer)
    app = create_app(bench.queue, store, settings, bench.pool, link_secret=b"", accounts=accounts)
    assert operations(FastAPI.openapi(app)) == set(ROUTES), "what FastAPI itself finds in the application"
    assert operations((await api.get("/openapi.json")).json) == set(ROUTES)


def test_its_schemas_are_schemas() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
