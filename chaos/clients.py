"""The clients of a run: each wants one thing, asks for it as its wish says, and writes down what it was told."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import suppress
from typing import Any

import aiohttp
from blake3 import blake3
from yarl import URL

from chaos.house import QUEUE, House
from chaos.plan import APIS, MESSAGES, TENANTS, Wish
from chaos.snapshot import Told
from genflow.errors import GenflowError
from genflow.intake.jobs_file import FileJob
from genflow.intake.rabbit_broker import publish
from tests.support.portraits import face_photo
from tests.support.service import TERMINAL

PAUSE_S = 0.3
POLL_S = 0.7
STREAM_S = 20.0
FULL_S = 2.0
EXPECTED = {200, 201, 404, 409, 422, 429, 503}
"""What the API may answer under faults; anything else is written down as odd."""
LOST = (aiohttp.ClientError, TimeoutError, OSError)

_PHOTO = face_photo()


def workflow(wish: Wish, row: int = 0) -> dict[str, Any]:
    """The graph that a wish is about: a picture of its own colour, once or twice, or a fault in it."""
    side = (240, 200) if wish.kind == "long" else (128, 96)
    color = (wish.no * 8 + row) % 0x1000000
    graph: dict[str, Any] = {
        "1": _node("EmptyImage", width=side[0], height=side[1], batch_size=1, color=color),
        "2": _node("ImageInvert", image=["1", 0]),
        "3": _node("SaveImage", images=["2", 0], filename_prefix=f"wish{wish.no}/a"),
    }
    if wish.kind == "plain":
        graph["4"] = _node("SaveImage", images=["1", 0], filename_prefix=f"wish{wish.no}/b")
    elif wish.kind == "failing":  # it passes every check, and fails as it runs
        graph["4"] = _node("ImageToMask", image=["1", 0], channel="alpha")
        graph["5"] = _node("MaskToImage", mask=["4", 0])
        graph["3"]["inputs"]["images"] = ["5", 0]
    elif wish.kind in ("refused", "bad_message"):  # only a server knows that it has no such file
        graph["1"] = _node("LoadImage", image="nobody_has_this.png")
    return graph


def _node(kind: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs}


class Clients:
    """All clients, and what they were told."""

    def __init__(self, house: House, wishes: tuple[Wish, ...], seed: int) -> None:
        self._house = house
        self._wishes = wishes
        self._rng = random.Random(f"clients {seed}")  # noqa: S311
        self._http = house.genflow.http
        self.told: list[Told] = []
        self.over = asyncio.Event()
        """Set once nobody is to ask any more."""

    async def go(self, began: float) -> None:
        """Begin each wish at its time; return once every client has what it wanted, or was told why not."""
        async with asyncio.TaskGroup() as tasks:
            for wish in self._wishes:
                await asyncio.sleep(max(0.0, began + wish.at_s - time.monotonic()))
                tasks.create_task(self._one(wish), name=f"wish {wish.no}")

    def _tell(self, wish: Wish, what: str, job: str = "", **detail: Any) -> None:
        self.told.append(Told(time.time(), wish.no, what, job, detail))

    async def _one(self, wish: Wish) -> None:
        if wish.kind in MESSAGES:
            await self._publish(wish)
            return
        if wish.kind == "torn":
            await self._tear(wish)
            return
        job = await self._submit(wish)
        if job is None:
            return
        if wish.kind == "batch":
            for row in wish.ids:
                self._tell(wish, "accepted", str(row))
            await asyncio.gather(*(self._follow(wish, str(row)) for row in wish.ids))
            return
        canceling = asyncio.create_task(self._cancel(wish, job))
        try:
            await self._follow(wish, job)
        finally:
            await canceling

    # --- asking ---

    def _url(self) -> str:
        return self._house.addresses[self._rng.choice(APIS)]

    def _headers(self, tenant: str, key: str = "") -> dict[str, str]:
        own = {"Authorization": f"Bearer {self._house.keys[tenant]}"}
        return own | ({"Idempotency-Key": key} if key else {})

    async def _ask(
        self,
        wish: Wish,
        method: str,
        path: str,
        *,
        tenant: str = "",
        patience_s: float = 20.0,
        key: str = "",
        **body: Any,
    ) -> tuple[int, Any]:
        """Status and JSON of an answer; 0 where none came."""
        limit = aiohttp.ClientTimeout(total=patience_s)
        headers = self._headers(tenant or wish.tenant, key)
        try:
            async with self._http.request(method, self._url() + path, headers=headers, timeout=limit, **body) as reply:
                raw = await reply.read()
                if reply.status not in EXPECTED:
                    self._tell(wish, "odd", path=path, status=reply.status, body=raw[:500].decode("utf-8", "replace"))
                return reply.status, json.loads(raw) if raw else None
        except (*LOST, ValueError):
            return 0, None

    async def _submit(self, wish: Wish) -> str | None:
        """Ask until a job is had, or is known not to be had; its id."""
        key = f"wish-{wish.no}" if wish.keyed else ""
        patience_s = wish.patience_s
        while not self.over.is_set():
            status, answer = await self._ask(
                wish, "POST", *self._path(wish), patience_s=patience_s, key=key, **self._body(wish)
            )
            patience_s = 20.0
            if status == 201:
                job = str(answer["id"])
                self._tell(wish, "batch" if wish.kind == "batch" else "accepted", "" if wish.kind == "batch" else job)
                return job
            if status == 422 and answer["error"]["code"] == "idempotency_key_reuse":
                job = str(answer["error"]["details"]["job_id"])
                self._tell(wish, "known", job)
                return job
            if status == 429:
                self._tell(wish, "full")
                await asyncio.sleep(FULL_S)
            elif status in (0, 503):
                if status == 0 and not wish.keyed and wish.kind != "batch":
                    self._tell(wish, "unanswered")
                    return None
                await asyncio.sleep(PAUSE_S)
            else:
                self._tell(wish, "refused", status=status, answer=answer)
                return None
        self._tell(wish, "gave up")
        return None

    def _path(self, wish: Wish) -> tuple[str]:
        if wish.kind == "portrait":
            return ("/genflow/v1/portraits",)
        return (f"/genflow/v1/batches?name=wish{wish.no}",) if wish.kind == "batch" else ("/api/v2/jobs",)

    def _body(self, wish: Wish) -> dict[str, Any]:
        label = {"wish": str(wish.no)}
        if wish.kind == "batch":
            rows = [
                {"id": str(job), "workflow": workflow(wish, row), "metadata": label} for row, job in enumerate(wish.ids)
            ]
            return {"data": "\n".join(map(json.dumps, rows)).encode()}
        if wish.kind != "portrait":
            return {"json": {"workflow": workflow(wish), "metadata": label}}
        form = aiohttp.FormData({"prompt": f"wish {wish.no}", "seed": str(wish.no), "steps": str(wish.steps)})
        for name, value in (("width", "256"), ("height", "256"), ("metadata", json.dumps(label))):
            form.add_field(name, value)
        form.add_field("photo", _PHOTO, filename="me.jpg", content_type="image/jpeg")
        return {"data": form}

    async def _tear(self, wish: Wish) -> None:
        """Send a request for a portrait up to the middle of its photo, and be gone."""
        fields = {"prompt": f"wish {wish.no}", "metadata": json.dumps({"wish": str(wish.no)})}
        parts = [
            f'--torn\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n' for name in fields
        ]
        photo = '--torn\r\nContent-Disposition: form-data; name="photo"; filename="me.jpg"\r\n'
        body = "".join([*parts, photo, "Content-Type: image/jpeg\r\n\r\n"]).encode() + _PHOTO + b"\r\n--torn--\r\n"
        url = URL(self._url())
        head = [
            "POST /genflow/v1/portraits HTTP/1.1",
            f"Host: {url.authority}",
            "Content-Type: multipart/form-data; boundary=torn",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in self._headers(wish.tenant).items()),
        ]
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection(url.host, url.port)
                writer.write("\r\n".join([*head, "", ""]).encode() + body[: len(body) - len(_PHOTO) // 2])
                await writer.drain()
                writer.transport.abort()
        self._tell(wish, "tore")

    # --- following ---

    async def _follow(self, wish: Wish, job: str) -> None:
        """Look at the job until it is over, by stream and by polls; fetch its pictures; let a stranger try too."""
        if wish.streams:
            await self._stream(wish, job)
        while not self.over.is_set():
            status, answer = await self._ask(wish, "GET", f"/api/v2/jobs/{job}")
            if status == 404:
                self._tell(wish, "unknown", job)
                return
            if status == 200 and answer["status"] in TERMINAL:
                self._tell(wish, "ended", job, status=answer["status"], outputs=len(answer["outputs"]))
                await asyncio.gather(*(self._download(wish, job, output) for output in answer["outputs"]))
                await self._trespass(wish, job, answer["outputs"])
                return
            await asyncio.sleep(POLL_S)
        self._tell(wish, "left", job)

    async def _stream(self, wish: Wish, job: str) -> None:
        """Listen for a few events, and hang up in the middle."""
        limit = aiohttp.ClientTimeout(total=STREAM_S)
        try:
            async with self._http.get(
                f"{self._url()}/api/v2/jobs/{job}/events", headers=self._headers(wish.tenant), timeout=limit
            ) as reply:
                heard = 0
                async for line in reply.content:
                    heard += line.startswith(b"event:")
                    if heard > wish.steps // 2:
                        break
                reply.close()
            self._tell(wish, "hung up", job, events=heard)
        except LOST:
            self._tell(wish, "stream lost", job)

    async def _download(self, wish: Wish, job: str, output: dict[str, Any]) -> None:
        """Fetch a picture, once in a while only its beginning at first."""
        hangs_up = self._rng.random() < 0.2
        while not self.over.is_set():
            try:
                async with self._http.get(output["url"], timeout=aiohttp.ClientTimeout(total=20)) as reply:
                    if hangs_up:
                        hangs_up = False
                        await reply.content.read(100)
                        reply.close()
                        continue
                    data = await reply.read()
                    if reply.status == 200:
                        told = {"output": output["id"], "hash": blake3(data).hexdigest(), "listed": output["hash"]}
                        self._tell(wish, "downloaded", job, **told)
                        return
                    if reply.status not in EXPECTED:
                        self._tell(
                            wish,
                            "odd",
                            job,
                            path="content",
                            status=reply.status,
                            body=data[:300].decode("utf-8", "replace"),
                        )
            except LOST:
                pass
            await asyncio.sleep(PAUSE_S)

    async def _trespass(self, wish: Wish, job: str, outputs: list[dict[str, Any]]) -> None:
        """What the other tenant gets to see."""
        stranger = next(tenant for tenant in TENANTS if tenant != wish.tenant)
        paths = [f"/api/v2/jobs/{job}", f"/genflow/v1/jobs/{job}", f"/api/v2/jobs/{job}/workflow"]
        paths += [f"/api/v2/assets/{output['id']}" for output in outputs]
        path = self._rng.choice(paths)
        status, _ = await self._ask(wish, "GET", path, tenant=stranger)
        if status:
            self._tell(wish, "trespassed", job, path=path, status=status)

    async def _cancel(self, wish: Wish, job: str) -> None:
        """Cancel at the moment that the wish says, until the answer is here."""
        if not wish.cancel:
            return
        while wish.cancel == "running" and not self.over.is_set():
            _, answer = await self._ask(wish, "GET", f"/api/v2/jobs/{job}")
            if answer and answer.get("status") != "queued":
                break
            await asyncio.sleep(POLL_S / 2)
        await asyncio.sleep(wish.cancel_after_s / (10 if wish.cancel == "soon" else 1))
        while not self.over.is_set():
            status, answer = await self._ask(wish, "POST", f"/api/v2/jobs/{job}/cancel")
            if status == 200:
                self._tell(wish, "canceled", job, status=answer["status"])
                return
            await asyncio.sleep(PAUSE_S)

    # --- RabbitMQ ---

    async def _publish(self, wish: Wish) -> None:
        """Publish until the broker has confirmed: under one id, so that a second copy runs nothing."""
        broker = self._house.broker
        assert broker is not None
        text = json.dumps(workflow(wish))
        jobs = [FileJob(line=0, id=job, workflow=text, metadata={"wish": str(wish.no)}) for job in wish.ids]
        while not self.over.is_set():
            try:
                async with asyncio.timeout(15):
                    await publish(broker.url, QUEUE, jobs)
            except (GenflowError, *LOST):
                await asyncio.sleep(PAUSE_S)
                continue
            for job in wish.ids:
                self._tell(wish, "published", str(job))
            return
        self._tell(wish, "gave up")
