"""Where the embedded server's cluster and socket lie, and which user it runs as.

Wished: everything under `<data>/postgres`. Two things can forbid it. Postgres refuses to run as root, and the user it
then runs as may be shut out of the data folder by a parent that is closed (0700): the cluster goes to a folder of the
system's state folder, named by a UUID written in the data folder. And a socket's path may have 107 bytes at most.
`<data>/postgres/place.json` records the decision, so that a later change of permissions never shows an empty database
where a full one was.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import sys
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from genflow.errors import GenflowError
from genflow.postgres.binaries import can_reach

SOCKET_NAME = ".s.PGSQL.5432"
SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103


def unavailable(message: str) -> GenflowError:
    """The refusal that every fault of finding, making or starting a database ends in."""
    return GenflowError("database_unavailable", message, status=503)


def system_state_folder() -> Path:
    """The system's own folder for what root's programs keep."""
    return Path("/var/lib/genflow" if sys.platform.startswith("linux") else "/usr/local/var/genflow")


@dataclass(frozen=True, slots=True)
class _Record:
    """What place.json holds; None = inside the data folder."""

    id: str
    cluster: str | None
    sockets: str | None
    made: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one embedded server. `uid`, `gid`: who it runs as; None = ourselves."""

    home: Path
    cluster: Path
    sockets: Path
    uid: int | None
    gid: int | None

    @property
    def made(self) -> bool:
        """Whether the cluster exists."""
        return (self.cluster / "PG_VERSION").exists()

    @property
    def log(self) -> Path:
        """The server's own messages."""
        return self.home / "server.log"

    def keep_private(self, folder: Path) -> None:
        """Make `folder` if needed, 0700, of the server's user; refuse one that is somebody else's."""
        folder.mkdir(mode=0o700, parents=False, exist_ok=True)
        found = folder.lstat()
        if self.uid is not None and found.st_uid == 0:
            os.chown(folder, self.uid, -1 if self.gid is None else self.gid)
        owner = os.geteuid() if self.uid is None else self.uid
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
            raise unavailable(f"{folder} belongs to user {found.st_uid}, not {owner}: remove it or change its owner")
        folder.chmod(0o700)


def known_sockets(home: Path) -> Path | None:
    """The socket folder that the owner of `home` recorded; None while nobody has."""
    record = _read(home)
    if record is None:
        return None
    return home / "run" if record.sockets is None else Path(record.sockets)


def settle_place(home: Path, state: Path) -> Place:
    """Decide (first time) or recall where the server under `home` lives. Call with the owner's lock held."""
    record = _read(home)
    inside = home / "cluster"
    if record is None:
        new_id = str(uuid.uuid4())
        user = _service_user(inside)
        outside = user is not None and not (inside / "PG_VERSION").exists() and not can_reach(*user, home)
        record = _Record(new_id, str(state / new_id / "cluster") if outside else None, None, False)
    cluster = inside if record.cluster is None else Path(record.cluster)
    uid, gid = _service_user(cluster) or (None, None)
    if record.made and not (cluster / "PG_VERSION").exists():
        raise unavailable(
            f"the database of {home.parent} lived in {cluster}, which is gone: restore it, or delete"
            f" {home / 'place.json'} to start with an empty one"
        )
    if record.cluster is None and uid is not None and not can_reach(uid, gid, home):
        raise unavailable(
            f"user {uid}, which the database runs as, can't enter {home}: give that folder and its parents"
            " the permission o+x"
        )
    sockets = _sockets(home, cluster, record, state, uid)
    kept = None if sockets == home / "run" else str(sockets)
    _write(home, _Record(record.id, record.cluster, kept, record.made))
    place = Place(home, cluster, sockets, uid, gid)
    for folder in {cluster.parent, sockets.parent} - {home}:
        if folder.is_relative_to(state):
            state.mkdir(mode=0o755, parents=True, exist_ok=True)
            folder.mkdir(mode=0o711, exist_ok=True)
        else:
            place.keep_private(folder)
    place.keep_private(sockets)
    return place


def record_made(home: Path) -> None:
    """From now on a missing cluster is a loss, not a first start."""
    record = _read(home)
    if record is not None and not record.made:
        _write(home, _Record(record.id, record.cluster, record.sockets, True))


def _service_user(cluster: Path) -> tuple[int, int] | None:
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (found := cluster.stat()).st_uid != 0:
        return found.st_uid, found.st_gid
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    return 65_534, 65_534


def _sockets(home: Path, cluster: Path, record: _Record, state: Path, uid: int | None) -> Path:
    if record.sockets is not None:
        return Path(record.sockets)
    beside = cluster.parent / "run"
    if _fits(beside):
        return beside
    # A short path that only we can enter. /tmp by name: TMPDIR may differ between the processes that share the server.
    short = state / record.id / "run" if uid is not None else Path(f"/tmp/genflow-{os.geteuid()}/{record.id}")  # noqa: S108
    if _fits(short):
        return short
    raise unavailable(f"no folder for the database's socket: {beside} and {short} are both too long")


def _fits(sockets: Path) -> bool:
    return len(os.fsencode(sockets / SOCKET_NAME)) <= SOCKET_PATH_LIMIT


def _read(home: Path) -> _Record | None:
    try:
        return _Record(**json.loads((home / "place.json").read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise unavailable(f"{home / 'place.json'} can't be read ({error}): restore it from a backup") from error


def _write(home: Path, record: _Record) -> None:
    part = home / "place.json.part"
    with part.open("w") as file:
        json.dump(asdict(record), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    part.replace(home / "place.json")
