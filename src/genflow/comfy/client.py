"""One ComfyUI server on the wire.

It reports and decides nothing: what an answer means for a job is `genflow.protocol`'s. Reads share one session and its
kept connections; every call that changes the server goes on a connection of its own (`genflow.comfy.fresh`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import aiohttp

from genflow.comfy import fresh, messages
from genflow.comfy.access import OPEN, Access
from genflow.comfy.errors import ComfyError, OutputGone, ServerAnswered, ServerUnreachable, Withheld
from genflow.comfy.events import EventStream, open_stream
from genflow.comfy.messages import Device
from genflow.comfy.upload import multipart
from genflow.outputs import Output
from genflow.protocol import Answer, HistoryEntry, Known, PostReply, Reply, classify_post

CALL_TIMEOUT_S = 5.0
"""For light calls. Never less than a second: after a prompt the server may stand still for 0.8 s."""
QUEUE_TIMEOUT_S = 15.0
OBJECT_INFO_TIMEOUT_S = 30.0
VIEW_TIMEOUT_S = 1_800.0
VIEW_SILENCE_S = 30.0
UPLOAD_TIMEOUT_S = 30.0
UPLOAD_BYTES_PER_S = 256 * 1024
"""The slowest upload that is waited for."""

MAX_JSON_BYTES = 64 * 1024 * 1024
VIEW_CHUNK_BYTES = 256 * 1024
BOOT_MARKER = "genflow-boot.txt"
_ASKS = 3


class ComfyServer:
    """One ComfyUI server, called `name`, at `url` (with or without a path in front), reached as `access` says.

    Every method has a total timeout in seconds and raises ServerUnreachable or ServerAnswered, where it says nothing
    else. None of them retries.
    """

    def __init__(self, name: str, url: str, session: aiohttp.ClientSession, access: Access = OPEN) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self._session = session
        self._access = access
        self._plain = {**access.headers, "Accept-Encoding": "identity"}
        self._boot: UUID | None = None
        self._jobs_route: bool | None = None
        self._guard: bool | None = None
        self._watched: set[str] = set()

    # --- the server itself ---

    async def system_stats(self) -> dict[str, Any]:
        """GET /system_stats: versions, memory, devices."""
        return await self._get_object("/system_stats", timeout_s=CALL_TIMEOUT_S)

    async def device(self) -> Device | None:
        """The GPU that the server runs on, None where it does not say."""
        return messages.device_of(await self.system_stats())

    async def depth(self) -> int:
        """How many prompts are pending or running: GET /prompt, 39 bytes, where /queue would hold every graph."""
        answer = await self._get_object("/prompt", timeout_s=CALL_TIMEOUT_S)
        info = answer.get("exec_info")
        remaining = info.get("queue_remaining") if isinstance(info, dict) else None
        if not isinstance(remaining, int) or isinstance(remaining, bool):
            raise ServerAnswered(200, f"/prompt without queue_remaining: {answer}")
        return remaining

    async def object_info(self) -> dict[str, Any]:
        """GET /object_info: every node class the server knows, most of a megabyte."""
        return await self._get_object("/object_info", timeout_s=OBJECT_INFO_TIMEOUT_S)

    async def model_files(self, folder: str) -> frozenset[str]:
        """GET /models/FOLDER: the files of one folder of models; none where the server knows no such folder."""
        names = await self._get_names(f"/models/{quote(folder, safe='')}")
        return frozenset(names or ())

    async def model_folders(self) -> list[str]:
        """GET /models: the folders that models are looked for in; none on a server without that route."""
        return await self._get_names("/models") or []

    async def read_boot(self) -> UUID:
        """Which boot of the server this is: a hint, the same for all workers.

        A file of type `temp`, wiped when the server starts, holds a UUID; whoever finds none writes one, the first
        writer wins, and all believe what then stands under that name. A new boot forgets what was learned of the old.
        """
        boot = await self._marker()
        if boot is None:
            await self._upload_marker()
            boot = await self._marker()
        if boot is None:
            raise ServerAnswered(404, f"the boot marker {BOOT_MARKER} is gone right after it was written")
        if boot != self._boot:
            self._boot, self._jobs_route, self._guard = boot, None, None
        return boot

    async def _marker(self) -> UUID | None:
        status, body = await self._get(
            "/view", timeout_s=CALL_TIMEOUT_S, limit=1024, params={"filename": BOOT_MARKER, "type": "temp"}
        )
        if status == 404:
            return None
        try:
            if status != 200:
                raise ValueError
            return UUID(body.decode("ascii"))
        except ValueError:
            raise ServerAnswered(status, f"the boot marker is no UUID: {_shown(body)}") from None

    async def _upload_marker(self) -> None:
        # Content of its own each time: written again after a restart, an old one would hide the new boot.
        content = str(uuid4()).encode("ascii")

        async def chunks() -> AsyncIterator[bytes]:
            yield content

        form = multipart(BOOT_MARKER, {"type": "temp"}, chunks(), len(content), lambda: True)
        reply = await fresh.stream(
            f"{self.url}/upload/image",
            form.chunks,
            form.size,
            form.content_type,
            access=self._access,
            timeout_s=CALL_TIMEOUT_S,
        )
        if reply.status != 200:
            raise ServerAnswered(reply.status, _shown(reply.body))

    async def has_jobs_route(self) -> bool:
        """Whether GET /api/jobs/ID exists here: learned once per boot, by a random id.

        Never by the list: one poisoned entry makes that answer 500 for everybody.
        """
        if self._jobs_route is None:
            status, body = await self._get(f"/api/jobs/{uuid4()}", timeout_s=CALL_TIMEOUT_S, limit=MAX_JSON_BYTES)
            if status != 404:
                raise ServerAnswered(status, f"asked for a random job: {_shown(body)}")
            self._jobs_route = messages.is_not_found(status, _json(body))
        return self._jobs_route

    async def has_guard(self) -> bool:
        """Whether genflow's guard stands at this server (docs/how-to/guard.md): asked once per boot."""
        if self._guard is None:
            status, body = await self._get("/genflow/guard", timeout_s=CALL_TIMEOUT_S, limit=MAX_JSON_BYTES)
            about = _json(body)
            self._guard = status == 200 and isinstance(about, dict) and isinstance(about.get("guard"), int)
        return self._guard

    # --- one job ---

    async def ask(self, job_id: UUID, submit: UUID, *, doubt: bool, behind: bool = False) -> Answer:
        """What the server knows of a job, seen from one submit of it. Never raises for faults of the wire.

        `doubt` says that another submit of the job may be alive here: then an open item is told apart by its UUID in
        /queue. An ended entry of another submit hides what is open under the same id. Where this submit's POST may have
        left (`behind`), the queue and the history are searched behind it for this UUID: found in neither is "unknown",
        with that entry. Before the POST the entry is told first: delete it and ask again. Everything but ComfyUI's own
        "not here" is "can't tell".
        """
        try:
            for _ in range(_ASKS):
                answer = await self._ask(job_id, submit, doubt=doubt)
                if answer is not None and behind and answer.known in (Known.EARLIER_ENDED, Known.EARLIER_OPEN):
                    return await self._ask_queue_and_history(job_id, submit, behind=True)
                if answer is not None:
                    return answer
            return Answer(Known.CANT_TELL, why="the prompt changed its place while it was asked for")
        except (ComfyError, messages.Malformed) as error:
            return Answer(Known.CANT_TELL, why=str(error), away=isinstance(error, ServerUnreachable))

    async def _ask(self, job_id: UUID, submit: UUID, *, doubt: bool) -> Answer | None:
        if not await self.has_jobs_route():
            return await self._ask_queue_and_history(job_id, submit)
        status, body = await self._get(f"/api/jobs/{job_id}", timeout_s=CALL_TIMEOUT_S, limit=MAX_JSON_BYTES)
        if status == 500:
            # For good, where a node reported a number as a file name; /history still tells.
            return await self._ask_queue_and_history(job_id, submit)
        answer = _json(body)
        if messages.is_not_found(status, answer):
            return Answer(Known.UNKNOWN, why="Job not found")
        if status != 200:
            if status == 404:
                self._jobs_route = None
            raise ServerAnswered(status, _shown(body))
        seen = messages.job_status(answer, job_id)
        if seen == "ended":
            return _ended(messages.entry_of_job(answer), submit)
        if doubt:
            return _open(await self._queue(job_id), submit)
        return Answer(Known.PENDING if seen == "pending" else Known.RUNNING)

    async def _ask_queue_and_history(self, job_id: UUID, submit: UUID, *, behind: bool = False) -> Answer:
        # The queue first: the other order misses a prompt that ends in between.
        items = await self._queue(job_id)
        status, body = await self._get(f"/history/{job_id}", timeout_s=CALL_TIMEOUT_S, limit=MAX_JSON_BYTES)
        if status != 200:
            raise ServerAnswered(status, _shown(body))
        entry = messages.entry_of_history(_json(body), job_id)
        if behind and (entry is None or entry.submit != submit):
            mine = _open([item for item in items if item.submit == submit], submit)
            return mine or Answer(Known.UNKNOWN, entry=entry, why="only another submit of the job is there")
        if entry is not None:
            return _ended(entry, submit)
        return _open(items, submit) or Answer(Known.UNKNOWN, why="neither in /queue nor in /history")

    async def runs_before(self, job_id: UUID) -> frozenset[str] | None:
        """The ids of what runs while this prompt is pending, None where it is not. Reads `/queue`: ask seldom."""
        async with _within(CALL_TIMEOUT_S):
            queue = await self._get_object("/queue", timeout_s=CALL_TIMEOUT_S)
        running, pending = (
            [str(item[1]) for item in queue.get(name) or () if isinstance(item, list) and len(item) > 1]
            for name in ("queue_running", "queue_pending")
        )
        return frozenset(running) if str(job_id) in pending else None

    async def _queue(self, job_id: UUID) -> list[messages.QueueItem]:
        return messages.queue_items(await self._get_object("/queue", timeout_s=QUEUE_TIMEOUT_S), job_id)

    async def post(self, body: bytes, *, job_id: UUID, timeout_s: float, gate: fresh.Gate) -> PostReply:
        """POST /prompt once, in at most `timeout_s` seconds; the last byte leaves only if `gate()` says yes.

        Never raises for faults of the wire. Cancelled or timed out, the connection is reset.
        """
        try:
            reply = await fresh.send(f"{self.url}/prompt", body, access=self._access, timeout_s=timeout_s, gate=gate)
        except Withheld as error:
            return PostReply(Reply.REFUSED, error_type="withheld", message=str(error))
        except fresh.NotConnected as error:
            return PostReply(Reply.REFUSED, error_type="connect", message=str(error))
        except ServerUnreachable as error:
            return PostReply(Reply.OPEN_DOUBT, error_type="no_answer", message=str(error))
        if not reply.whole:
            return PostReply(Reply.OPEN_DOUBT, reply.status, error_type="not_comfyui", message="a reply without end")
        return classify_post(job_id, reply.status, reply.headers, reply.body)

    async def bar(self, job_id: UUID, submit: UUID, token: int, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Have the guard let this submit in no more, nor any lower token of the job: what was not queued never will be.

        Raises ServerAnswered where no guard is there (any more).
        """
        await self._change(
            "/genflow/guard", {"prompt_id": str(job_id), "submit": str(submit), "token": token}, timeout_s
        )

    async def cancel(self, job_id: UUID, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Tell the server to stop this job's prompt, pending or running; no other is touched. Ask until it is gone.

        Where POST /api/jobs/ID/cancel is missing: queue delete, then an interrupt, if this very prompt runs.
        """
        async with _within(timeout_s):
            reply = await fresh.send(
                f"{self.url}/api/jobs/{job_id}/cancel", b"{}", access=self._access, timeout_s=timeout_s
            )
            if reply.status not in (404, 405):
                _expect_200(reply)
                return
            await self.queue_delete(job_id, timeout_s=timeout_s)
            if any(item.running for item in await self._queue(job_id)):
                await self._change("/interrupt", {"prompt_id": str(job_id)}, timeout_s)

    async def queue_delete(self, job_id: UUID, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Take one pending prompt of this id out of the queue; a running one is left alone."""
        await self._change("/queue", {"delete": [str(job_id)]}, timeout_s)

    async def history_delete(self, job_id: UUID, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Remove this id's entry from the history."""
        await self._change("/history", {"delete": [str(job_id)]}, timeout_s)

    async def _change(self, path: str, body: Mapping[str, Any], timeout_s: float) -> None:
        sent = json.dumps(body).encode("ascii")
        _expect_200(await fresh.send(f"{self.url}{path}", sent, access=self._access, timeout_s=timeout_s))

    # --- files ---

    async def free(self, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Ask the server to unload its models and drop its node cache; it does so at its next idle moment (F5.5)."""
        await self._change("/free", {"unload_models": True, "free_memory": True}, timeout_s)

    async def empty(self, name: str, subfolder: str, folder_type: str) -> None:
        """Empty a file of the server in place, for no route deletes one (F6.8). What was not there is an empty file.

        ValueError for a name that a form can't carry.
        """
        await self._upload(name, subfolder, folder_type, _nothing(), 0, lambda: True)

    async def upload(self, name: str, subfolder: str, chunks: AsyncIterator[bytes], size: int, gate: fresh.Gate) -> str:
        """Store an input file and return the name under which a node finds it, "subfolder/name".

        Overwrites, so it is safe to repeat where the name holds the content's hash. `gate()` is asked before each
        chunk: Withheld is raised when it says no. An error of `chunks` is raised as it is; ValueError where they are
        not `size` bytes, or for a name that a form can't carry.
        """
        return await self._upload(name, subfolder, "input", chunks, size, gate)

    async def _upload(
        self, name: str, subfolder: str, folder_type: str, chunks: AsyncIterator[bytes], size: int, gate: fresh.Gate
    ) -> str:
        form = multipart(name, {"subfolder": subfolder, "type": folder_type, "overwrite": "1"}, chunks, size, gate)
        reply = await fresh.stream(
            f"{self.url}/upload/image",
            form.chunks,
            form.size,
            form.content_type,
            access=self._access,
            timeout_s=UPLOAD_TIMEOUT_S + size / UPLOAD_BYTES_PER_S,
        )
        answer = _json(reply.body) if reply.status == 200 else None
        if not isinstance(answer, dict) or not isinstance(answer.get("name"), str):
            raise ServerAnswered(reply.status, _shown(reply.body))
        kept_in = answer.get("subfolder")
        return f"{kept_in}/{answer['name']}" if kept_in else str(answer["name"])

    async def view(self, output: Output) -> AsyncGenerator[bytes]:
        """The bytes of an output file, streamed. Raises OutputGone on a 404 or a file of 0 bytes.

        A body that breaks off raises ServerUnreachable: what came before it is not the file.
        """
        params = {"filename": output.filename, "subfolder": output.subfolder, "type": output.folder_type}
        timeout = aiohttp.ClientTimeout(total=VIEW_TIMEOUT_S, sock_connect=CALL_TIMEOUT_S, sock_read=VIEW_SILENCE_S)
        size = 0
        try:
            async with self._session.get(
                f"{self.url}/view",
                params=params,
                timeout=timeout,
                allow_redirects=False,
                headers=self._plain,
                ssl=self._access.ssl,
            ) as reply:
                if reply.status == 404:
                    raise OutputGone(f"{output.subfolder}/{output.filename} is not there")
                if reply.status != 200:
                    raise ServerAnswered(reply.status, _shown(await reply.content.read(500)))
                if "Content-Length" not in reply.headers and "Transfer-Encoding" not in reply.headers:
                    raise ServerAnswered(200, "a file without its length: nobody could tell whether it is whole")
                async for chunk in reply.content.iter_chunked(VIEW_CHUNK_BYTES):
                    size += len(chunk)
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise ServerUnreachable(f"/view: {error or type(error).__name__}") from error
        if size == 0:
            raise OutputGone(f"{output.subfolder}/{output.filename} has 0 bytes")

    # --- events ---

    @contextlib.asynccontextmanager
    async def watch(self, client_id: str) -> AsyncIterator[EventStream]:
        """The events of `client_id`, from before its prompt is posted. The caller limits how long opening may take.

        Raises RuntimeError while a socket of the same client id is open here: when the old one closes, the server
        would forget the new one.
        """
        if client_id in self._watched:
            raise RuntimeError(f"client id {client_id} has a socket already")
        self._watched.add(client_id)
        try:
            async with await open_stream(self._session, self.url, client_id, self._access) as events:
                yield events
        finally:
            self._watched.discard(client_id)

    # --- reads ---

    async def _get_object(self, path: str, *, timeout_s: float) -> dict[str, Any]:
        status, body = await self._get(path, timeout_s=timeout_s, limit=MAX_JSON_BYTES)
        answer = _json(body)
        if status != 200 or not isinstance(answer, dict):
            raise ServerAnswered(status, _shown(body))
        return answer

    async def _get_names(self, path: str) -> list[str] | None:
        """A list of texts; None for a 404."""
        status, body = await self._get(path, timeout_s=CALL_TIMEOUT_S, limit=MAX_JSON_BYTES)
        if status == 404:
            return None
        answer = _json(body)
        if status != 200 or not isinstance(answer, list):
            raise ServerAnswered(status, _shown(body))
        return [name for name in answer if isinstance(name, str)]

    async def _get(
        self, path: str, *, timeout_s: float, limit: int, params: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        try:
            async with self._session.get(
                f"{self.url}{path}",
                params=params,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
                headers=self._plain,
                ssl=self._access.ssl,
            ) as reply:
                body = bytearray()
                async for chunk in reply.content.iter_any():
                    body += chunk
                    if len(body) > limit:
                        raise ServerAnswered(reply.status, f"{path} answered more than {limit} bytes")
                return reply.status, bytes(body)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerUnreachable(f"{path}: {error or type(error).__name__}") from error


@contextlib.asynccontextmanager
async def _within(timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise ServerUnreachable(f"no whole answer within {timeout_s:g} s") from error


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def _expect_200(reply: fresh.FreshReply) -> None:
    if reply.status != 200:
        raise ServerAnswered(reply.status, _shown(reply.body))


def _ended(entry: HistoryEntry, submit: UUID) -> Answer:
    known = Known.ENDED if entry.submit == submit else Known.EARLIER_ENDED
    return Answer(known, entry=entry, submit=entry.submit)


def _open(items: list[messages.QueueItem], submit: UUID) -> Answer | None:
    """What the queue's items of one job say; None where it holds none."""
    if not items:
        return None
    mine = [item for item in items if item.submit == submit]
    if not mine:
        return Answer(Known.EARLIER_OPEN, submit=items[0].submit)
    running = any(item.running for item in mine)
    return Answer(Known.RUNNING if running else Known.PENDING, submit=submit)


def _json(body: bytes) -> Any:
    """The JSON value of a body, None where it is none. NaN and Infinity pass: the server itself writes them."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _shown(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace")
