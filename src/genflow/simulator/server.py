"""One simulated ComfyUI server: its memory of one boot, its port, and how it dies and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from genflow.simulator.books import Books
from genflow.simulator.catalog import Catalog
from genflow.simulator.folders import Folders
from genflow.simulator.journal import Journal
from genflow.simulator.knobs import Knobs
from genflow.simulator.memory import Memory
from genflow.simulator.options import SimulatorOptions
from genflow.simulator.prompts import Item, Prompts
from genflow.simulator.routes import build_app
from genflow.simulator.run import Bench, now_ms
from genflow.simulator.sockets import Message, Sockets
from genflow.simulator.worker import Worker

log = structlog.get_logger()


class Boot:
    """Everything that a restart wipes: queue, history, sockets, node cache, the number counter."""

    def __init__(self, server: SimulatedServer) -> None:
        self.prompts = Prompts()
        self.number = 0
        self.sockets = Sockets(server.knobs, server.rng, server.die)
        self.bench = Bench(
            server.knobs, server.books, self.sockets, server.folders, server.catalog, server.threads,
            Memory(server.knobs),
        )  # fmt: skip
        self.worker = Worker(self.prompts, self.bench, server.freeze)
        self.tasks = [
            asyncio.create_task(self.sockets.publish()),
            asyncio.create_task(self.worker.work()),
        ]

    def next_number(self) -> int:
        """The counter that orders prompts without a number of their own."""
        self.number += 1
        return self.number - 1

    def greeting(self, sid: str) -> list[Message]:
        """What a new socket hears first: the queue, and in mid-run of its client the node, without prompt id."""
        self.bench.books.note("socket")
        status = {"status": {"exec_info": {"queue_remaining": self.prompts.remaining}}, "sid": sid}
        told: list[Message] = [("status", status, sid)]
        if self.bench.client_id == sid and self.bench.last_node is not None:
            told.append(("executing", {"node": self.bench.last_node}, sid))
        return told

    async def end(self) -> None:
        """Stop the worker and the publisher, as a kill does."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class SimulatedServer:
    """A server on its own port. Books, knobs, the script and the files on disk survive a restart."""

    def __init__(self, index: int, options: SimulatorOptions, root: Path) -> None:
        self.name = f"{options.name}{index}"
        self.options = options
        self.port = options.port + index if options.port else 0
        self.rng = random.Random(options.seed + index)  # noqa: S311 (repeatable on purpose)
        speed, vram = options.of(index)
        journal = None if options.journal is None else options.journal / f"{self.name}.jsonl"
        self.books = Books(Journal(journal))
        self.knobs = Knobs(
            seconds_per_step=options.seconds_per_step,
            seconds_per_megapixel=options.seconds_per_megapixel,
            swap_seconds=options.swap_seconds,
            speed_factor=speed,
            vram=vram,
            busy_for=options.busy_for,
        )
        self.folders = Folders(root / self.name, self.rng, options.shared_output)
        self.guard_file = root / self.name / "genflow_guard.log"
        self.catalog = Catalog(options.models)
        self.script = deque(options.script)
        self.threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix=self.name)
        self.boot: Boot
        self._runner: web.AppRunner | None = None
        self._frozen_until = 0.0
        self._chores: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    @property
    def url(self) -> str:
        """The server's address, the same over restarts."""
        return f"http://{self.options.host}:{self.port}"

    async def start(self) -> None:
        """Boot and listen. Raises OSError if the port is taken."""
        self.boot = Boot(self)
        self.books.booted()
        self._frozen_until = 0.0
        self._runner = web.AppRunner(
            build_app(self), access_log=None, handle_signals=False, shutdown_timeout=0.2, keepalive_timeout=75
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.options.host, self.port, reuse_address=True, backlog=512)
        await site.start()
        addresses: list[Any] = self._runner.addresses
        self.port = addresses[0][1]

    async def _kill(self) -> None:
        """End the boot at once: the port closes, every connection is cut without a goodbye."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in list(runner.sites):
            await site.stop()
        for connection in list(runner.server.connections) if runner.server is not None else []:
            if connection.transport is not None:
                connection.transport.abort()
        await self.boot.end()
        await runner.cleanup()

    async def restart(self, down_s: float = 0.0) -> None:
        """Kill the server, keep its port closed for `down_s` seconds, boot again there with an empty temp."""
        async with self._changing:
            await self._kill()
            await asyncio.sleep(down_s)
            self.folders.wipe_temp()
            await self.start()
            self.books.note("restarted")

    def die(self) -> None:
        """End the process for good, as a client id that is an object does."""
        log.info("simulated server died", server=self.name)
        self._later(self._kill())

    def restart_later(self, down_s: float) -> None:
        """Restart once the answer that asked for it is out."""
        self._later(self.restart(down_s))

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def stop(self) -> None:
        """Stop for good and free the threads."""
        for chore in list(self._chores):
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._kill()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.books.close()

    def freeze(self, seconds: float) -> None:
        """Answer no HTTP request for `seconds` (the control routes go on)."""
        self._frozen_until = max(self._frozen_until, asyncio.get_running_loop().time() + seconds)

    async def thawed(self) -> None:
        """Wait until the server answers HTTP."""
        left = self._frozen_until - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)
            await self.thawed()

    def next_word(self) -> str:
        """The script's word for the prompt that arrives now."""
        if self.script:
            return self.script.popleft()
        shot = self.knobs.take("error")
        return "ok" if shot is None else str(shot["class"])

    def set_knobs(self, body: Any) -> float | None:
        """Set knobs and carry out actions. Returns the seconds of a wanted restart, for the caller to start last."""
        actions = self.knobs.set(body)
        if "script" in actions:
            self.script.extend(actions["script"])
        if "models" in actions:
            self.catalog.models.update(actions["models"])
        if "lacks" in actions:
            self.catalog.lacks = frozenset(actions["lacks"])
        if actions.get("release"):
            self.knobs.set({"hold": None})
            self.boot.bench.release.set()
        if "busy" in actions:
            self.stand(actions["busy"])
        if "freeze" in actions:
            self.freeze(actions["freeze"])
        restart: float | None = actions.get("restart")
        return restart

    def take_back(self, prompt_id: str) -> bool:
        """Take the first pending prompt of that id out of the queue; whether there was one."""
        taken = self.boot.prompts.delete_pending(prompt_id)
        if taken is None:
            return False
        self.books.removed(prompt_id, taken.submit)
        self.boot.worker.queue_updated()
        return True

    def stand(self, count: int) -> None:
        """Put `count` prompts of another client into the queue: for ever, or running `busy_for` seconds each."""
        seconds = self.knobs.get("busy_for")
        for _ in range(count):
            prompt_id = str(uuid.UUID(bytes=self.rng.randbytes(16), version=4))
            sizes: dict[str, Any] = {"width": 8, "height": 8, "batch_size": 1, "color": 0, "_nonce": prompt_id}
            graph: dict[str, Any] = {
                "1": {"class_type": "EmptyImage", "inputs": sizes},
                "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
            }
            extra = {"client_id": "another-client", "create_time": now_ms()}
            item = Item(self.boot.next_number(), prompt_id, graph, extra, ["2"], seconds=seconds)
            if seconds:
                self.boot.prompts.put(item)
            else:
                self.boot.prompts.standing.append(item)
        self.boot.worker.queue_updated()


@contextlib.asynccontextmanager
async def running(options: SimulatorOptions | None = None) -> AsyncIterator[list[SimulatedServer]]:
    """Run simulated servers in this process; they are stopped, and a temporary folder removed, at the end.

    Raises OSError if a port is taken.
    """
    options = options or SimulatorOptions()
    temporary = None if options.output_dir else tempfile.mkdtemp(prefix="genflow-simulator-")
    root = options.output_dir or Path(str(temporary))
    servers: list[SimulatedServer] = []
    try:
        for index in range(options.count):
            servers.append(SimulatedServer(index, options, root))
        for server in servers:
            await server.start()
            server.set_knobs(options.knobs)
            if options.busy:
                server.stand(options.busy)
        yield servers
    finally:
        for server in servers:
            await server.stop()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
