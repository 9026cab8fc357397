"""Every statement reads what it needs by the indexes that its header names: 50,000 jobs, idle and busy statistics.

A header says `Index: a, b.` of all indexes of the tables that grow, whichever way the planner takes, and `Whole: t.` of
such a table that is read from end to end. Tables with a row a server, worker or key may be read as the planner likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from itertools import takewhile
from typing import Any

import psycopg
import pytest

from genflow.queue.statements import statement
from tests.support.fifty_thousand import FEW_LIVE, FINISHED_JOBS, MANY_LIVE, VALUES, values_of
from tests.support.postgres import TestServer

NAMES = sorted(
    file.name.removesuffix(".sql")
    for file in resources.files("genflow.queue").joinpath("sql").iterdir()
    if file.name.endswith(".sql")
)
GROWING = {
    "jobs", "job_specs", "job_keys", "submits", "attempts", "assets", "job_assets", "blobs", "batches", "batch_rows",
    "server_files", "server_file_refs", "chores", "late_receipts", "job_live", "job_secrets",
}  # fmt: skip
FUNCTIONS = {"genflow.newest": "job", "genflow.needed": "asset"}
"""Functions that statements look things up with, which EXPLAIN does not open, and the parameter of each."""

MOST_COST = 2_500.0
"""Of one statement, in the planner's unit: a pass over the 3,000 live jobs costs 2,000, one over all jobs more."""

MAY_COST = {"server_list": 350_000.0}
"""It looks at the job of each of 36,000 scrubs, up to a thousand erasures a server; an operator asks for it."""


@dataclass
class Reads:
    """What a statement was seen to read, over all its plans."""

    indexes: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    cost: float = 0.0

    def see(self, plan: dict[str, Any]) -> None:
        self.cost = max(self.cost, plan["Total Cost"])
        self._walk(plan)

    def _walk(self, node: dict[str, Any]) -> None:
        self.indexes |= {node["Index Name"]} if "Index Name" in node else set()
        self.indexes |= set(node.get("Conflict Arbiter Indexes", []))
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in GROWING:
            self.whole.add(node["Relation Name"])
        for below in node.get("Plans", []):
            self._walk(below)


@dataclass
class Seen:
    """What was seen of every statement, and the indexes that there are, with their tables."""

    reads: dict[str, Reads]
    indexes: dict[str, str]


def promised(name: str, word: str) -> set[str]:
    """The words that the header has after `word:`, up to the full stop."""
    lines = takewhile(lambda line: line.startswith("--"), statement(name).splitlines())
    head = " ".join(line.removeprefix("--").strip() for line in lines)
    found = re.search(rf"{word}: ([^.]*)", head)
    return set(re.findall(r"\w+", found[1])) if found else set()


def parameters(name: str) -> set[str]:
    return set(re.findall(r"%\((\w+)\)", statement(name)))


def plan_of(connection: psycopg.Connection[Any], query: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
    # What a plan for the parameters' values shows is what psycopg's unprepared statements get.
    row = connection.execute(b"explain (format json) " + query.encode(), values).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def body_of(connection: psycopg.Connection[Any], function: str) -> str:
    """What a function of one `return` looks up, for a value of its parameter."""
    row = connection.execute(
        "select coalesce(pg_get_function_sqlbody(oid), prosrc) from pg_proc where oid = %s::regproc", [function]
    ).fetchone()
    assert row is not None
    body = re.search(r"return (.*?);?\s*(?:end\s*)?$", row[0], re.DOTALL | re.IGNORECASE)
    assert body is not None
    parameter = FUNCTIONS[function]
    own = rf"{function.removeprefix('genflow.')}\.{parameter}\b|(?<![.\w]){parameter}\b(?!\.)"
    return "select " + re.sub(own, f"'{VALUES[parameter]}'::uuid", body[1])


def look(connection: psycopg.Connection[Any], reads: dict[str, Reads]) -> None:
    for name in NAMES:
        for values in values_of(name, parameters(name)):
            reads[name].see(plan_of(connection, statement(name), values))
        for function in FUNCTIONS:
            if f"{function}(" in statement(name):
                reads[name].see(plan_of(connection, body_of(connection, function)))


@pytest.fixture(scope="module")
def seen(test_server: TestServer) -> Iterator[Seen]:
    """Every statement's plans with the statistics of a time when few jobs were live, and of one when thousands were."""
    conninfo = test_server.create()
    reads = {name: Reads() for name in NAMES}
    try:
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
            for table in GROWING:
                connection.execute(f"alter table genflow.{table} set (autovacuum_enabled = false)".encode())
            # Of all rows, not of a sample: between two indexes that cost the same a sample decides by chance.
            connection.execute("set default_statistics_target = 300")
            connection.execute(FINISHED_JOBS.encode())
            connection.execute(FEW_LIVE.encode())
            connection.execute("analyze")
            connection.execute(MANY_LIVE.encode())
            look(connection, reads)
            connection.execute("analyze")
            look(connection, reads)
            there = connection.execute("select indexname, tablename from pg_indexes where schemaname = 'genflow'")
            yield Seen(reads, dict(there.fetchall()))
    finally:
        test_server.drop(conninfo)


def test_every_parameter_of_every_statement_has_a_value() -> None:
    for name in NAMES:
        values_of(name, parameters(name))


def faults(name: str, reads: Reads, indexes: dict[str, str]) -> Iterator[str]:
    words = promised(name, "Index")
    named = {word for word in words if indexes.get(word) in GROWING}
    used = {index for index in reads.indexes if indexes[index] in GROWING}
    most = MAY_COST.get(name, MOST_COST)
    if unknown := {word for word in words if "_" in word} - indexes.keys():
        yield f"no such index {sorted(unknown)}"
    if named - used:
        yield f"named but not used {sorted(named - used)}"
    if used - named:
        yield f"used but not named {sorted(used - named)}"
    if whole := reads.whole - promised(name, "Whole"):
        yield f"reads all of {sorted(whole)}"
    if reads.cost > most:
        yield f"costs {reads.cost}"


def test_each_goes_by_the_indexes_that_its_header_names(seen: Seen) -> None:
    wrong = [f"{name}: {fault}" for name in NAMES for fault in faults(name, seen.reads[name], seen.indexes)]
    assert not wrong, "\n".join(wrong)
