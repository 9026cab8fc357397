"""One execution of a prompt: the order of its events, its times, and how it may end."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from genflow.simulator import faults, pictures
from genflow.simulator.books import Books
from genflow.simulator.catalog import Catalog, spec_of
from genflow.simulator.faults import NodeFault, Planned
from genflow.simulator.folders import Folders
from genflow.simulator.graph import NodeCache, cache_keys, is_link, running_order
from genflow.simulator.kinds import COMPUTE, QUICK
from genflow.simulator.knobs import Knobs
from genflow.simulator.memory import Memory
from genflow.simulator.nodes import SAMPLERS, Latent, Result, Work, pixels_of, printed
from genflow.simulator.prompts import Item
from genflow.simulator.sockets import PREVIEW, Sockets, plain_preview, png_frame, preview_with_metadata

AHEAD_S = 0.003
"""How far a node may be ahead of its time, so that writing the last file does not make the whole run late."""


class InterruptedRunError(Exception):
    """The run was told to stop and has noticed it."""


@dataclass
class Bench:
    """What every run of one boot shares."""

    knobs: Knobs
    books: Books
    sockets: Sockets
    folders: Folders
    catalog: Catalog
    threads: Executor
    memory: Memory
    cache: NodeCache = field(default_factory=NodeCache)
    interrupt: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    client_id: Any = None
    last_node: str | None = None
    """The node that runs now, for a client that connects again in mid-run."""


def now_ms() -> int:
    """Wall-clock milliseconds, as in ComfyUI's timestamps."""
    return int(time.time() * 1000)


