"""Submit → picture stored, one job after another: genflow against a bare script on the same simulated server.

The two take turns, photo upload in both. genflow's time ends when its picture and its job are committed.
"""

from __future__ import annotations

import time
from datetime import datetime
from uuid import UUID, uuid4

import aiohttp

from bench import bare, figures
from bench.place import PHOTO, low_mid_high, place, verdict
from genflow.settings import PortraitSettings
from genflow.templates import portrait_workflow, read_parameters
from genflow.workflow import AssetRef
from tests.support.service import Service

JOBS = 50
STEPS = 20


async def run() -> bool:
    """Print both ratios; whether they hold their bounds."""
    print(f"overhead: {JOBS} portraits one after another, the bare script and genflow taking turns")
    return all([await _measure(1.0, 1.05), await _measure(0.1, 1.5)])


async def _measure(run_s: float, bound: float) -> bool:
    photo = PHOTO.read_bytes()
    async with place() as genflow:
        [sim] = await genflow.simulate(seconds_per_step=run_s / STEPS, seconds_per_megapixel=0)
        await genflow.api()
        await genflow.worker(lease=30, log_level="warning")
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(JOBS + 2):
            bare_s = await _bare(genflow.http, sim.url, photo, genflow, number)
            genflow_s = await _genflow(genflow, photo, number)
            if number >= 2:  # the first of each warms caches
                theirs.append(bare_s)
                ours.append(genflow_s)
    columns = [f"runs of {run_s:g} s", "min", "p50", "p95"]
    figures.table(columns, [["bare script", *low_mid_high(theirs)], ["genflow", *low_mid_high(ours)]])
    ours.sort()
    theirs.sort()
    return verdict(f"p50 ratio with {run_s:g} s runs", ours[len(ours) // 2] / theirs[len(theirs) // 2], bound)


async def _bare(http: aiohttp.ClientSession, url: str, photo: bytes, genflow: Service, number: int) -> float:
    parameters = read_parameters({"prompt": f"bare {number}", "seed": number, "steps": STEPS}, {})
    workflow = portrait_workflow(parameters, AssetRef(uuid4(), None), PortraitSettings())
    began = time.time()
    await bare.one_job(http, url, workflow, photo, genflow.folder)
    return time.time() - began


async def _genflow(genflow: Service, photo: bytes, number: int) -> float:
    form = aiohttp.FormData()
    form.add_field("photo", photo, filename="me.jpg", content_type="image/jpeg")
    form.add_field("prompt", f"genflow {number}")
    form.add_field("seed", str(number))
    form.add_field("steps", str(STEPS))
    began = time.time()
    status, job = await genflow.request("POST", "/genflow/v1/portraits", data=form, headers={"Prefer": "wait=30"})
    if status != 201 or job["status"] != "succeeded":
        raise SystemExit(f"genflow answered {status}: {job}")
    story = await genflow.story(UUID(job["id"]))
    return datetime.fromisoformat(story["completed_at"]).timestamp() - began
