"""A real PostgreSQL for tests: one server per test process, one fresh migrated database per test, a leak checker.

`GENFLOW_TEST_DATABASE_URL`, a conninfo of a role that may create databases, replaces the embedded server.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from genflow.jobs import State
from genflow.postgres.binaries import Binaries, find_binaries
from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.migrations import migrate

_PREFIX = "genflow-test-"
_ROOM_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class TestServer:
    """A server with one migrated template; makes and drops databases cloned from it (about 40 ms each)."""

    __test__ = False

    admin: str
    template: str

    def create(self, template: str | None = None) -> str:
        """A fresh database, migrated unless another template is named; its conninfo."""
        name = f"t_{uuid.uuid4().hex}"
        self._admin("create database {} template {}", name, template or self.template)
        return make_conninfo(self.admin, dbname=name)

    def drop(self, conninfo: str) -> None:
        """Drop that database and whatever is still connected to it."""
        name = psycopg.conninfo.conninfo_to_dict(conninfo)["dbname"]
        self._admin("drop database if exists {} with (force)", str(name))

    def _admin(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def serving(admin: str) -> Iterator[TestServer]:
    """A migrated template on the server behind `admin`, dropped at the end."""
    name = f"template_{uuid.uuid4().hex}"
    server = TestServer(admin, name)
    server._admin("create database {} template template0", name)
    try:
        migrate(make_conninfo(admin, dbname=name))
        yield server
    finally:
        server._admin("drop database if exists {} with (force)", name)


@contextmanager
def open_folder(*, on_disk: bool = False) -> Iterator[Path]:
    """A temporary folder that the server's own user may enter also when the tests run as root.

    In memory where there is room: a test kills processes, not the power. `on_disk` is for figures that its syncs belong
    to. The name is short: a socket's path is limited.
    """
    base = Path("/dev/shm")  # noqa: S108 (mkdtemp follows)
    if on_disk or not base.is_dir() or not os.access(base, os.W_OK) or shutil.disk_usage(base).free < _ROOM_BYTES:
        base = Path("/tmp")  # noqa: S108
    _remove_remains(base)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _remove_remains(base: Path) -> None:
    """Remove what killed test processes of our own user left (their servers ended with them)."""
    for path in base.glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).split("-")[0]
        with suppress(FileNotFoundError):  # another process tidies too
            if not Path("/proc", pid).exists() and path.stat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def embedded(binaries: Binaries | None = None, *, on_disk: bool = False) -> Iterator[str]:
    """An embedded server in a folder of its own; its conninfo."""
    with open_folder(on_disk=on_disk) as folder:
        server = EmbeddedPostgres(folder / "data", binaries=binaries, state=folder / "state")
        try:
            yield server.start()
        finally:
            server.stop()


@pytest.fixture(scope="session")
def test_server() -> Iterator[TestServer]:
    """The server of this test process."""
    url = os.environ.get("GENFLOW_TEST_DATABASE_URL")
    if url:
        with serving(url) as server:
            yield server
    else:
        with embedded() as admin, serving(admin) as server:
            yield server


@pytest.fixture
def database(test_server: TestServer) -> Iterator[str]:
    """The conninfo of a fresh, migrated, empty database of this test's own."""
    conninfo = test_server.create()
    try:
        yield conninfo
    finally:
        test_server.drop(conninfo)


def releases() -> list[Binaries]:
    """One PostgreSQL of each major release that this machine has: the corners a test can run on."""
    found: dict[int, Binaries] = {}
    for binaries in find_binaries()[0]:
        found.setdefault(binaries.major, binaries)
    return list(found.values())


@pytest.fixture(scope="session", params=releases(), ids=lambda binaries: f"postgres{binaries.major}")
def release_server(request: pytest.FixtureRequest) -> Iterator[TestServer]:
    """A server of each PostgreSQL release on this machine in turn."""
    with embedded(request.param) as admin, serving(admin) as server:
        yield server


@pytest.fixture
def database_of_each_release(release_server: TestServer) -> Iterator[str]:
    """Like `database`, on each PostgreSQL release that this machine has: the test runs once for each."""
    conninfo = release_server.create()
    try:
        yield conninfo
    finally:
        release_server.drop(conninfo)


def assert_nothing_left(conninfo: str, settle_s: float = 2.0) -> None:
    """Fail unless no job is held, no transaction is open and no lock is held in this database.

    Connections that were just closed get `settle_s` seconds to vanish from the server's tables.
    """
    deadline = time.monotonic() + settle_s
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while True:
            left = _left(connection)
            if not left:
                return
            assert time.monotonic() < deadline, "left behind: " + "; ".join(left)
            time.sleep(0.02)


def _left(connection: psycopg.Connection[Any]) -> list[str]:
    left = []
    jobs = connection.execute("select to_regclass('genflow.jobs')").fetchone()
    if jobs and jobs[0]:
        for (job,) in connection.execute("select id from genflow.jobs where state = %s", (State.HELD,)):
            left.append(f"job {job} is held")
    for pid, state, query in connection.execute(
        "select pid, state, left(query, 120) from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and backend_type = 'client backend' and xact_start is not null"
    ):
        left.append(f"backend {pid} is {state}: {query}")
    for pid, kind, mode, relation in connection.execute(
        "select pid, locktype, mode, relation::regclass from pg_locks join pg_stat_activity using (pid)"
        " where database = (select oid from pg_database where datname = current_database())"
        " and pid <> pg_backend_pid() and backend_type = 'client backend' and locktype in ('advisory', 'relation')"
    ):
        left.append(f"backend {pid} holds {mode} on {kind} {relation or ''}")
    return left
