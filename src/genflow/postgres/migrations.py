"""Bring a database to this program's schema: numbered SQL files, each in one transaction, applied once, in order.

`migrations/NNNN_name.sql` are read as package data. What was applied stands in `genflow.schema_migrations` with the
SHA-256 of the file, so that an edited migration is noticed instead of half-applied. An advisory lock makes processes
that migrate at once take turns. A database that is ahead of the program is refused: an old program can't know what the
new columns promise.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import psycopg
import structlog

from genflow.errors import GenflowError

log = structlog.get_logger()

LOCK_KEY = 0x67656E666C6F77  # "genflow", as the number that all migrating processes lock
_TURN_MS = 300_000  # how long to wait for other processes that migrate
_LOCK_MS = 30_000  # how long a migration may wait for a table: everything behind it waits too
_BOOK = """
create schema if not exists genflow;
create table if not exists genflow.schema_migrations (
    version int primary key,
    name text not null,
    sha256 text not null,
    applied_at timestamptz not null default now()
);
"""
_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name, its text and the checksum that is recorded with it."""

    version: int
    name: str
    text: str

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.version:04}_{self.name}.sql"

    @property
    def sha256(self) -> str:
        """Checksum of the text, the same under any line ending."""
        return hashlib.sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()


def load_migrations(folder: Traversable | None = None) -> list[Migration]:
    """This program's migrations in order; ValueError when their numbers have a gap or a file is misnamed."""
    folder = folder or resources.files("genflow.postgres").joinpath("migrations")
    if not folder.is_dir():
        return []
    found = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            match = _NAME.fullmatch(file.name)
            if match is None:
                raise ValueError(f"migration {file.name!r} must be named NNNN_name.sql")
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.version)
    numbers = [migration.version for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations must be numbered 0001, 0002, … without a gap or a double, not {numbers}")
    return found


def migrate(conninfo: str, migrations: list[Migration] | None = None) -> list[str]:
    """Apply what is missing; the names of the files applied by this call.

    Raises GenflowError: `schema_too_new`, `schema_changed` (an applied file was edited), `migration_failed`,
    `database_unavailable`.
    """
    migrations = load_migrations() if migrations is None else migrations
    applied = []
    with _connected(conninfo) as connection:
        try:
            with _turn(connection):
                connection.execute(_BOOK)
                _check(_applied(connection), migrations)
        except psycopg.Error as error:
            raise _failed("the table of applied migrations", error) from error
        for migration in migrations:
            try:
                with _turn(connection):
                    if migration.version in _check(_applied(connection), migrations):
                        continue
                    connection.execute(migration.text.encode())
                    connection.execute(
                        "insert into genflow.schema_migrations (version, name, sha256) values (%s, %s, %s)",
                        (migration.version, migration.name, migration.sha256),
                    )
            except psycopg.Error as error:
                raise _failed(f"migration {migration.file}", error) from error
            applied.append(migration.file)
            log.info("migration_applied", file=migration.file)
    return applied


def check_schema(conninfo: str, migrations: list[Migration] | None = None) -> None:
    """Refuse a database whose schema is not exactly this program's.

    Raises GenflowError: `schema_too_new`, `schema_too_old`, `schema_changed`, `database_unavailable`.
    """
    migrations = load_migrations() if migrations is None else migrations
    with _connected(conninfo) as connection:
        known = connection.execute("select to_regclass('genflow.schema_migrations')").fetchone()
        there = _check(_applied(connection) if known and known[0] else {}, migrations)
    if len(there) < len(migrations):
        raise GenflowError(
            "schema_too_old",
            f"schema is at {len(there)}, this genflow needs {len(migrations)}: run `genflow migrate`",
            status=503,
        )


_Connection = psycopg.Connection[tuple[Any, ...]]


def _connected(conninfo: str) -> _Connection:
    try:
        return psycopg.connect(conninfo, autocommit=True, connect_timeout=10, prepare_threshold=None)
    except psycopg.Error as error:
        raise GenflowError(
            "database_unavailable", f"can't connect to the database to look at its schema: {error}", status=503
        ) from error


@contextmanager
def _turn(connection: _Connection) -> Iterator[None]:
    """One transaction in which no other process migrates. Locks: the advisory one, to the transaction's end."""
    with connection.transaction():
        connection.execute("select set_config('lock_timeout', %s, true)", (str(_TURN_MS),))
        connection.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
        connection.execute("select set_config('lock_timeout', %s, true)", (str(_LOCK_MS),))
        yield


def _failed(what: str, error: psycopg.Error) -> GenflowError:
    return GenflowError("migration_failed", f"{what} failed and left no trace: {error}", status=503)


def _applied(connection: _Connection) -> dict[int, tuple[str, str]]:
    rows = connection.execute("select version, name, sha256 from genflow.schema_migrations order by version")
    return {version: (name, sha256) for version, name, sha256 in rows}


def _check(applied: dict[int, tuple[str, str]], migrations: list[Migration]) -> set[int]:
    """The applied versions, once it is sure that they are a beginning of this program's."""
    newest, known = max(applied, default=0), len(migrations)
    if newest > known:
        raise GenflowError(
            "schema_too_new",
            f"schema is at {newest}, this genflow knows {known}: install a newer genflow",
            status=503,
            details={"got": newest, "limit": known},
        )
    for migration in migrations[:newest]:
        if migration.version not in applied:
            raise GenflowError(
                "schema_changed",
                f"migration {migration.file} was never applied though {newest:04} was: restore the database",
                status=503,
            )
        if applied[migration.version][1] != migration.sha256:
            raise GenflowError(
                "schema_changed",
                f"migration {migration.file} was applied with another content: an applied migration is never edited,"
                " restore the file and write a new one",
                status=503,
                details={"field": migration.file},
            )
    return set(applied)
