"""Promises of the choice of the database: the named server, else the embedded one, else what to do about it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from genflow.errors import GenflowError
from genflow.postgres.connect import database as choose
from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.leftovers import processes_on
from genflow.settings import Settings
from tests.support.owners import cluster_of
from tests.support.postgres import TestServer, assert_nothing_left, open_folder
from tests.support.waiting import until


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


async def test_a_named_server_is_used_and_nothing_is_started(database: str, folder: Path) -> None:
    async with choose(Settings(database_url=database, data=folder / "data")) as conninfo:
        assert conninfo == database
    assert os.listdir(folder) == []


async def test_without_a_name_the_embedded_server_lives_as_long_as_the_context(folder: Path) -> None:
    async with choose(Settings(database_url=None, data=folder / "data")) as conninfo:
        with psycopg.connect(conninfo) as connection:
            assert connection.execute("select current_database()").fetchone() == ("genflow",)
        assert processes_on(cluster_of(folder)) != set()
    assert processes_on(cluster_of(folder)) == set()


async def test_canceled_while_it_starts_it_leaves_no_server(folder: Path) -> None:
    async def hold() -> None:
        async with choose(Settings(database_url=None, data=folder / "data")):
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    place = folder / "data" / "postgres" / "place.json"
    await asyncio.to_thread(until, place.exists, "the start")
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert processes_on(cluster_of(folder)) == set()


async def test_a_server_that_starts_beside_us_is_waited_for(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "data", state=folder / "state")
    conninfo = server.start()
    server.stop()
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    try:
        async with choose(Settings(database_url=conninfo, data=folder), patience_s=30) as chosen:
            assert chosen == conninfo
    finally:
        await starting
        server.stop()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("postgresql://nobody:secret@127.0.0.1:1/none", "does not answer"),
        ("host=/no/such/folder password=secret", "does not answer"),
        ("password=secret not an address", "is no PostgreSQL address"),
    ],
)
async def test_a_named_server_that_can_not_be_is_said_without_its_password(
    tmp_path: Path, url: str, complaint: str
) -> None:
    with pytest.raises(GenflowError, match=complaint) as refusal:
        async with choose(Settings(database_url=url, data=tmp_path), patience_s=0.1):
            pass
    assert (refusal.value.code, refusal.value.status) == ("database_unavailable", 503)
    assert "GENFLOW_DATABASE_URL" in refusal.value.message
    assert "secret" not in refusal.value.message
    assert refusal.value.__cause__ is None or "secret" not in str(refusal.value.__cause__)


class TestTheLeakChecker:
    """The fixture's own promise: it sees each kind of thing that a test can leave."""

    def test_a_clean_database_passes_also_with_idle_connections(self, database: str) -> None:
        with psycopg.connect(database, autocommit=True) as idle:
            idle.execute("select 1")
            assert_nothing_left(database)

    @pytest.mark.parametrize(
        ("statement", "autocommit", "found"),
        [
            ("select 1", False, "is idle in transaction: select 1"),
            ("select pg_advisory_lock(7)", True, "holds ExclusiveLock on advisory"),
            ("lock table genflow.schema_migrations in share mode", False, "holds ShareLock on relation"),
        ],
    )
    def test_what_is_left_is_named(self, database: str, statement: str, autocommit: bool, found: str) -> None:
        with psycopg.connect(database, autocommit=autocommit) as left:
            left.execute(statement.encode())
            with pytest.raises(AssertionError, match=found):
                assert_nothing_left(database, settle_s=0.1)

    def test_a_held_job_is_named(self, test_server: TestServer) -> None:
        other = test_server.create(template="template0")
        try:
            with psycopg.connect(other) as connection:
                connection.execute("create schema genflow")
                connection.execute("create table genflow.jobs (id text, state smallint)")
                connection.execute("insert into genflow.jobs values ('mine', 3), ('done', 4)")
            with pytest.raises(AssertionError, match=r"left behind: job mine is held$"):
                assert_nothing_left(other, settle_s=0.1)
        finally:
            test_server.drop(other)
