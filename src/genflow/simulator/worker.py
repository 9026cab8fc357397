"""The one worker of a simulated server: takes prompts in order, runs them, enters them in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from genflow.simulator.prompts import Item, Prompts
from genflow.simulator.run import Bench, Run


class Worker:
    """Runs one prompt at a time until it is cancelled."""

    def __init__(self, prompts: Prompts, bench: Bench, freeze: Callable[[float], None]) -> None:
        self._prompts = prompts
        self._bench = bench
        self._freeze = freeze
        self._free_wanted: set[str] = set()

    def queue_updated(self) -> None:
        """Tell all sockets how many prompts remain."""
        status = {"status": {"exec_info": {"queue_remaining": self._prompts.remaining}}}
        self._bench.sockets.send("status", status)

    async def work(self) -> None:
        """Take and run prompts for ever."""
        while True:
            item = await self._prompts.take()
            if self._bench.knobs.flag("worker_dead"):
                await asyncio.Event().wait()  # it stays in queue_running for ever
            await self._run(item)

    async def _run(self, item: Item) -> None:
        bench = self._bench
        line = bench.books.started(item.prompt_id, item.submit)
        bench.client_id = item.extra_data.get("client_id")
        bench.interrupt.clear()
        self.queue_updated()
        run = Run(item, bench)
        try:
            await run.execute()
            # Success is told before the entry exists; until then the prompt stands in queue_running.
            await asyncio.sleep(bench.knobs.get("history_delay_ms") / 1000)
        except asyncio.CancelledError:
            bench.books.killed(line, item.submit)
            raise
        self._prompts.done(item, run.entry)
        bench.books.ended(line, item.submit, run.outcome, interrupted=run.interrupted)
        self.queue_updated()
        if run.client_id is not None:
            bench.sockets.send("executing", {"node": None, "prompt_id": item.prompt_id}, run.client_id)
        stall = bench.knobs.take("gc_stall")
        if stall is not None:
            self._freeze(stall["seconds"])
            bench.sockets.pause(stall["seconds"])
        self._free()

    def free(self, wanted: set[str]) -> None:
        """Unload models, with `free_memory` drop the node cache too: now, or after the running prompt."""
        self._free_wanted |= wanted
        if self._prompts.running is None:
            self._free()

    def _free(self) -> None:
        wanted, self._free_wanted = self._free_wanted, set()
        if not wanted:
            return
        self._bench.memory.unload()
        if "free_memory" in wanted:
            self._bench.cache.clear()
        self._bench.books.note("freed")
