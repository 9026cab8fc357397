"""Promises of the migrations: once, in order, whole or not at all, by one process at a time, never backwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from genflow.errors import GenflowError
from genflow.postgres.migrations import Migration, check_schema, load_migrations, migrate
from tests.support.postgres import TestServer, assert_nothing_left

SHIPPED = load_migrations()


def further(*texts: str) -> list[Migration]:
    """The shipped migrations and these after them."""
    return SHIPPED + [Migration(len(SHIPPED) + i, f"further{i}", text) for i, text in enumerate(texts, 1)]


def recorded(conninfo: str) -> list[tuple[int, str, str]]:
    with psycopg.connect(conninfo) as connection:
        return connection.execute("select version, name, sha256 from genflow.schema_migrations order by 1").fetchall()


def test_the_shipped_migrations_are_applied_and_recorded(database_of_each_release: str) -> None:
    expected = [(migration.version, migration.name, migration.sha256) for migration in SHIPPED]
    assert recorded(database_of_each_release) == expected
    assert migrate(database_of_each_release) == []
    check_schema(database_of_each_release)
    assert_nothing_left(database_of_each_release)


def test_each_migration_is_applied_once_and_in_order(database: str) -> None:
    two = further("create table public.a (n int)", "alter table public.a add m int; insert into public.a values (1, 2)")
    files = [migration.file for migration in two[len(SHIPPED) :]]
    assert migrate(database, two) == files
    assert migrate(database, two) == []
    with psycopg.connect(database) as connection:
        assert connection.execute("select n, m from public.a").fetchall() == [(1, 2)]


def test_a_failing_migration_leaves_no_trace_and_the_ones_before_it_stay(database: str) -> None:
    broken = further("create table public.kept (n int)", "create table public.half (n int); select 1 / 0")
    with pytest.raises(GenflowError, match=broken[-1].file) as refusal:
        migrate(database, broken)
    assert refusal.value.code == "migration_failed"
    with psycopg.connect(database) as connection:
        row = connection.execute("select to_regclass('public.kept'), to_regclass('public.half')").fetchone()
    assert row == ("kept", None)
    assert len(recorded(database)) == len(SHIPPED) + 1
    assert_nothing_left(database)


def test_an_edited_migration_is_refused_by_its_file_name(database: str) -> None:
    migrate(database, further("select 1"))
    edited = further("select 2")
    for look in (migrate, check_schema):
        with pytest.raises(GenflowError, match=edited[-1].file) as refusal:
            look(database, edited)
        assert refusal.value.code == "schema_changed"


def test_line_endings_are_no_edit(database: str) -> None:
    migrate(database, further("select 1;\nselect 2;\n"))
    assert migrate(database, further("select 1;\r\nselect 2;\r\n")) == []


def test_a_schema_newer_than_the_program_is_refused(database: str) -> None:
    migrate(database, further("select 1"))
    at, knows = len(SHIPPED) + 1, len(SHIPPED)
    for look in (migrate, check_schema):
        with pytest.raises(
            GenflowError, match=f"schema is at {at}, this genflow knows {knows}: install a newer genflow"
        ) as refusal:
            look(database)
        assert refusal.value.code == "schema_too_new"


def test_a_schema_older_than_the_program_is_named_and_what_to_run(database: str) -> None:
    with pytest.raises(GenflowError, match="run `genflow migrate`") as refusal:
        check_schema(database, further("select 1"))
    assert refusal.value.code == "schema_too_old"


def test_a_migration_missing_in_the_middle_is_refused(database: str) -> None:
    migrate(database, further("select 1", "select 2"))
    with psycopg.connect(database) as connection:
        connection.execute("delete from genflow.schema_migrations where version = %s", (len(SHIPPED) + 1,))
    with pytest.raises(GenflowError, match="was never applied"):
        migrate(database, further("select 1", "select 2"))


def test_an_empty_database_is_too_old_not_an_error_of_sql(test_server: TestServer) -> None:
    empty = test_server.create(template="template0")
    try:
        with pytest.raises(GenflowError) as refusal:
            check_schema(empty, further("select 1"))
        assert refusal.value.code == "schema_too_old"
        assert migrate(empty) == [migration.file for migration in SHIPPED]
    finally:
        test_server.drop(empty)


def test_processes_that_migrate_at_once_take_turns(test_server: TestServer) -> None:
    """The one in front waits inside its migration until the others stand behind its lock, so that they do meet."""
    empty = test_server.create(template="template0")
    gathered = further("create table public.once (n int); select pg_advisory_lock(1); select pg_advisory_unlock(1)")
    try:
        with psycopg.connect(empty, autocommit=True) as gate, ThreadPoolExecutor(4) as threads:
            gate.execute("select pg_advisory_lock(1)")
            runs = [threads.submit(migrate, empty, gathered) for _ in range(4)]
            wait_for_waiters(gate, 4)
            gate.execute("select pg_advisory_unlock(1)")
            applied = [file for run in runs for file in run.result(timeout=30)]
        assert sorted(applied) == [migration.file for migration in gathered]
        assert_nothing_left(empty)
    finally:
        test_server.drop(empty)


def wait_for_waiters(connection: psycopg.Connection[tuple[object, ...]], count: int) -> None:
    """Return when `count` backends wait for an advisory lock of this database."""
    tick = threading.Event()
    for _ in range(1_000):
        row = connection.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            " and database = (select oid from pg_database where datname = current_database())"
        ).fetchone()
        if row == (count,):
            return
        tick.wait(0.02)
    raise AssertionError(f"never saw {count} waiting")


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["0001_a.sql", "0003_b.sql"], "without a gap"),
        (["0001_a.sql", "0001_b.sql"], "without a gap"),
        (["0002_a.sql"], "without a gap"),
        (["1_a.sql"], "must be named"),
        (["0001-a.sql"], "must be named"),
    ],
)
def test_misnumbered_files_are_refused(tmp_path: Path, names: list[str], complaint: str) -> None:
    for name in names:
        (tmp_path / name).write_text("select 1")
    with pytest.raises(ValueError, match=complaint):
        load_migrations(tmp_path)


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("0002_b.sql", "0001_a.sql", "0003_c_d.sql", "README.md"):
        (tmp_path / name).write_text("select 1")
    assert [migration.file for migration in load_migrations(tmp_path)] == ["0001_a.sql", "0002_b.sql", "0003_c_d.sql"]


def test_a_server_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(GenflowError, match="can't connect") as refusal:
        migrate(f"host={tmp_path} dbname=none")
    assert refusal.value.code == "database_unavailable"
