"""A real RabbitMQ for tests: a private node of whoever runs them, with its own home, ports, data and port mapper.

Debian's package (`scripts/debian_packages.sh rabbitmq-server`) brings the programs, for root into the system, for
anybody else into the cache folder; no node of the system's is touched or started.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from tests.support.postgres import open_folder
from tests.support.repository import ROOT
from tests.support.waiting import until

START_S = 90.0
PASSWORD = "guest"  # noqa: S105 (the broker's own default, on loopback alone)
# Plugins that nobody enables cost a third of a node's start.
_NEEDLESS = ("rabbitmq_", "cow", "gun-", "amqp", "jose-", "prometheus-", "eetcd-", "accept-", "enough-", "base64url-")


def programs() -> tuple[Path, str] | None:
    """The folder with the broker's programs, and the PATH that they need; None where this machine has no RabbitMQ."""
    for root in (Path("/"), ROOT / ".cache" / "debian"):
        if found := sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")):
            return found[-1], f"{root / 'bin'}:{root / 'usr/bin'}:{os.environ['PATH']}"
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


class Broker:
    """One node. `consumer_timeout_s` holds from the next start on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = programs()
        assert found, "RabbitMQ is not here; scripts/system_rabbitmq.sh brings it"
        self._sbin, self._path = found
        self._port, self._mapper_port, self._node_port = _free_port(), _free_port(), _free_port()
        self._node: subprocess.Popen[bytes] | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self.consumer_timeout_s = 1800.0
        self.url = f"amqp://guest:{PASSWORD}@127.0.0.1:{self._port}"
        self.release = self._sbin.parent.name.removeprefix("rabbitmq_server-")

    def start(self) -> None:
        """Start the node; `wait` tells when it answers."""
        environment = self._environment()
        if self._mapper is None:
            # Not left to the node, which would leave it behind.
            mapper = shutil.which("epmd", path=self._path)
            assert mapper
            self._mapper = subprocess.Popen(
                [mapper], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        (self._folder / "plugins").write_text("[].")
        patience = f"{{consumer_timeout, {self.consumer_timeout_s * 1000:.0f}}}, {{channel_tick_interval, 200}}"
        (self._folder / "advanced.config").write_text(f"[{{rabbit, [{patience}]}}].\n")
        log = (self._folder / "node.log").open("ab")
        with log:
            self._node = subprocess.Popen(
                [self._sbin / "rabbitmq-server"],
                env=self._environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        few = self._folder / "few"
        if not few.exists():
            few.mkdir()
            for plugin in (self._sbin.parent / "plugins").iterdir():
                if plugin.name.startswith("rabbitmq_prelaunch") or not plugin.name.startswith(_NEEDLESS):
                    (few / plugin.name).symlink_to(plugin)
        home = str(self._folder)
        return {
            "PATH": self._path, "HOME": home, "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._mapper_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "genflow-test@localhost", "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_MNESIA_BASE": f"{home}/data", "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_PLUGINS_DIR": str(few), "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_CONFIG_FILES": f"{home}/none", "RABBITMQ_CONF_ENV_FILE": f"{home}/none.env",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{home}/advanced.config",
        }  # fmt: skip

    def wait(self) -> None:
        """Wait until the node answers."""
        deadline = time.monotonic() + START_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=5) as probe:
                probe.sendall(b"AMQP\x00\x00\x09\x01")
                if probe.recv(1):
                    return
            assert self._node is not None
            assert self._node.poll() is None, f"RabbitMQ ended: {self.last_words()}"
            assert time.monotonic() < deadline, f"RabbitMQ does not answer: {self.last_words()}"
            time.sleep(0.05)

    def last_words(self) -> str:
        return (self._folder / "node.log").read_text(errors="replace")[-2_000:]

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, the node and its helpers."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._node is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._node.pid, how)
        self._node.wait(60)
        group = self._node.pid
        until(lambda: _is_gone(group), "the end of the node itself; the script that started it goes first", 60)
        self._node = None

    def close(self) -> None:
        """End everything that this broker started."""
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait(30)

    # --- as a client ---

    async def put(self, queue: str, body: bytes, message_id: str | None = None) -> None:
        """A message by somebody else's program."""
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel()
            message = aio_pika.Message(body, message_id=message_id, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, routing_key=queue)

    async def depth(self, queue: str) -> int:
        """How many messages wait in the queue, those delivered and not acknowledged left out."""
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel()
            found = await channel.declare_queue(queue, passive=True)
            count: int = found.declaration_result.message_count or 0
            return count

    async def all_of(self, queue: str) -> list[AbstractIncomingMessage]:
        """Take all messages that wait in the queue."""
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel()
            source = await channel.get_queue(queue, ensure=False)
            taken = []
            while (message := await source.get(no_ack=True, fail=False)) is not None:
                taken.append(message)
            return taken


@contextmanager
def running_broker() -> Iterator[Broker]:
    """A node that is starting, ended at the end."""
    with open_folder() as folder:
        broker = Broker(folder)
        try:
            broker.start()
            yield broker
        finally:
            broker.close()
