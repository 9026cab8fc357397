"""genflow as real processes, each of which can be killed, frozen and started again, and each link between them broken.

A keeper starts again what dies of a failpoint, wakes what one froze, and notes what died for no reason of ours.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psycopg

from chaos.inject import Page
from chaos.plan import APIS, INTAKE, LEASE_S, SERVERS, TENANTS, WORKERS
from chaos.snapshot import Event
from genflow.postgres.embedded import EmbeddedPostgres
from tests.support.cli import Terminal
from tests.support.postgres import open_folder
from tests.support.rabbit import PASSWORD, Broker, programs, running_broker
from tests.support.relay import Relay, relayed, relayed_port
from tests.support.repository import ROOT
from tests.support.service import Process, Service, flags, service

QUEUE = "renders"
SLOTS = 2
QUEUE_LIMIT = 80
START_TRIES = 60
LOOK_EVERY_S = 0.1
SAMPLE_EVERY_S = 1.0

# Few seconds where a service has minutes, and policies under which a good job always succeeds in the end.
_JOBS: dict[str, Any] = {
    "queue_limit": QUEUE_LIMIT, "attempts": 30, "base_delay_ms": 200, "max_delay_ms": 1_500, "max_takeovers": 60,
    "max_resubmits": 60, "timeout_s": 60, "silence_s": 30, "scrub": True,
}  # fmt: skip
_WORKER: dict[str, Any] = {
    "health_port": 0, "poll_ms": 500, "claim_poll_s": 0.2, "probe_s": 0.5, "no_server_s": 0.5, "instance": "chaos",
    "slots": SLOTS, "quarantine_s": 2, "stop_grace_s": 6, "grace_s": 1,
}  # fmt: skip
_SERVER: dict[str, Any] = {"port": 0, "seconds_per_step": 0.1, "seconds_per_megapixel": 20}


@dataclass(eq=False)
class Part:
    """One process of the house, over all its lives."""

    name: str
    begin: Callable[[str], Awaitable[Process]]
    """Starts it, with these failpoints armed."""
    page: Page
    process: Process | None = None
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    armed: str = ""
    thaw_after_s: float = LEASE_S
    frozen_at: float | None = None
    """When a failpoint was seen to have frozen it."""

    def where(self) -> int:
        """The port that it listens on."""
        return self.port

    @property
    def port(self) -> int:
        """Where it listens now; 0 while it does not."""
        if self.process is None or not self.process.alive:
            return 0
        ready = self.process.ready["ready"]
        url = ready if isinstance(ready, str) else next(iter(ready.values()))
        return urlsplit(url).port or 0


class House:
    """All parts of one run, and the links between them."""

    def __init__(self, genflow: Service, broker: Broker | None, source: Path, seed: int, *, guard: bool) -> None:
        self.genflow = genflow
        self.broker = broker
        self.keys: dict[str, str] = {}
        self.parts: dict[str, Part] = {}
        self.links: dict[str, Relay] = {}
        self.addresses: dict[str, str] = {}
        """Of each API replica, as clients know it."""
        self.events: list[Event] = []
        """What was done to the house, and what it did by itself."""
        self.memory: dict[str, int] = {}
        """The most bytes that any life of a part held at once."""
        self.live: list[tuple[float, int]] = []
        """How many jobs were live, now and then."""
        self.guard = guard
        self._source = source
        self._seed = seed
        self._urls: dict[str, str] = {}
        self._databases: dict[str, str] = {}
        self._broker_url = ""
        self._changing_broker = asyncio.Lock()
        self._restarts: set[asyncio.Task[None]] = set()

    # --- building ---

    async def build(self, stack: AsyncExitStack) -> None:
        """Start everything, links first."""
        for name in SERVERS:
            part = self._part(name, self._begin_server)
            port, self.links[f"server:{name}"] = await stack.enter_async_context(relayed_port(part.where))
            self._urls[name] = f"http://127.0.0.1:{port}"
        for name in (*APIS, *WORKERS, INTAKE):
            self._databases[name], self.links[f"database:{name}"] = await stack.enter_async_context(
                relayed(self.genflow.database)
            )
        for name in APIS:
            part = self._part(name, self._begin_api)
            port, self.links[f"api:{name}"] = await stack.enter_async_context(relayed_port(part.where))
            self.addresses[name] = f"http://127.0.0.1:{port}"
        for name in WORKERS:
            self._part(name, self._begin_worker)
        if self.broker is not None:
            at = urlsplit(self.broker.url).port or 0
            port, self.links["broker"] = await stack.enter_async_context(relayed_port(lambda: at))
            self._broker_url = f"amqp://guest:{PASSWORD}@127.0.0.1:{port}"
            self._part(INTAKE, self._begin_intake)
        await self._command("migrate")
        for tenant in TENANTS:
            made = await self._command("keys", "create", tenant, f"--tenant={tenant}", "--json")
            self.keys[tenant] = made["key"]
        await asyncio.gather(*(self.start(self.parts[name]) for name in SERVERS))
        if self.broker is not None:
            await asyncio.to_thread(self.broker.wait)
        await asyncio.gather(*(self.start(part) for part in self.parts.values() if part.process is None))

    def _part(self, name: str, begin: Callable[[str, str], Awaitable[Process]]) -> Part:
        pages = self.genflow.folder / "pages"
        pages.mkdir(exist_ok=True)
        part = Part(name, lambda failpoints: begin(name, failpoints), Page(pages / name))
        self.parts[name] = part
        return part

    def _environment(self, name: str = "", failpoints: str = "") -> dict[str, str]:
        own = {"PYTHONPATH": f"{self._source}{os.pathsep}{ROOT}", "GENFLOW_FAILPOINTS": failpoints}
        return own | ({"GENFLOW_DATABASE_URL": self._databases[name]} if name else {})

    async def _command(self, *words: str) -> Any:
        terminal = Terminal(self.genflow.folder, "")
        own = self._environment() | {"GENFLOW_DATABASE_URL": self.genflow.database}
        ended = await terminal.run(*words, **own)
        assert ended.status == 0, ended.err
        return ended.json if "--json" in words else None

    async def _begin_server(self, name: str, failpoints: str) -> Process:
        own = {"name": f"{name}-", "seed": self._seed, "output_dir": self.genflow.folder / "servers"}
        own["journal"] = self.genflow.folder / "books"
        guard = ["--guard"] if self.guard else []
        words = ("simulate", "--json", *guard, *flags(_SERVER | own))
        return await self.genflow.start(name, *words, env=self._environment())

    async def _begin_api(self, name: str, failpoints: str) -> Process:
        settings = _JOBS | {"port": 0, "lease": LEASE_S, "auth": "keys"}
        return await self._begin(name, failpoints, "api", "--json", *flags(settings))

    async def _begin_worker(self, name: str, failpoints: str) -> Process:
        gpus = [f"--gpu={server}={url}" for server, url in self._urls.items()]
        settings = _WORKER | {"lease": LEASE_S, "log_level": "debug"}
        if self._broker_url and name == WORKERS[-1]:  # a second way in, which acknowledges once a job is over
            settings |= {"rabbitmq": self._broker_url, "rabbitmq_queue": QUEUE} | _JOBS
        return await self._begin(name, failpoints, "worker", "--json", *gpus, *flags(settings))

    async def _begin_intake(self, name: str, failpoints: str) -> Process:
        settings = _JOBS | {"lease": LEASE_S, "rabbitmq": self._broker_url, "rabbitmq_queue": QUEUE, "prefetch": 20}
        return await self._begin(name, failpoints, "intake", "--json", *flags(settings | {"log_level": "debug"}))

    async def _begin(self, name: str, failpoints: str, *words: str) -> Process:
        program = (sys.executable, "-m", "chaos.inject", self.genflow.folder / "pages" / name)
        return await self.genflow.start(name, *words, env=self._environment(name, failpoints), program=program)

    # --- what is done to it ---

    def note(self, kind: str, target: str, seconds: float = 0.0, detail: str = "") -> None:
        """Write down what happened just now, and for how long."""
        self.events.append(Event(time.time(), kind, target, seconds, detail))

    async def start(self, part: Part, failpoints: str = "") -> None:
        """Start a part that does not run, as often as it takes: what it needs may be away."""
        for _ in range(START_TRIES):
            count = len(self.genflow.processes)
            try:
                part.process, part.armed, part.frozen_at = await part.begin(failpoints), failpoints, None
                return
            except (AssertionError, TimeoutError) as fault:
                for process in self.genflow.processes[count:]:
                    if process.name == part.name:
                        await process.kill()
                self.note("no start", part.name, detail=str(fault)[-300:])
                await asyncio.sleep(0.2)
        raise RuntimeError(f"{part.name} does not start: {self.genflow.last_words()}")

    async def kill(self, part: Part, failpoints: str = "", down_s: float = 0.0) -> None:
        """SIGKILL, and after a while start again."""
        async with part.changing:
            if part.process is not None:
                self._weigh(part)
                await part.process.kill()
            await asyncio.sleep(down_s)
            part.thaw_after_s = LEASE_S * (0.5 + 1.5 * down_s)  # where the failpoint freezes it
            await self.start(part, failpoints)

    async def freeze(self, part: Part, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds."""
        async with part.changing:
            if part.process is None or not part.process.alive:
                return
            part.process.freeze()
            await asyncio.sleep(seconds)
            part.process.thaw()

    async def kill_postgres(self, down_s: float) -> None:
        """SIGKILL the postmaster, and each that starts in its place within these seconds."""
        note = Path(await self._data_directory()) / "postmaster.pid"
        killed: set[int] = set()
        end = time.monotonic() + down_s
        while not killed or time.monotonic() < end:
            with suppress(FileNotFoundError, IndexError, ValueError, ProcessLookupError):
                pid = int(note.read_text().split()[0])
                if pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
            await asyncio.sleep(0.02)

    async def _data_directory(self) -> str:
        while True:
            with suppress(psycopg.Error):
                [(folder,)] = await self.genflow.sql("show data_directory")
                return str(folder)
            await asyncio.sleep(0.1)

    async def kill_broker(self, down_s: float) -> None:
        """SIGKILL the broker; back once it answers again."""
        assert self.broker is not None
        async with self._changing_broker:
            await asyncio.to_thread(self.broker.kill)
            await asyncio.sleep(down_s)
            await asyncio.to_thread(self.broker.start)
            await asyncio.to_thread(self.broker.wait)

    async def knobs(self, server: str, **knobs: Any) -> None:
        """Turn knobs of a server, if it lives just now."""
        port = self.parts[server].port
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self.genflow.http.post(f"http://127.0.0.1:{port}/simulator/knobs", json=knobs) as reply:
                assert reply.status == 200, await reply.text()

    async def heal(self) -> None:
        """End every fault: links carry, disks have room, knobs rest, nothing is armed, everything runs."""
        for link in self.links.values():
            link.mend()
        for part in self.parts.values():
            part.page.fill(False)
        for name in SERVERS:
            await self.knobs(name, reply=None, error=None, view_fail=0, view_truncated=0)
        await asyncio.gather(*(self.kill(part) for part in self.parts.values() if part.armed))

    # --- keeping ---

    async def keep(self) -> None:
        """Look after every part, for ever."""
        sampled = 0.0
        while True:
            for part in self.parts.values():
                if part.process is not None and not part.changing.locked():
                    self._look(part, part.process)
            if time.monotonic() - sampled > SAMPLE_EVERY_S:
                sampled = time.monotonic()
                await self._sample()
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self, part: Part, process: Process) -> None:
        if not process.alive:
            why = re.findall(r"failpoint (\S+): kill", process.log.read_text(errors="replace"))
            status = process.handle.returncode
            self.note("died at" if why else "died", part.name, detail=why[-1] if why else f"exit {status}")
            part.process = None
            task = asyncio.create_task(self._start_again(part))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)
        elif part.armed and _stopped(process):
            if part.frozen_at is None:
                part.frozen_at = time.monotonic()
                self.note("frozen at", part.name, part.thaw_after_s, part.armed)
            elif time.monotonic() - part.frozen_at > part.thaw_after_s:
                part.frozen_at, part.armed = None, ""
                process.thaw()

    async def _start_again(self, part: Part) -> None:
        async with part.changing:
            if part.process is None:
                await self.start(part)

    async def _sample(self) -> None:
        for part in self.parts.values():
            self._weigh(part)
        with suppress(psycopg.Error):
            [(live,)] = await self.genflow.sql("select count(*) from genflow.jobs where state < 10")
            self.live.append((time.time(), live))

    def _weigh(self, part: Part) -> None:
        if part.process is not None and part.process.alive:
            with suppress(OSError, AssertionError):  # it has died this moment
                self.memory[part.name] = max(self.memory.get(part.name, 0), part.process.grown())


def _stopped(process: Process) -> bool:
    with suppress(OSError, IndexError):
        stat = Path(f"/proc/{process.handle.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"
    return False


@asynccontextmanager
async def house(source: Path, seed: int, *, guard: bool) -> AsyncIterator[House]:
    """A house of its own: embedded Postgres, a broker where this machine has one, and everything else."""
    async with AsyncExitStack() as stack:
        data, folder = stack.enter_context(open_folder()), stack.enter_context(open_folder())
        broker = stack.enter_context(running_broker()) if programs() else None
        postgres = EmbeddedPostgres(data / "data", state=data / "state")
        stack.callback(postgres.stop)
        conninfo = await asyncio.to_thread(postgres.start)
        genflow = await stack.enter_async_context(service(conninfo, folder))
        built = House(genflow, broker, source, seed, guard=guard)
        await built.build(stack)
        keeper = asyncio.create_task(built.keep())
        try:
            yield built
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await genflow.stop()
