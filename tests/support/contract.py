"""Answers held against the published schemas of the Comfy API v2 (comfy_api_v2.yaml)."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import yaml

FORMATS = jsonschema.FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _has_a_zone(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@FORMATS.checks("uri")
def _is_absolute(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme and urlsplit(value).netloc)


@cache
def _schemas() -> dict[str, Any]:
    text = (Path(__file__).parent / "comfy_api_v2.yaml").read_text()
    schemas: dict[str, Any] = _with_nulls(yaml.safe_load(text))
    return schemas


def _with_nulls(schema: Any) -> Any:
    """OpenAPI 3.0 says `nullable`, which JSON Schema does not know."""
    if isinstance(schema, list):
        return [_with_nulls(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {key: _with_nulls(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [{"type": "null"}, rest]} if schema.get("nullable") is True else rest


def holds(name: str, value: Any) -> Any:
    """The value, which is such an object of the contract: AssertionError says where it is not."""
    schema = _schemas() | {"$ref": f"#/components/schemas/{name}"}
    errors = jsonschema.Draft202012Validator(schema, format_checker=FORMATS).iter_errors(value)
    told = [f"{error.json_path}: {error.message}" for error in errors]
    assert not told, f"{name}: {told}"
    return value
