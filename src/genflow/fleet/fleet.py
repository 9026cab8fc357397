"""The servers of one worker, probed all the time, and the choice among them.

A probe asks for the depth (GET /prompt, 39 bytes) and the boot marker; a server that comes back, or started anew, is
asked once more for what it runs on and what it can do. Quarantine stands in the database, so that every worker keeps
away; following an open submit is never kept out by it, nor by the breaker.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import aiohttp
import structlog

from genflow.backoff import doubling
from genflow.comfy import ComfyError, ComfyServer, access
from genflow.failures import NEEDS_RUN
from genflow.fleet import choice
from genflow.fleet.breaker import Breaker
from genflow.fleet.choice import Lengths, Room, choice_line
from genflow.fleet.probe import Seen, Unanswered, probe
from genflow.fleet.server import FleetServer, fleet_name, is_loopback
from genflow.fleet.trial import TrialFailed, run_trial
from genflow.loops import cut_off, happens
from genflow.needs import without_uploads
from genflow.protocol import boottime
from genflow.queue.registry import Registry, ServerState, Standing
from genflow.settings import ServerSettings
from genflow.telemetry import metrics

log = structlog.get_logger()

STATS_S = 60.0
"""Seconds between two looks at what a server runs on."""
LEARN_S = 180.0
"""Seconds after which a server is asked again what it can do: a model may have been added by hand."""
LEARN_AGAIN_S = 15.0
"""The same after it could not tell."""
IDLE_S = 1.0
"""Seconds without anything to claim after which a server is given a prompt that waits at another one."""
TRIAL_S = 30.0
"""Seconds that a distrusted server has for a tiny prompt."""
LONGEST_S = 3_600.0
"""Longest time between two trials of one server, in seconds."""


@dataclass(slots=True)
class _Told:
    """What was said and asked of a server, so that it is said once and asked seldom."""

    up: bool | None = None
    boot: UUID | None = None
    stats_at: float | None = None
    learned: UUID | None = None
    learn_at: float = 0.0
    failed_trials: int = 0


class Fleet:
    """Keeps the health of each server and says where a new prompt goes."""

    def __init__(
        self,
        registry: Registry,
        session: aiohttp.ClientSession,
        *,
        gpus: Mapping[str, ServerSettings],
        instance: str,
        slots: int,
        probe_s: float,
        quarantine_s: float,
        alive_s: float,
        no_server_s: float = 5.0,
        max_queue: int | None = None,
    ) -> None:
        self._registry = registry
        self._session = session
        self._gpus = gpus
        self._instance = instance
        self._slots = slots
        self._probe_s = probe_s
        self._no_server_s = no_server_s
        self._quarantine_s = quarantine_s
        self._alive_s = alive_s
        self._max_queue = max_queue
        self._tasks: list[asyncio.Task[None]] = []
        self._trials: set[asyncio.Task[None]] = set()
        self._probe_now: dict[int, asyncio.Event] = {}
        self._told: dict[int, _Told] = {}
        self._room = Room.SOME
        self.servers: list[FleetServer] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called when a server became healthy or ready for new work."""
        self.on_choice: Callable[[str, Lengths], None] = lambda chosen, lengths: None
        """Called where one of several servers was chosen: its name, and the queue lengths, by the names given."""

    async def start(self) -> None:
        """Register each server and probe it once.

        GenflowError `server_ambiguous` for a name or address in dispute, `ca_file_unusable` for a server's ca_file.
        """
        for order, (given, settings) in enumerate(self._gpus.items()):
            comfy = ComfyServer(
                fleet_name(given, settings.url, self._instance),
                settings.url,
                self._session,
                access(settings.sent_headers(), settings.ca_file),
            )
            slots = settings.slots or self._slots
            known = await self._registry.register_server(
                name=comfy.name,
                url=comfy.url,
                slots=slots,
                tags=settings.tags,
                vram=settings.vram,
                loopback=is_loopback(comfy.url),
                alive_s=self._alive_s,
            )
            server = FleetServer(known.id, comfy.name, given, comfy, slots, order, Breaker(base_s=self._probe_s))
            server.vram = settings.vram
            self.servers.append(server)
            self._probe_now[known.id] = asyncio.Event()
            self._told[known.id] = _Told(boot=known.boot)
        await asyncio.gather(*(self._probe(server) for server in self.servers))
        self._tasks = [asyncio.create_task(self._probe_loop(server)) for server in self.servers]

    async def stop(self) -> None:
        """End the probes and trials."""
        await cut_off([*self._tasks, *self._trials])

    def by_id(self, server_id: int | None) -> FleetServer | None:
        """One of this worker's servers."""
        return next((server for server in self.servers if server.id == server_id), None)

    @property
    def reachable(self) -> list[FleetServer]:
        """Servers whose last probe was answered: open submits there can be followed."""
        return [server for server in self.servers if server.healthy]

    def choices(self) -> list[FleetServer]:
        """The servers that take a new prompt now, best first."""
        return choice.choices(self.servers, max_queue=self._max_queue)

    def lengths(self) -> Lengths:
        """The queue lengths by which a choice is made."""
        return choice.lengths(self.servers)

    def chose(self, server: FleetServer, lengths: Lengths) -> None:
        """Tell that a new prompt goes to this server; of a worker with one server there is nothing to tell."""
        if len(self.servers) > 1:
            log.info("scheduler", chosen=server.given, lengths=lengths, said=choice_line(server.given, lengths))
            self.on_choice(server.given, lengths)

    def take_slot(self, server: FleetServer, job_id: UUID) -> None:
        """This worker's job uses a slot of the server from now on."""
        server.ours.add(job_id)
        server.idle_since = None

    def nothing_for(self, servers: Sequence[FleetServer]) -> None:
        """Nothing that waits could be claimed for these: those without any prompt idle."""
        for server in self.servers:
            if server not in servers or server.ahead:
                server.idle_since = None
            elif server.idle_since is None:
                server.idle_since = boottime()

    def take_spare(self, instead_of: FleetServer, able: Callable[[int], bool]) -> FleetServer | None:
        """Another server that idles while nothing waits, of those `able`; whoever is told of it has it for a while."""
        for server in self.servers:
            idle = server.idle_since is not None and boottime() - server.idle_since >= IDLE_S
            if idle and server is not instead_of and server.takes_new and able(server.id):
                server.idle_since = None
                return server
        return None

    def free_slot(self, server: FleetServer, job_id: UUID) -> None:
        """The job's run is over, or it left: its slot may be filled while its files are still collected."""
        if job_id in server.ours:
            server.ours.discard(job_id)
            self.on_change()

    def trouble(self, server: FleetServer, why: str) -> None:
        """A call to this server found it away: its breaker opens, and it is probed at once."""
        self._down(server, why)
        self._probe_now[server.id].set()

    def learn_soon(self) -> None:
        """Ask each server anew what it has: somebody wants something of it that it was not known to have."""
        for server in self.servers:
            self._told[server.id].learn_at = 0.0
            self._probe_now[server.id].set()

    async def quarantine(self, server: FleetServer, reason: str) -> None:
        """Keep new work from it, in the whole fleet, until a new boot or for the set time, or until it ran a trial."""
        log.warning("server_quarantined", server=server.name, reason=reason, next="genflow servers list")
        needs_run = reason in NEEDS_RUN
        await self._registry.quarantine(server.id, reason, seconds=self._quarantine_s, needs_run=needs_run)
        server.standing = Standing(ServerState.QUARANTINED, reason)  # now, not only once a probe has read it back
        self._probe_now[server.id].set()

    async def _probe_loop(self, server: FleetServer) -> None:
        while True:
            pause_s = self._probe_s if self.reachable else self._no_server_s
            await happens(self._probe_now[server.id], pause_s)
            if self._probe_now[server.id].is_set():
                self._probe_now[server.id].clear()
                await asyncio.sleep(min(0.2, self._probe_s))  # a server that just failed gets a moment
            try:
                await self._probe(server)
            except Exception:
                log.exception("probe_failed", server=server.name, next="genflow servers list")

    async def _probe(self, server: FleetServer) -> None:
        told, was_healthy, was_new = self._told[server.id], server.healthy, server.takes_new
        now = boottime()
        stats = not was_healthy or told.stats_at is None or now - told.stats_at > STATS_S
        seen, capabilities, why = None, None, ""
        before = len(server.ours)
        try:
            seen = await probe(server.comfy, within_s=self._probe_s, stats=stats)
        except Unanswered as error:
            why = str(error)
        if seen is not None:
            told.stats_at = now if stats else told.stats_at
            if told.learned != seen.boot or now > told.learn_at:
                capabilities = await self._learn(server)
                told.learned = seen.boot
                told.learn_at = now + (LEARN_S if capabilities is not None else LEARN_AGAIN_S)
            server.boot, server.guard = seen.boot, seen.guard
            server.device = device = seen.device or server.device
            server.vram = self._gpus[server.given].vram or (None if device is None else device.vram_total)
        found = await self._registry.probed(
            server.id,
            url=server.comfy.url,
            healthy=seen is not None,
            boot=None if seen is None else seen.boot,
            has_jobs_route=None if seen is None else seen.jobs_route,
            guard=None if seen is None else seen.guard,
            vram=None if seen is None else server.vram,
            capabilities_hash=capabilities,
            trial_s=2 * TRIAL_S,
        )
        server.standing, server.capabilities = found.standing, found.capabilities
        if seen is None:
            self._down(server, why)
        else:
            server.others = max(0, seen.depth - before)
            server.strangers = max(0, seen.depth - found.accepted)
            self._up(server, seen)
        if found.trial:
            self._begin_trial(server)
        self._tell_room()
        if (server.takes_new and not was_new) or (seen is not None and not was_healthy):
            self.on_change()

    def _begin_trial(self, server: FleetServer) -> None:
        task = asyncio.create_task(self._trial(server), name=f"trial of {server.name}")
        self._trials.add(task)
        task.add_done_callback(self._trials.discard)

    async def _trial(self, server: FleetServer) -> None:
        """Have a distrusted server run a tiny prompt; free again after a success, else distrusted for longer."""
        told, reason = self._told[server.id], server.standing.reason or "a trial failed"
        try:
            await run_trial(server.comfy, within_s=TRIAL_S)
        except TrialFailed as error:
            told.failed_trials += 1
            metrics.TRIALS.labels(server.name, "failed").inc()
            seconds = doubling(told.failed_trials, base_s=self._quarantine_s, cap_s=max(LONGEST_S, self._quarantine_s))
            await self._registry.quarantine(server.id, reason, seconds=seconds, needs_run=True)
            log.warning(
                "trial_failed", server=server.name, why=str(error), again_s=seconds, next="genflow servers list"
            )
        else:
            told.failed_trials = 0
            metrics.TRIALS.labels(server.name, "passed").inc()
            if await self._registry.trial_passed(server.id):
                log.info("trial_passed", server=server.name, was=reason)
        self._probe_now[server.id].set()

    def _up(self, server: FleetServer, seen: Seen) -> None:
        told = self._told[server.id]
        server.healthy = True
        server.breaker.answered(boottime())
        if told.boot is not None and told.boot != seen.boot:
            log.warning("server_restarted", server=server.name, old=str(told.boot), new=str(seen.boot))
        told.boot = seen.boot
        if told.up is not True:
            told.up = True
            device = None if server.device is None else server.device.name
            log.info("server_up", server=server.name, depth=seen.depth, boot=str(seen.boot), device=device)

    def _down(self, server: FleetServer, why: str) -> None:
        told = self._told[server.id]
        server.healthy = False
        server.why = why
        server.breaker.trouble(boottime())
        if told.up is not False:
            told.up = False
            log.warning("server_down", server=server.name, why=why, next="genflow servers list")

    def _tell_room(self) -> None:
        """Say once that there is no server for new work, and once that there is one again."""
        found = choice.room(self.servers, max_queue=self._max_queue)
        if found is self._room:
            return
        self._room = found
        if found is Room.NO_SERVER:
            log.warning(
                "no_healthy_server",
                servers=len(self.servers),
                looking_again_s=self._no_server_s,
                next="genflow servers list",
            )
        elif found is Room.ALL_FULL:
            strangers = tuple((server.given, server.strangers) for server in self.servers if server.takes_new)
            log.warning(
                "all_servers_full", max_queue=self._max_queue, prompts_of_others=strangers, next="genflow servers list"
            )
        else:
            log.info("servers_take_work_again")

    async def _learn(self, server: FleetServer) -> bytes | None:
        """Keep what the server can do. Without that it still works: submissions are then not checked against it."""
        try:
            info = await server.comfy.object_info()
        except ComfyError as error:
            log.warning("object_info_unavailable", server=server.name, why=str(error))
            return None
        body = await asyncio.to_thread(lambda: json.dumps(without_uploads(info), sort_keys=True))
        digest = hashlib.sha256(body.encode()).digest()
        await self._registry.save_object_info(digest, body)
        return digest
