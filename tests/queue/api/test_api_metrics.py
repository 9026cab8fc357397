"""`/metrics` of the API: what Prometheus' own parser reads, and labels that no request can invent."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from genflow.telemetry.metrics import DESCRIBED
from tests.queue.conftest import Bench
from tests.support.api import Answer, Client

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(answer: Answer) -> Samples:
    """Every sample of a page, by its name and labels."""
    assert answer.status == 200, answer.body
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def grew(before: Samples, after: Samples, name: str, **labels: str) -> float:
    at = (name, tuple(sorted(labels.items())))
    return after[at] - before.get(at, 0.0)


async def test_it_tells_how_the_queue_stands(api: Client, bench: Bench) -> None:
    server = await bench.server()
    for _ in range(3):
        await bench.enqueue()
    await bench.claim("w1", server)
    answer = await api.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = read(answer)
    states = {dict(labels)["state"]: value for (name, labels), value in samples.items() if name == "genflow_jobs"}
    assert states == {"queued": 2, "waiting": 0, "bound": 0, "held": 1, "canceling": 0}
    assert 0 < samples["genflow_oldest_job_seconds", ()] < 60
    assert samples["process_resident_memory_bytes", ()] > 10_000_000


async def test_a_request_is_counted_under_its_route_and_never_under_its_path(api: Client, bench: Bench) -> None:
    job = await bench.enqueue()
    before = read(await api.get("/metrics"))
    await api.get(f"/api/v2/jobs/{job}")
    await api.get("/api/v2/jobs/no-such-job")
    await api.get("/favicon.ico")
    await api.ask("PROPFIND", "/coffee")
    after = read(await api.get("/metrics"))
    found = "genflow_http_requests_total"
    assert grew(before, after, found, method="GET", route="/api/v2/jobs/{job_id}", status="200") == 1
    assert grew(before, after, found, method="GET", route="/api/v2/jobs/{job_id}", status="404") == 1
    assert grew(before, after, found, method="GET", route="none", status="404") == 1
    assert grew(before, after, found, method="other", route="none", status="404") == 1
    assert grew(before, after, "genflow_http_request_seconds_count", route="/api/v2/jobs/{job_id}") == 2
    said = {value for _, labels in after for _, value in labels}
    assert not {value for value in said if str(job) in value or "coffee" in value or "favicon" in value}


async def test_every_metric_on_the_page_is_in_the_reference(api: Client) -> None:
    families = text_string_to_metric_families((await api.get("/metrics")).body.decode())
    ours = {family.name for family in families if family.name.startswith("genflow_")}
    assert ours - {name.removesuffix("_total") for name in DESCRIBED} == set()
    assert "genflow_jobs" in ours
