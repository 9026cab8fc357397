"""S3 servers for tests, each a process of its own: moto knows conditional writes, nanio checks signatures."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError
from urllib.request import urlopen

from genflow.settings import Settings
from genflow.storage.local import LocalStore
from genflow.storage.opening import open_store
from genflow.storage.store import Store

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-read",
    "AWS_DEFAULT_REGION": "us-east-1",
}
BUCKET = "pictures"
"""The bucket that each server has."""


@dataclass(eq=False)
class S3Server:
    """An S3 server on this machine; its client library, `obstore`, is the one that genflow uses."""

    kind: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, or start it again; nanio still has what was in it. Returns once it answers."""
        command = {
            "moto": ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            "nanio": ["-m", "nanio", "serve", "--host=127.0.0.1", f"--port={self.port}", f"--data-dir={self.folder}"],
        }[self.kind]
        keys = {
            "NANIO_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "NANIO_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        }
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)  # nanio's buckets are folders
        with (self.folder.parent / f"{self.kind}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", *command], stdout=log, stderr=log, env=os.environ | CREDENTIALS | keys
            )
        self._until_it_answers()
        if self.kind == "moto":
            self.client().create_bucket(Bucket=BUCKET)

    def stop(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def settings(self, prefix: str, data: Path, **more: Any) -> Settings:
        """Settings whose store is below this prefix of the bucket."""
        place = {"store": f"s3://{BUCKET}/{prefix}", "store_endpoint": self.url, "data": data}
        return Settings.model_validate(place | more)

    def store(self, prefix: str, data: Path) -> Store:
        """A store below this prefix of the bucket."""
        return open_store(self.settings(prefix, data))

    @cache  # noqa: B019 - a server lives as long as its test
    def client(self) -> Any:
        """Another client of the same server, to look behind ours."""
        from botocore.session import get_session  # type: ignore[import-untyped]

        return get_session().create_client(
            "s3", endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip

    def keys(self, prefix: str) -> list[str]:
        """The keys of every object below the prefix, without it."""
        found = self.client().list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        return sorted(each["Key"].removeprefix(f"{prefix}/") for each in found)

    def open_uploads(self, prefix: str) -> list[str]:
        """The keys of uploads below the prefix that were begun, and neither ended nor given up."""
        found = self.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return [each["Key"] for each in found if each["Key"].startswith(f"{prefix}/")]

    def _until_it_answers(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                urlopen(self.url, timeout=5).close()  # noqa: S310 - our own server
            except URLError as error:
                if getattr(error, "code", None) is not None:
                    return  # it refuses who doesn't sign
                assert self.process is not None
                assert self.process.poll() is None, f"{self.kind} did not start"
                assert time.monotonic() < deadline, f"{self.kind} does not answer"
                time.sleep(0.05)
            else:
                return


@contextmanager
def s3_server(kind: str, folder: Path) -> Iterator[S3Server]:
    """A server of this kind (moto, nanio) on a free port, killed at the end; its files are in a folder below."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = S3Server(kind, folder / kind, port)
    try:
        server.start()
        yield server
    finally:
        server.stop()


async def away(server: S3Server) -> None:
    """Stop it, without holding up the test's own loop."""
    await asyncio.to_thread(server.stop)


async def back(server: S3Server) -> None:
    """Start it again, without holding up the test's own loop."""
    await asyncio.to_thread(server.start)


class Place(Protocol):
    """Where one test's blobs are, and a look at it from outside."""

    def open(self) -> Store:
        """A store here, as another process would open it."""
        ...

    def elsewhere(self) -> Store:
        """A store in another place of the same kind."""
        ...

    def names(self) -> list[str]:
        """Everything that is kept here but the marker and how it was found, also what is half there."""
        ...

    def overwrite(self, name: str, data: bytes) -> None:
        """Damage what is kept under that name."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder of a local disk."""

    root: Path

    def open(self) -> Store:
        return LocalStore(self.root)

    def elsewhere(self) -> Store:
        return LocalStore(self.root.with_name("elsewhere"))

    def names(self) -> list[str]:
        found = [path for path in self.root.rglob("*") if path.is_file() and path.name != "marker"]
        return sorted(str(path.relative_to(self.root)) for path in found)

    def overwrite(self, name: str, data: bytes) -> None:
        (self.root / name).write_bytes(data)


@dataclass(frozen=True)
class Bucket:
    """A prefix in the bucket of an S3 server; `data` is this machine's folder beside it."""

    server: S3Server
    prefix: str
    data: Path

    def open(self) -> Store:
        return self.server.store(self.prefix, self.data)

    def elsewhere(self) -> Store:
        return self.server.store(f"{self.prefix}-elsewhere", self.data)

    def names(self) -> list[str]:
        left = [str(path) for path in self.data.rglob("*") if path.is_file()]
        kept = [key for key in self.server.keys(self.prefix) if not key.startswith("marker")]
        return kept + self.server.open_uploads(self.prefix) + left

    def overwrite(self, name: str, data: bytes) -> None:
        self.server.client().put_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}", Body=data)


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    """These chunks, one after the other."""
    for chunk in chunks:
        yield chunk


async def content(store: Store, hash: bytes, start: int = 0, end: int | None = None) -> bytes:
    """All bytes of a blob, or of a range of it."""
    return b"".join([chunk async for chunk in store.read(hash, start, end)])
