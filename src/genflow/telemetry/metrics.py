"""What a process counts, for Prometheus: every metric of genflow stands here, with its labels.

A label's values are few: servers as the settings name them, classes and codes of failures.py, the routes of the API. No
job, client or tenant is ever a label, and no text of a request. Counts are a process's own and begin with it; what
stands in Postgres is read when it is asked for (`QueueGauges`), and says the same whichever process is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]  # half of the samples, which nobody reads

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REGISTRY = CollectorRegistry()
"""Of this process."""


Kind = Literal["counter", "histogram", "gauge"]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as the reference page lists it; `name` as Prometheus stores it."""

    name: str
    kind: Kind
    what: str
    labels: tuple[str, ...]

    def family(self) -> GaugeMetricFamily:
        """A gauge without samples yet."""
        return GaugeMetricFamily(self.name, self.what, labels=self.labels)


DESCRIBED: dict[str, Described] = {}
"""Every metric of ours, by name."""

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
"""A picture takes seconds, a video many minutes, and a full queue hours."""
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


def _describe(name: str, kind: Kind, what: str, labels: tuple[str, ...]) -> Described:
    described = DESCRIBED[f"genflow_{name}"] = Described(f"genflow_{name}", kind, what, labels)
    return described


def _counter(name: str, what: str, *labels: str) -> Counter:
    return Counter(_describe(name, "counter", what, labels).name, what, labels, registry=REGISTRY)


def _histogram(name: str, what: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
    return Histogram(_describe(name, "histogram", what, labels).name, what, labels, registry=REGISTRY, buckets=buckets)


def _gauge(name: str, what: str, *labels: str) -> Described:
    return _describe(name, "gauge", what, labels)


# --- jobs and their attempts, counted by the worker that holds them ---

JOBS_ENDED = _counter("jobs_ended_total", "Jobs that a worker brought to their end.", "status")
ATTEMPTS_FAILED = _counter("attempts_failed_total", "Attempts that failed.", "class", "code")
WAIT_SECONDS = _histogram("job_wait_seconds", "From a job's acceptance to its run.")
RUN_SECONDS = _histogram("run_seconds", "What a run took by its server's clock; their sum is busy time.", "server")
COLLECT_SECONDS = _histogram("collect_seconds", "From the end of a run to its stored, committed result.")
RUNS = _counter("runs_total", "Runs that ended, by how ComfyUI says they did.", "server", "outcome")
SUBMITS = _counter("submits_total", "Prompts posted, by what the end of the POST says.", "server", "reply")

# --- what a crash, a restart or a frozen process cost ---

RESUBMITS = _counter("resubmits_total", "Prompts that their server forgot, and that were queued again.")
TAKEOVERS = _counter("takeovers_total", "Jobs whose lease ran out, so that another worker goes on.")
LEASES_LOST = _counter("leases_lost_total", "Jobs that this process found to be another's by now.")
DOUBLED_RUNS = _counter("doubled_runs_total", "Runs found to have happened beside another run of their job.")

# --- servers, broker, store ---

SERVER_UP = _gauge("server_up", "Whether the last probe was answered.", "server")
SERVER_TAKES_NEW = _gauge("server_takes_new", "Whether a new prompt may go there.", "server")
SERVER_BREAKER = _gauge("server_breaker", "1 for the position that its breaker is in.", "server", "position")
SERVER_STATE = _gauge("server_state", "1 for what the fleet thinks of it.", "server", "state")
SERVER_PROMPTS = _gauge("server_prompts", "Prompts there, those of others included, as last seen.", "server")
SERVER_SLOTS = _gauge("server_slots", "Prompts that genflow may have there at once.", "server")
TRIALS = _counter("server_trials_total", "Tiny prompts of distrusted servers, by how they ended.", "server", "outcome")
DELIVERIES = _counter("rabbitmq_messages_total", "Messages taken from RabbitMQ, by what became of them.", "fate")
DEAD_LETTERS_TOLD = _counter("rabbitmq_dead_letters_total", "Dead letters that RabbitMQ confirmed.")
STORAGE_ERRORS = _counter("storage_errors_total", "Steps of an attempt that the store failed.", "step")

# --- the queue, as Postgres knows it ---

JOBS = _gauge("jobs", "Live jobs, by state; those that are being canceled are counted in their state too.", "state")
OLDEST = _gauge("oldest_job_seconds", "Age of the oldest job that has not run yet; 0 where there is none.")
ENDED_LAST_HOUR = _gauge("jobs_ended_last_hour", "Jobs that ended within the last hour, by how.", "status")
DEAD_LAST_HOUR = _gauge("dead_letters_last_hour", "Dead letters of the last hour, by class.", "class")

# --- the API ---

REQUESTS = _counter("http_requests_total", "Requests answered.", "method", "route", "status")
REQUEST_SECONDS = _histogram(
    "http_request_seconds", "From a request's head to the head of its answer.", "route", buckets=_REQUEST_SECONDS
)

ProcessCollector(registry=REGISTRY)


@dataclass(frozen=True, slots=True)
class ServerSight:
    """A server as this worker sees it now."""

    name: str
    up: bool
    takes_new: bool
    breaker: str
    state: str
    prompts: int
    slots: int


class FleetGauges(Collector):
    """The servers of one worker, looked at when somebody asks."""

    def __init__(self, look: Callable[[], Iterable[ServerSight]]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """One sample a server and metric; of breaker and state, the one that holds."""
        up, takes_new, prompts, slots = (
            each.family() for each in (SERVER_UP, SERVER_TAKES_NEW, SERVER_PROMPTS, SERVER_SLOTS)
        )
        breaker, state = SERVER_BREAKER.family(), SERVER_STATE.family()
        for each in self._look():
            up.add_metric([each.name], each.up)
            takes_new.add_metric([each.name], each.takes_new)
            prompts.add_metric([each.name], each.prompts)
            slots.add_metric([each.name], each.slots)
            breaker.add_metric([each.name, each.breaker], 1)
            state.add_metric([each.name, each.state], 1)
        return [up, takes_new, prompts, slots, breaker, state]


class QueueGauges(Collector):
    """The queue as one row of status.sql tells it."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def collect(self) -> Iterable[Metric]:
        """Depth by state, the oldest age, and what the last hour brought."""
        depth, oldest, lately, dead = (each.family() for each in (JOBS, OLDEST, ENDED_LAST_HOUR, DEAD_LAST_HOUR))
        for state in ("queued", "waiting", "bound", "held", "canceling"):
            depth.add_metric([state], self._row[state])
        oldest.add_metric([], self._row["oldest_s"] or 0.0)
        lately.add_metric(["succeeded"], self._row["succeeded_hour"])
        lately.add_metric(["failed"], self._row["failed_hour"])
        for name, count in self._row["dead_by_class"].items():
            dead.add_metric([name], count)
        return [depth, oldest, lately, dead]


@contextmanager
def shown(collector: Collector) -> Iterator[None]:
    """Show `collector` on every page of this process meanwhile."""
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)


def exposed(*more: Collector) -> bytes:
    """This process's metrics and `more`, in Prometheus' text format."""
    extra = CollectorRegistry(auto_describe=False)
    for each in more:
        extra.register(each)
    return generate_latest(REGISTRY) + generate_latest(extra)
