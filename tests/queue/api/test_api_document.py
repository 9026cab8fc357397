"""The OpenAPI document: every route stands in it, and nothing else; tools can read it."""

from __future__ import annotations

from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator

from genflow.api import create_app
from genflow.api.document import ROUTES
from genflow.api.schemas import SCHEMAS
from genflow.settings import Settings
from genflow.storage.local import LocalStore
from tests.queue.conftest import Bench
from tests.support.api import Client


async def test_it_holds_every_route_and_no_other(
    bench: Bench, store: LocalStore, settings: Settings, api: Client
) -> None:
    app = create_app(bench.queue, store, settings, bench.pool)
    routes = {
        f"{method} {route.path.replace(':path', '')}"
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert routes == set(ROUTES)
    answer = await api.get("/openapi.json")
    assert {
        f"{method.upper()} {path}" for path, methods in answer.json["paths"].items() for method in methods
    } == routes


def test_its_schemas_are_schemas() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
