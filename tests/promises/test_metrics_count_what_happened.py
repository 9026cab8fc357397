"""What a worker shows at /metrics is what happened: read by Prometheus' own parser, beside the simulator's books."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.service import Process, Service, small_workflow, until


class Page:
    """The samples of one worker."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        found = [
            sample.value
            for sample in self._samples
            if sample.name == f"genflow_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(found)


async def page(genflow: Service, worker: Process) -> Page:
    async with genflow.http.get(f"{worker.ready['ready']}/metrics") as reply:
        assert (reply.status, reply.headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
        return Page(await reply.text())


def failing() -> dict[str, Any]:
    graph = small_workflow()
    graph["7"] = {"class_type": "ImageToMask", "inputs": {"image": ["2", 0], "channel": "alpha"}}
    graph["8"] = {"class_type": "MaskToImage", "inputs": {"mask": ["7", 0]}}
    graph["9"] = {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "never"}}
    return graph


async def test_a_worker_counts_ends_runs_resubmits_and_takeovers(genflow: Service) -> None:
    [sim] = await genflow.simulate()
    await genflow.api()
    worker = await genflow.worker("first")
    await genflow.succeeded(await genflow.submit())
    assert (await genflow.ended(await genflow.submit(failing())))["status"] == "failed"
    told = await page(genflow, worker)
    assert (told("jobs_ended_total", status="succeeded"), told("jobs_ended_total", status="failed")) == (1, 1)
    failed = {"class": "permanent", "code": "node_execution_error"}
    assert (told("attempts_failed_total", **failed), told("attempts_failed_total")) == (1, 1)
    server = {"server": "test/sim0"}
    assert (told("runs_total", outcome="success", **server), told("runs_total", outcome="error", **server)) == (1, 1)
    assert told("submits_total", reply="accepted", **server) == 2
    assert (told("run_seconds_count", **server), told("job_wait_seconds_count")) == (2, 2)
    assert told("collect_seconds_count") == 1
    assert (told("server_up", **server), told("server_takes_new", **server)) == (1, 1)
    assert told("server_state", state="ready", **server) == 1
    assert (told("resubmits_total"), told("takeovers_total"), told("leases_lost_total")) == (0, 0, 0)

    await sim.knobs(hold=2)
    job = await genflow.submit(small_workflow(color=3))
    await sim.wait("held", job)
    await sim.knobs(restart=0)
    await sim.restarted()
    await sim.wait("held", job, count=2)
    assert (await page(genflow, worker))("resubmits_total") == 1

    worker.freeze()
    second = await genflow.worker("second")
    await genflow.has(job, takeovers=1)
    await sim.knobs(release=True, hold=None)
    await genflow.succeeded(job)
    assert (await page(genflow, second))("takeovers_total") == 1
    worker.thaw()

    async def lost() -> bool:
        return (await page(genflow, worker))("leases_lost_total") == 1

    await until(lost, "the thawed worker counts its lost lease")
