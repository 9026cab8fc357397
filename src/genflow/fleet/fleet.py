"""The servers of one worker, probed all the time, and the choice among them.

A probe asks for the depth (GET /prompt, 39 bytes) and the boot marker; a server that comes back is asked once more for
what it can do. Quarantine stands in the database, so that every worker keeps away; following an open submit is never
kept out by it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from uuid import UUID

import aiohttp
import structlog

from genflow.comfy import ComfyServer
from genflow.comfy.errors import ComfyError
from genflow.fleet.server import FleetServer, fleet_name, is_loopback
from genflow.loops import cut_off, happens
from genflow.queue.registry import Registry, ServerState, Standing

log = structlog.get_logger()


class Fleet:
    """Keeps the health of each server and says where a new prompt goes."""

    def __init__(
        self,
        registry: Registry,
        session: aiohttp.ClientSession,
        *,
        gpus: dict[str, str],
        instance: str,
        slots: int,
        probe_s: float,
        quarantine_s: float,
        alive_s: float,
    ) -> None:
        self._registry = registry
        self._session = session
        self._gpus = gpus
        self._instance = instance
        self._slots = slots
        self._probe_s = probe_s
        self._quarantine_s = quarantine_s
        self._alive_s = alive_s
        self._tasks: list[asyncio.Task[None]] = []
        self._probe_now: dict[int, asyncio.Event] = {}
        self.servers: list[FleetServer] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when a server became healthy or ready for new work."""

    async def start(self) -> None:
        """Register each server and probe it once. GenflowError `server_ambiguous` for a name or address in dispute."""
        for order, (given, url) in enumerate(self._gpus.items()):
            name = fleet_name(given, url, self._instance)
            server_id = await self._registry.register_server(
                name=name, url=url, slots=self._slots, loopback=is_loopback(url), alive_s=self._alive_s
            )
            comfy = ComfyServer(name, url, self._session)
            self.servers.append(FleetServer(server_id, name, comfy, self._slots, order))
            self._probe_now[server_id] = asyncio.Event()
        await asyncio.gather(*(self._probe(server) for server in self.servers))
        self._tasks = [asyncio.create_task(self._probe_loop(server)) for server in self.servers]

    async def stop(self) -> None:
        """End the probes."""
        await cut_off(self._tasks)

    def by_id(self, server_id: int | None) -> FleetServer | None:
        """One of this worker's servers."""
        return next((server for server in self.servers if server.id == server_id), None)

    @property
    def reachable(self) -> list[FleetServer]:
        """Servers whose last probe was answered: open submits there can be followed."""
        return [server for server in self.servers if server.healthy]

    def choices(self) -> list[FleetServer]:
        """The servers that take a new prompt now, best first: fewest prompts ahead, then the order given."""
        able = [server for server in self.servers if server.takes_new and server.free_slots > 0]
        return sorted(able, key=lambda server: (server.ahead, server.order))

    def take_slot(self, server: FleetServer, job_id: UUID) -> None:
        """This worker's job uses a slot of the server from now on."""
        server.ours.add(job_id)

    def free_slot(self, server: FleetServer, job_id: UUID) -> None:
        """The job's run is over, or it left: its slot may be filled while its files are still collected."""
        if job_id in server.ours:
            server.ours.discard(job_id)
            self.on_change()

    def trouble(self, server: FleetServer, why: str) -> None:
        """A call to this server found it away: no new work until a probe was answered."""
        if server.healthy:
            log.warning("server_down", server=server.name, why=why)
        server.healthy = False
        self._probe_now[server.id].set()

    async def quarantine(self, server: FleetServer, reason: str) -> None:
        """Keep new work from it, in the whole fleet, until a new boot or for the set time."""
        log.warning("server_quarantined", server=server.name, reason=reason)
        await self._registry.quarantine(server.id, reason, seconds=self._quarantine_s)
        server.standing = Standing(ServerState.QUARANTINED, reason)  # now, not only once a probe has read it back
        self._probe_now[server.id].set()

    async def _probe_loop(self, server: FleetServer) -> None:
        while True:
            await happens(self._probe_now[server.id], self._probe_s)
            if self._probe_now[server.id].is_set():
                self._probe_now[server.id].clear()
                await asyncio.sleep(min(0.2, self._probe_s))  # a server that just failed gets a moment
            try:
                await self._probe(server)
            except Exception:
                log.exception("probe_failed", server=server.name)

    async def _probe(self, server: FleetServer) -> None:
        was_healthy, was_new = server.healthy, server.takes_new
        capabilities: bytes | None = None
        jobs_route: bool | None = None
        try:
            async with asyncio.timeout(self._probe_s):
                before = len(server.ours)
                depth = await server.comfy.depth()
                server.boot = await server.comfy.read_boot()
                jobs_route = await server.comfy.has_jobs_route()
            if not was_healthy:
                capabilities = await self._learn(server)
        except (ComfyError, TimeoutError) as error:
            healthy, why = False, str(error) or f"no answer within {self._probe_s:g} s"
        else:
            healthy, why = True, ""
            server.others = max(0, depth - before)
        server.standing = await self._registry.probed(
            server.id,
            url=server.comfy.url,
            healthy=healthy,
            boot=server.boot if healthy else None,
            has_jobs_route=jobs_route,
            capabilities_hash=capabilities,
        )
        server.healthy = healthy
        if healthy and not was_healthy:
            log.info("server_up", server=server.name, depth=depth, boot=str(server.boot))
        elif was_healthy and not healthy:
            log.warning("server_down", server=server.name, why=why)
        if (server.takes_new and not was_new) or (healthy and not was_healthy):
            self.on_change()

    async def _learn(self, server: FleetServer) -> bytes | None:
        """Keep what the server can do. Without that it still works: submissions are then not checked against it."""
        try:
            body = json.dumps(await server.comfy.object_info(), sort_keys=True)
        except ComfyError as error:
            log.warning("object_info_unavailable", server=server.name, why=str(error))
            return None
        digest = hashlib.sha256(body.encode()).digest()
        await self._registry.save_object_info(digest, body)
        return digest
