"""One test's genflow as real processes: simulated servers, an API, workers, on one real Postgres.

A test arms failpoints and knobs, waits for what the books or the job's story say, and never sleeps for luck.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import psycopg

from genflow.failpoints import FAILPOINTS
from tests.support.forks import ForkServer, Handle, clean_environment
from tests.support.portraits import face_photo

GENFLOW = Path(sys.executable).parent / "genflow"
LEASE_S = 3.0
ON_THE_WAY = [
    name for name in FAILPOINTS if not name.startswith(("enqueue.", "rabbit.", "scrub.", "end.", "erase.", "blobs."))
]
"""The failpoints that the worker of a job that came over HTTP and succeeds can meet."""
TERMINAL = {"succeeded", "failed", "canceled", "expired"}


@dataclass(eq=False)
class Process:
    """A genflow process, its ready line, and its log."""

    name: str
    handle: Handle
    log: Path
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.handle.returncode is None

    async def kill(self) -> None:
        """SIGKILL, also a frozen one; returns once it is gone."""
        if self.alive:
            self.handle.kill()
        await self.handle.wait()

    def freeze(self) -> None:
        self.handle.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.handle.send_signal(signal.SIGCONT)

    async def stop(self, within_s: float = 30.0) -> int:
        """SIGTERM; its exit status."""
        if self.alive:
            self.handle.terminate()
        return await asyncio.wait_for(self.handle.wait(), within_s)

    async def died(self, within_s: float = 30.0) -> int:
        """Wait until it ended by itself (a failpoint's kill); its exit status."""
        return await asyncio.wait_for(self.handle.wait(), within_s)

    async def frozen(self, within_s: float = 30.0) -> None:
        """Wait until it was stopped by a signal (a failpoint's freeze)."""
        stat = Path(f"/proc/{self.handle.pid}/stat")
        await until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{self.name} is frozen", within_s)

    def grown(self) -> int:
        """The most bytes of memory that it ever held at once."""
        status = Path(f"/proc/{self.handle.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def said(self, words: str) -> bool:
        """Whether its log holds these words."""
        return words in self.log.read_text(errors="replace")


async def until(
    condition: Callable[[], bool | Awaitable[bool]], what: str, within_s: float = 30.0, every_s: float = 0.03
) -> None:
    """Wait until the condition holds; AssertionError, saying what was waited for, after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        holds = condition()
        if not isinstance(holds, bool):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(every_s)


@dataclass(eq=False)
class Simulator:
    """One simulated server, from outside."""

    name: str
    url: str
    process: Process
    http: aiohttp.ClientSession

    async def knobs(self, **knobs: Any) -> None:
        """Turn knobs (docs/reference/simulator.md)."""
        async with self.http.post(f"{self.url}/simulator/knobs", json=knobs) as reply:
            assert reply.status == 200, await reply.text()

    async def wait(
        self, event: str, prompt: UUID | str | None = None, *, count: int = 1, timeout: float = 30.0
    ) -> None:
        """Wait until the server's books show this event (posted, running, ended, held, view, upload, …)."""
        params = {"event": event, "count": str(count), "timeout": f"{timeout:g}"}
        if prompt is not None:
            params["prompt"] = str(prompt)
        async with self.http.get(f"{self.url}/simulator/wait", params=params) as reply:
            assert reply.status == 200, f"{self.name}: no {event}: {await reply.text()}"

    async def books(self) -> dict[str, Any]:
        async with self.http.get(f"{self.url}/simulator/books") as reply:
            books: dict[str, Any] = await reply.json()
            return books

    async def count(self, event: str, prompt: UUID | str | None = None) -> int:
        """How often the books show this event by now."""
        asked = f"/simulator/wait?event={event}&count=0" + (f"&prompt={prompt}" if prompt is not None else "")
        seen: int = (await self.get(asked))["count"]
        return seen

    async def get(self, path: str) -> Any:
        async with self.http.get(f"{self.url}{path}") as reply:
            return await reply.json()

    async def post(self, path: str, body: Any) -> None:
        """A call by another client of this server."""
        async with self.http.post(f"{self.url}{path}", json=body) as reply:
            assert reply.status == 200, await reply.text()

    async def prompt_of_another_client(self) -> UUID:
        """Another client's prompt in the queue; its id."""
        prompt = uuid4()
        await self.post("/prompt", {"prompt": small_workflow(color=99), "prompt_id": str(prompt)})
        return prompt

    async def ran_to_its_end(self, prompt: UUID) -> None:
        """Wait until this prompt ended, and see that nobody disturbed it."""
        await self.wait("ended", prompt)
        entry = (await self.get(f"/history/{prompt}"))[str(prompt)]
        assert entry["status"]["status_str"] == "success", entry["status"]

    async def restarted(self, times: int = 1) -> None:
        """Wait until the server is back after so many restarts in all."""

        async def back() -> bool:
            with suppress(aiohttp.ClientError):
                return await self.count("restarted") >= times
            return False

        await until(back, f"{self.name} is back")

    async def holds_nothing(self) -> None:
        """Fail where a prompt is left in the queue."""
        assert await self.get("/queue") == {"queue_running": [], "queue_pending": []}


@dataclass(eq=False)
class Service:
    """All processes of one test."""

    database: str
    folder: Path
    http: aiohttp.ClientSession
    processes: list[Process] = field(default_factory=list)
    simulators: list[Simulator] = field(default_factory=list)
    url: str = ""
    forks: ForkServer | None = None
    """Where its processes are forked from; without one, each is the installed command."""

    async def start(
        self,
        name: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        program: Sequence[str | Path] = (GENFLOW,),
    ) -> Process:
        """A `genflow` process, once it says that it is ready; another program may start it."""
        log = self.folder / f"{name}-{len(self.processes)}.log"
        own = {"GENFLOW_DATABASE_URL": self.database, "GENFLOW_DATA": str(self.folder)}
        env = clean_environment() | own | dict(env or {})
        handle: Handle
        with log.open("wb") as sink:
            if self.forks is not None and tuple(program) == (GENFLOW,):
                handle = await self.forks.start(arguments, stderr=sink, cwd=self.folder, env=env)
            else:
                handle = await asyncio.create_subprocess_exec(
                    *program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=sink, cwd=self.folder, env=env
                )
        process = Process(name, handle, log)
        self.processes.append(process)
        assert handle.stdout is not None
        line = await asyncio.wait_for(handle.stdout.readline(), 40)
        assert line, f"{name} did not start: {log.read_text(errors='replace')[-3000:]}"
        process.ready = json.loads(line)
        return process

    async def simulate(self, count: int = 1, **options: Any) -> list[Simulator]:
        """Simulated servers sim0, sim1, …, each in a process of its own, so that each may be killed or frozen alone."""
        first = len(self.simulators)
        started = await asyncio.gather(
            *(
                self.start(
                    f"sim{number}",
                    "simulate",
                    "--json",
                    "--port",
                    "0",
                    "--name",
                    "s",
                    *flags({"output_dir": self.folder / f"sim{number}"} | options),
                )
                for number in range(first, first + count)
            )
        )
        new = [
            Simulator(process.name, next(iter(process.ready["ready"].values())), process, self.http)
            for process in started
        ]
        self.simulators += new
        return new

    async def simulate_together(self, count: int, **options: Any) -> list[Simulator]:
        """Simulated servers s0, s1, … in one process, with their files in the folder `servers`."""
        files = {"output_dir": self.folder / "servers"}
        process = await self.start(
            "together", "simulate", "--json", "--port", "0", "--name", "s", "--count", str(count),
            *flags(files | options),
        )  # fmt: skip
        self.simulators += [Simulator(name, url, process, self.http) for name, url in process.ready["ready"].items()]
        return self.simulators

    async def simulate_pair(self, **options: Any) -> list[Simulator]:
        """Simulated servers s0 and s1 in one process, with their files in the folder `servers`."""
        return await self.simulate_together(2, **options)

    async def api(self, *, failpoints: str = "", **options: Any) -> Process:
        """An API process; `url` is its address from now on."""
        process = await self.start(
            "api", "api", "--json", *flags({"port": 0, "lease": LEASE_S, "scrub": False, **options}),
            env={"GENFLOW_FAILPOINTS": failpoints},
        )  # fmt: skip
        self.url = process.ready["ready"]
        return process

    async def worker(
        self, name: str = "worker", *, failpoints: str = "", servers: list[Simulator] | None = None, **options: Any
    ) -> Process:
        """A worker for these servers (all)."""
        gpus = [f"--gpu={s.name}={s.url}" for s in (self.simulators if servers is None else servers)]
        settings = {
            "health_port": 0, "lease": LEASE_S, "poll_ms": 500, "claim_poll_s": 0.2, "probe_s": 0.5, "no_server_s": 0.5,
            "instance": "test", "log_level": "debug",
        } | options  # fmt: skip
        return await self.start(
            name, "worker", "--json", *gpus, *flags(settings), env={"GENFLOW_FAILPOINTS": failpoints}
        )

    # --- as a client ---

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.http.request(method, f"{self.url}{path}", **options) as reply:
            return reply.status, await reply.json()

    async def submit(self, workflow: Mapping[str, Any] | None = None, *, key: str | None = None) -> UUID:
        """A job of this workflow (`small_workflow`); its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        status, body = await self.request(
            "POST", "/api/v2/jobs", json={"workflow": workflow or small_workflow()}, headers=headers
        )
        assert status == 201, body
        return UUID(body["id"])

    @staticmethod
    def portrait_form() -> aiohttp.FormData:
        """A request for a small, quick portrait of a face photo."""
        form = aiohttp.FormData({"prompt": "a studio portrait", "seed": "7", "steps": "2"})
        form.add_field("width", "256")
        form.add_field("height", "256")
        form.add_field("photo", face_photo(), filename="me.jpg", content_type="image/jpeg")
        return form

    async def portrait(self, *, key: str | None = None) -> tuple[int, Any]:
        """Ask for a small, quick portrait of a face photo; status and body of the answer."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.request("POST", "/genflow/v1/portraits", data=self.portrait_form(), headers=headers)

    async def submit_portrait(self) -> UUID:
        """A job that needs a photo on its server; its id."""
        status, body = await self.portrait()
        assert status == 201, body
        return UUID(body["id"])

    async def job(self, job_id: UUID) -> dict[str, Any]:
        status, body = await self.request("GET", f"/api/v2/jobs/{job_id}")
        assert status == 200, body
        job: dict[str, Any] = body
        return job

    async def story(self, job_id: UUID) -> dict[str, Any]:
        status, body = await self.request("GET", f"/genflow/v1/jobs/{job_id}")
        assert status == 200, body
        story: dict[str, Any] = body
        return story

    async def ended(self, job_id: UUID, within_s: float = 40.0) -> dict[str, Any]:
        """The job once it is terminal. Fails with the job's story and the workers' last words."""
        deadline = time.monotonic() + within_s
        while True:
            job = await self.job(job_id)
            if job["status"] in TERMINAL:
                return job
            assert time.monotonic() < deadline, f"not terminal: {await self.story(job_id)}\n{self.last_words()}"
            await asyncio.sleep(0.03)

    async def cancel(self, job_id: UUID) -> str:
        """Cancel a job; the status that the answer shows."""
        status, body = await self.request("POST", f"/api/v2/jobs/{job_id}/cancel")
        assert status == 200, body
        shown: str = body["status"]
        return shown

    async def canceled(self, job_id: UUID) -> dict[str, Any]:
        """The story of the job once it is canceled; nothing of it is left to be had."""
        job = await self.ended(job_id)
        assert (job["status"], job["outputs"]) == ("canceled", []), f"{job}\n{self.last_words()}"
        assert await self.sql("select id from genflow.assets where job_id = %s and kind = 'output'", job_id) == []
        return await self.story(job_id)

    async def succeeded(self, job_id: UUID, within_s: float = 40.0) -> dict[str, Any]:
        job = await self.ended(job_id, within_s)
        assert job["status"] == "succeeded", f"{job}\n{self.last_words()}"
        assert job["outputs"], "a success has outputs"
        return job

    async def has(self, job_id: UUID, within_s: float = 30.0, **expected: Any) -> dict[str, Any]:
        """The job's story once these fields have these values."""
        found: dict[str, Any] = {}

        async def holds() -> bool:
            found.update(await self.story(job_id))
            return all(found[name] == value for name, value in expected.items())

        await until(holds, f"{expected} of {job_id}", within_s)
        return found

    async def until_submit(self, job_id: UUID, no: int, state: str) -> None:
        """Wait until this submit of the job is in this state."""

        async def there() -> bool:
            submits = (await self.story(job_id))["submits"]
            return [submit["state"] for submit in submits if submit["no"] == no] == [state]

        await until(there, f"submit {no} of {job_id} is {state}")

    async def book(self, job_id: UUID) -> dict[str, int]:
        """Posts, executions and interruptions of one prompt id over all servers that live."""
        total = {"posts": 0, "executions": 0, "interruptions": 0}
        for simulator in self.simulators:
            if simulator.process.alive:
                page = (await simulator.books())["prompts"].get(str(job_id), {})
                for name in total:
                    total[name] += page.get(name, 0)
        return total

    def files(self, below: str) -> list[str]:
        """Every file in a folder of this test's, by name."""
        folder = self.folder / below
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    async def traces(self, job_id: UUID) -> dict[str, Any]:
        """What work on this job leaves behind: rows, files of servers (`simulate_pair`) and store, calls to servers.

        Left out are what a living holder renews all the time, and bytes on their way into the store.
        """
        rows = {
            "jobs": "- 'lease_until' from genflow.jobs as t where id = %s",
            "submits": "from genflow.submits as t where job_id = %s order by no",
            "attempts": "from genflow.attempts as t where job_id = %s order by no",
            "assets": "from genflow.assets as t where job_id = %s order by id",
            "inputs": "from genflow.server_file_refs as t where job_id = %s order by server_id, name",
        }
        left: dict[str, Any] = {
            table: await self.sql(f"select to_jsonb(t) {rest}", job_id) for table, rest in rows.items()
        }
        left["standing"] = await self.sql("select name, state, reason from genflow.servers order by name")
        left["servers' files"] = self.files("servers")
        left["blobs"] = [name for name in self.files("blobs") if not name.startswith("incoming/")]  # those have a name
        left["calls"] = {each.name: await each.count("change") for each in self.simulators}
        left["books"] = {each.name: (await each.books())["prompts"] for each in self.simulators}
        return left

    async def sql(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Look into (or reach into) the database."""
        async with await psycopg.AsyncConnection.connect(self.database, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    def last_words(self, lines: int = 25) -> str:
        """The ends of all logs, for a failing test."""
        return "\n".join(
            f"--- {process.log.name}\n" + "\n".join(process.log.read_text(errors="replace").splitlines()[-lines:])
            for process in self.processes
        )

    async def stop(self) -> None:
        """Kill whatever still runs."""
        for process in self.processes:
            await process.kill()


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options as they stand on a command line."""
    words = []
    for name, value in options.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            words.append(f"--{dashed}={value}")
    return words


def small_workflow(*, color: int = 5_774_154, prefix: str = "out") -> dict[str, Any]:
    """EmptyImage → ImageInvert → SaveImage: three quick nodes."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 48, "batch_size": 1, "color": color}},
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": prefix}},
    }


@asynccontextmanager
async def service(database: str, folder: Path, forks: ForkServer | None = None) -> AsyncIterator[Service]:
    """A service without any process yet; all are killed at the end."""
    async with aiohttp.ClientSession() as http:
        running = Service(database, folder, http, forks=forks)
        try:
            yield running
        finally:
            await running.stop()
