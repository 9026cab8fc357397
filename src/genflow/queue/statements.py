"""The statements of the queue, each loaded once from its own file in sql/."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import LiteralString


@cache
def statement(name: str) -> LiteralString:
    """The text of sql/NAME.sql. FileNotFoundError where there is none."""
    return resources.files("genflow.queue").joinpath("sql", f"{name}.sql").read_text("utf-8")