class Run:
    """Executes one item. `entry` is its history entry afterwards."""

    def __init__(self, item: Item, bench: Bench) -> None:
        self.item = item
        self.bench = bench
        self.client_id = item.extra_data.get("client_id")
        self.messages: list[list[Any]] = []
        self.outputs: dict[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.results: dict[str, Result] = {}
        self.executed: list[str] = []
        self.order: list[str] = []
        self.keys: dict[str, str] = {}
        self.current = ""
        self.ran = 0
        self.interrupted = False
        self.due = 0.0
        """When the run ought to be where it is, on the loop's clock; a late node is made up for by later ones."""
        self.slowness = 10.0 if item.word == "slow" else 1.0
        self.planned: Planned | None = faults.planned(item.word, item.graph)
        mine = item.seconds is None  # a busy neighbour's prompt uses up no knob
        self.empty = mine and bench.knobs.take("empty_outputs") is not None
        self.unreal = mine and bench.knobs.take("cached_without_file") is not None
        self.work = Work(
            bench.folders,
            bench.catalog,
            item.graph,
            self._pnginfo(),
            self._wrote,
            write_files=not (self.empty or self.unreal),
            save_delay_s=bench.knobs.get("save_delay_ms") / 1000 if mine else 0.0,
            pixel_limit=bench.memory.pixel_limit,
            video_bytes=bench.knobs.get("video_bytes"),
        )

    def _pnginfo(self) -> dict[str, Any]:
        info = self.item.extra_data.get("extra_pnginfo")
        return info if isinstance(info, dict) else {}

    def _wrote(self, kind: str, subfolder: str, name: str) -> None:
        folder = self.bench.folders.paths[kind]
        self.bench.books.wrote(self.item.prompt_id, self.item.submit, kind, subfolder, name, folder)

    @property
    def outcome(self) -> str:
        """How it ended: `success`, `interrupted`, or the type of its error."""
        event, told = self.messages[-1]
        return str(told["exception_type"]) if event == "execution_error" else event.removeprefix("execution_")

    @property
    def entry(self) -> dict[str, Any]:
        """The history entry."""
        success = bool(self.messages) and self.messages[-1][0] == "execution_success"
        status = {
            "status_str": "success" if success else "error",
            "completed": success,
            "messages": self.messages,
        }
        return {"prompt": self.item.shown(), "outputs": self.outputs, "status": status, "meta": self.meta}

    async def execute(self) -> None:
        """Run to an end: success, error or interruption. Never raises but for cancellation."""
        self.due = asyncio.get_running_loop().time()
        self._message("execution_start", {})
        try:
            await self._nodes()
        except InterruptedRunError:
            self.interrupted = True
            self._message("execution_interrupted", self._where(), broadcast=True)
        except NodeFault as fault:
            self._message("execution_error", self._error(fault))
        except Exception as fault:
            kind = type(fault).__name__
            self._message("execution_error", self._error(NodeFault(kind, f"{fault}\n")))
        else:
            if self.empty:
                self.outputs, self.meta = {}, {}
            self._message("execution_success", {})
        finally:
            self.bench.last_node = None

    async def _nodes(self) -> None:
        graph, cache = self.item.graph, self.bench.cache
        loop = asyncio.get_running_loop()
        self.keys = await loop.run_in_executor(
            self.bench.threads, cache_keys, graph, self.item.outputs, self.bench.folders
        )
        if self.unreal:
            await self._pretend()
        fails = None if self.planned is None else self.planned.node_id  # the cache answers for every other node
        cached = [
            node_id
            for node_id in graph
            if node_id in self.keys and node_id != fails and (self.unreal or self.keys[node_id] in cache)
        ]
        self._message("execution_cached", {"nodes": cached})
        self.order = running_order(graph, self.item.outputs, cached.__contains__)
        waits_at = self.order[min(1, len(self.order) - 1)]
        fails_at = fails if fails in self.order else waits_at
        if self.item.seconds is None and not all(self.keys[node_id] in cache for node_id in self.order):
            self.bench.memory.grow()
            if self.planned is None and self.bench.memory.free < 0:
                self.planned = Planned(faults.out_of_memory(), None)
        for node_id in self.order:
            self.current = node_id
            self._check_interrupt()
            if self.planned is not None and node_id == fails_at:
                self._show_running(node_id)
                raise self.planned.fault
            known = self.results.get(node_id) if self.unreal else cache.get(self.keys[node_id])
            if known is not None:
                self._show_cached(node_id, known)
                continue
            await self._before_node()
            self._show_running(node_id)
            if self.item.word == "drop" and self.ran == 1:
                self.bench.sockets.abort(self.client_id)
            if self.item.word == "hang" and node_id == waits_at:
                await self.bench.interrupt.wait()
                self._check_interrupt()
            result = await self._compute(node_id)
            cache.put(self.keys[node_id], result)
            self._finish(node_id, result)
        await self._until(self.due)

    async def _pretend(self) -> None:
        # A run that the cache answers whole although its files are gone: computed unseen, nothing written.
        for node_id in running_order(self.item.graph, self.item.outputs, lambda _: False):
            self.results[node_id] = await self._in_thread(node_id)

    async def _before_node(self) -> None:
        self.ran += 1
        knobs = self.bench.knobs
        if knobs.flag("worker_dead"):
            await asyncio.Event().wait()  # as a worker thread that a SystemExit ended: only a restart helps
        if knobs.get("hold") == self.ran:
            self.bench.release.clear()
            self.bench.books.note("held", self.item.prompt_id)
            waits = [asyncio.ensure_future(event.wait()) for event in (self.bench.release, self.bench.interrupt)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            self.due = asyncio.get_running_loop().time()
            self._check_interrupt()

    def _check_interrupt(self) -> None:
        if self.bench.interrupt.is_set():
            raise InterruptedRunError

    # Computing

    def _inputs(self, node_id: str) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, value in self.item.graph[node_id]["inputs"].items():
            if is_link(value):
                source = self.results.get(value[0]) or self.bench.cache.get(self.keys[value[0]])
                given[name] = source.values[value[1]] if source is not None else None
            else:
                given[name] = value
        return given

    async def _in_thread(self, node_id: str) -> Result:
        compute = COMPUTE[self.item.graph[node_id]["class_type"]]
        return await asyncio.get_running_loop().run_in_executor(
            self.bench.threads, compute, self._inputs(node_id), self.work
        )

    async def _compute(self, node_id: str) -> Result:
        class_type = self.item.graph[node_id]["class_type"]
        inputs = self._inputs(node_id)
        if class_type in SAMPLERS:
            await self._load(inputs["model"].checkpoint)
            result = await self._sample(node_id, inputs["steps"])
        elif class_type in QUICK:
            result = COMPUTE[class_type](inputs, self.work)
        else:
            result = await self._in_thread(node_id)
        for frame in result.frames:
            self._progress(node_id, 0, len(result.frames))
            self.bench.sockets.send(PREVIEW, png_frame(frame), self.client_id)
        if class_type not in SAMPLERS:
            pixels = pixels_of(list(result.values)) or pixels_of(list(inputs.values()))
            await self._spend(pixels / 1e6 * self.bench.knobs.get("seconds_per_megapixel"))
        if self.item.seconds is not None and self.ran == 1:
            await self._busy(self.item.seconds)
        self.results[node_id] = result
        return result

    async def _load(self, checkpoint: str) -> None:
        memory = self.bench.memory
        if memory.load(checkpoint):
            if memory.free < 0:
                memory.model = None
                raise faults.out_of_memory()
            await self._spend(self.bench.knobs.get("swap_seconds"))

    async def _spend(self, seconds: float) -> None:
        self.due += seconds * self.slowness / self.bench.knobs.get("speed_factor")
        if seconds:
            await self._until(self.due - AHEAD_S)

    async def _until(self, moment: float) -> None:
        left = moment - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)

    async def _busy(self, seconds: float) -> None:
        slices = max(1, int(seconds * 10))
        for _ in range(slices):
            await self._spend(seconds / slices)
            self._check_interrupt()

    async def _sample(self, node_id: str, steps: int) -> Result:
        painting = asyncio.ensure_future(self._in_thread(node_id))
        try:
            for step in range(1, steps + 1):
                await self._spend(self.bench.knobs.get("seconds_per_step"))
                self._check_interrupt()
                jpeg = None
                if self.bench.knobs.flag("previews"):
                    jpeg = await self._preview(await painting, step / steps)
                self._progress(node_id, step, steps, jpeg)
            return await painting
        finally:
            if not painting.done():
                painting.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _preview(self, result: Result, share: float) -> bytes:
        latent: Latent = result.values[0]
        return await asyncio.get_running_loop().run_in_executor(
            self.bench.threads, pictures.preview_jpeg, latent.pictures[0], share
        )

    # Telling

    def _send(self, event: str, data: dict[str, Any], *, broadcast: bool = False) -> None:
        # Without a client id only progress, previews and interruptions are sent, and those to everybody.
        if self.client_id is not None or broadcast:
            self.bench.sockets.send(event, data, self.client_id)

    def _message(self, event: str, data: dict[str, Any], *, broadcast: bool = False) -> None:
        told: dict[str, Any] = {"prompt_id": self.item.prompt_id} if event != "execution_cached" else {}
        told |= data
        told |= {"prompt_id": self.item.prompt_id, "timestamp": now_ms()}
        self.messages.append([event, told])
        self._send(event, told, broadcast=broadcast)

    def _where(self) -> dict[str, Any]:
        node_id = self.current or self.item.outputs[0]
        node_class = self.item.graph[node_id]["class_type"]
        return {"node_id": node_id, "node_type": node_class, "executed": list(self.executed)}

    def _error(self, fault: NodeFault) -> dict[str, Any]:
        where = self._where()
        if fault.node_id is not None:
            where |= {"node_id": fault.node_id, "node_type": fault.node_class}
        inputs = self._inputs(self.current) if self.current in self.keys else {}
        return where | {
            "exception_message": fault.message,
            "exception_type": fault.kind,
            "traceback": faults.TRACEBACK,
            "current_inputs": {name: [printed(value)] for name, value in inputs.items()},
            "current_outputs": list(self.order),
        }

    def _state(self, node_id: str, value: float, high: float, state: str) -> None:
        self.states[node_id] = {
            "value": value,
            "max": high,
            "state": state,
            "node_id": node_id,
            "prompt_id": self.item.prompt_id,
            "display_node_id": node_id,
            "parent_node_id": None,
            "real_node_id": node_id,
        }
        data = {"prompt_id": self.item.prompt_id, "nodes": {each: dict(told) for each, told in self.states.items()}}
        self._send("progress_state", data, broadcast=True)

    def _show_running(self, node_id: str) -> None:
        self._state(node_id, 0.0, 1.0, "running")
        if self.client_id is not None:
            self.bench.last_node = node_id
            self._send("executing", {"node": node_id, "display_node": node_id, "prompt_id": self.item.prompt_id})

    def _progress(self, node_id: str, value: int, high: int, jpeg: bytes | None = None) -> None:
        self._state(node_id, value, high, "running")
        progress = {"value": value, "max": high, "prompt_id": self.item.prompt_id, "node": node_id}
        if jpeg is not None and self.bench.sockets.wants_metadata(self.client_id):
            metadata: dict[str, Any] = {"node_id": node_id, "prompt_id": self.item.prompt_id}
            metadata |= {"display_node_id": node_id, "parent_node_id": None, "real_node_id": node_id}
            metadata["image_type"] = "image/jpeg"
            frame = preview_with_metadata(jpeg, json.dumps(metadata).encode())
            self.bench.sockets.send(PREVIEW, frame, self.client_id)
            jpeg = None
        self._send("progress", progress, broadcast=True)
        if jpeg is not None:
            self.bench.sockets.send(PREVIEW, plain_preview(jpeg), self.client_id)

    def _finish(self, node_id: str, result: Result) -> None:
        self.executed.append(node_id)
        self._report(node_id, result)
        high = self.states[node_id]["max"]
        self._state(node_id, high, high, "finished")

    def _show_cached(self, node_id: str, result: Result) -> None:
        spec = spec_of(self.item.graph[node_id]["class_type"])
        if spec is not None and spec.output_node:
            self._report(node_id, result)
            self._state(node_id, 1, 1, "finished")

    def _report(self, node_id: str, result: Result) -> None:
        if result.ui is None or self.empty:
            return
        self.outputs[node_id] = result.ui
        self.meta[node_id] = {
            "node_id": node_id,
            "display_node": node_id,
            "parent_node": None,
            "real_node_id": node_id,
        }
        told = {"node": node_id, "display_node": node_id, "output": result.ui, "prompt_id": self.item.prompt_id}
        self._send("executed", told)
