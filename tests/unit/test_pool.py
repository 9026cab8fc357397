"""Promises of the pool: bounded waits, no unsafe server, and a database that goes and comes back is no accident."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import PoolTimeout

from genflow.errors import GenflowError
from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.leftovers import postmaster_pid, processes_on
from genflow.postgres.pool import Pool, open_pool
from tests.support.owners import cluster_of
from tests.support.postgres import assert_nothing_left, open_folder
from tests.support.waiting import until


@pytest.fixture
def own_folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def own_server(own_folder: Path) -> Iterator[EmbeddedPostgres]:
    """A server that a test may kill."""
    server = EmbeddedPostgres(own_folder / "data", state=own_folder / "state")
    yield server
    server.stop()


async def one(pool: Pool) -> int:
    async with pool.connection() as connection:
        row = await (await connection.execute("select 1 as n")).fetchone()
    assert row is not None
    return int(row["n"])


async def test_every_connection_commits_by_itself_and_waits_for_nothing_for_ever(database: str) -> None:
    async with await open_pool(database, 2, 4) as pool:
        async with pool.connection() as connection:
            assert connection.autocommit
            assert connection.prepare_threshold is None
            cursor = await connection.execute(
                "select current_setting('lock_timeout') as lock,"
                " current_setting('idle_in_transaction_session_timeout') as idle"
            )
            assert await cursor.fetchone() == {"lock": "10s", "idle": "30s"}
        assert (pool.min_size, pool.max_size) == (2, 4)
    assert_nothing_left(database)


async def test_a_host_that_vanishes_is_given_up_within_half_a_minute(database: str) -> None:
    conninfo = psycopg.conninfo.make_conninfo(database, keepalives_count=2)
    async with await open_pool(conninfo, 1, 1) as pool, pool.connection() as connection:
        told = connection.info.get_parameters()
    waited = int(told["keepalives_idle"]) + int(told["keepalives_interval"]) * int(told["keepalives_count"])
    assert waited <= 30
    assert told["keepalives_count"] == "2", "what the connection string says stands"
    assert 0 < int(told["tcp_user_timeout"]) <= 30_000


async def test_who_waits_too_long_for_a_connection_is_told(database: str) -> None:
    async with await open_pool(database, 1, 1, timeout_s=0.3) as pool, pool.connection():
        with pytest.raises(PoolTimeout):
            await asyncio.wait_for(one(pool), 10)


async def test_a_server_that_forgets_what_it_confirmed_is_refused(database: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("alter database {} set synchronous_commit = off").format(sql.Identifier(str(name))))
    with pytest.raises(GenflowError, match="synchronous_commit = off") as refusal:
        await open_pool(database, 1, 2)
    assert (refusal.value.code, refusal.value.status) == ("database_unsafe", 503)
    assert_nothing_left(database)


async def test_a_database_that_is_not_there_is_said_in_time(tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(GenflowError, match="no connection to the database") as refusal:
        await open_pool(f"host={tmp_path} dbname=none", 1, 2, timeout_s=0.5)
    assert refusal.value.code == "database_unavailable"
    assert time.monotonic() - before < 10


async def test_a_server_killed_under_an_idle_pool_costs_no_caller_an_error(
    own_server: EmbeddedPostgres, own_folder: Path
) -> None:
    conninfo = await asyncio.to_thread(own_server.start)
    async with await open_pool(conninfo, 8, 8) as pool:
        cluster = cluster_of(own_folder)
        killed = processes_on(cluster)
        os.kill(postmaster_pid(cluster / "postmaster.pid"), signal.SIGKILL)
        await asyncio.to_thread(until, lambda: killed.isdisjoint(processes_on(cluster)), "the killed server's end")
        assert await asyncio.wait_for(one(pool), 10) == 1
        assert await asyncio.gather(*(one(pool) for _ in range(12))) == [1] * 12


async def test_who_waited_through_an_outage_is_served_soon_after_its_end(own_server: EmbeddedPostgres) -> None:
    """The pool's one connection gave up meanwhile, and nobody new asks: the waiting caller is served all the same."""
    conninfo = await asyncio.to_thread(own_server.start)
    async with await open_pool(conninfo, 1, 1, timeout_s=60) as pool:
        await asyncio.to_thread(own_server.stop)
        waiting = asyncio.create_task(one(pool))
        await asyncio.to_thread(until, lambda: pool.get_stats().get("connections_errors", 0) >= 6, "six failed tries")
        assert not waiting.done()
        await asyncio.to_thread(own_server.start)
        assert await asyncio.wait_for(waiting, 10) == 1
