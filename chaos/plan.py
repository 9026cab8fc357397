"""What a run will do, drawn from its seed: which faults strike when, and which jobs clients want. Pure.

The same seed and the same minutes are the same plan, to the byte; what becomes of it depends on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from genflow.failpoints import FAILPOINTS

LEASE_S = 3.0
APIS = ("api0", "api1")
WORKERS = ("worker0", "worker1", "worker2")
INTAKE = "intake0"
SERVERS = ("gpu0", "gpu1", "gpu2", "gpu3")
TENANTS = ("one", "two")

AROUND_THE_JOBS_S = 45.0
"""Seconds of a run that are left for its start, and for the jobs to come to their end."""
SHORTEST_S = 30.0

FAULTS: Mapping[str, int] = {
    "kill": 9, "freeze": 5, "link": 7, "answer": 4, "restart": 2, "postgres": 2, "error": 2, "broker": 1, "disk": 2,
    "clock": 2,
}  # fmt: skip
"""How often each kind of fault comes in one round of them."""
EVERY_S = (0.8, 3.0)
"""Between two faults."""
LINK_FAULTS = ("cut", "delay", "half_close", "black_hole")
ANSWERS = ("lost", "late", "html", "502", "500", "view_fail", "view_truncated")
"""To a prompt; the last two to a download."""

_NOT_A_WORKERS = ("enqueue.", "rabbit.", "erase.", "blobs.")

WISHES: Mapping[str, int] = {
    "portrait": 6, "plain": 8, "long": 3, "failing": 1, "refused": 1, "batch": 1, "message": 5, "bad_message": 1,
    "torn": 1,
}  # fmt: skip
"""How often each kind of job comes in one round of them."""
WISH_EVERY_S = (0.4, 1.2)
BATCH_ROWS = 3
GOOD = ("portrait", "plain", "long", "batch", "message")
"""Kinds that succeed, unless their server says otherwise or they are canceled."""
OUTPUTS: Mapping[str, int] = {"portrait": 1, "plain": 2, "long": 1, "batch": 1, "message": 1}
"""Pictures of one job of each kind that succeeds."""
MESSAGES = ("message", "bad_message")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `seconds` long, or until its process is started again. `how` says which, where there are several."""

    no: int
    at_s: float
    kind: str
    target: str
    seconds: float
    how: str = ""

    @property
    def name(self) -> str:
        """What it is called in a report."""
        return f"{self.kind} {self.how}".strip() if self.kind in ("link", "answer", "error") else self.kind


@dataclass(frozen=True, slots=True)
class Wish:
    """What one client wants, and how it behaves until it has it."""

    no: int
    at_s: float
    kind: str
    tenant: str
    ids: tuple[UUID, ...] = ()
    """The jobs' ids where the client chooses them: batches and messages."""
    keyed: bool = True
    """It sends an Idempotency-Key, and asks again when an answer is lost."""
    patience_s: float = 20.0
    """Seconds that it waits for an answer."""
    cancel: str = ""
    """`soon` after it was accepted, once it is `running`, or `late`, about when it ends; or never."""
    cancel_after_s: float = 0.0
    streams: bool = False
    """It follows its job by the event stream, which it leaves in the middle."""
    steps: int = 4

    @property
    def good(self) -> bool:
        """Whether its jobs are to succeed."""
        return self.kind in GOOD


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it begins."""

    seed: int
    minutes: float
    active_s: float
    faults: tuple[Fault, ...]
    wishes: tuple[Wish, ...]


def plan(seed: int, minutes: float, *, broker: bool = True) -> Plan:
    """Draw a plan. Without a broker there are no messages, and no faults of it."""
    active_s = max(SHORTEST_S, minutes * 60 - AROUND_THE_JOBS_S)
    faults = tuple(_faults(random.Random(f"faults {seed}"), active_s, broker))  # noqa: S311 (repeatable on purpose)
    wishes = tuple(_wishes(random.Random(f"jobs {seed}"), active_s, broker))  # noqa: S311
    return Plan(seed, minutes, active_s, faults, wishes)


def rounds(rng: random.Random, weights: Mapping[str, int], without: Sequence[str] = ()) -> Iterator[str]:
    """Kinds for ever: each as often as its weight in every round, in an order of its own."""
    while True:
        bag = [kind for kind, weight in weights.items() for _ in range(weight) if kind not in without]
        rng.shuffle(bag)
        yield from bag


def _faults(rng: random.Random, active_s: float, broker: bool) -> Iterator[Fault]:
    kinds = rounds(rng, FAULTS, () if broker else ("broker",))
    answers = rounds(rng, dict.fromkeys(ANSWERS, 1))  # in turns too, so that a run of three minutes has them all
    at_s, no = 2.0, 0
    while at_s < active_s:
        no += 1
        kind = next(kinds)
        target, seconds, how = _drawn(rng, kind, broker, answers)
        yield Fault(no, round(at_s, 2), kind, target, round(seconds, 2), how)
        at_s += rng.uniform(*EVERY_S)


def _drawn(rng: random.Random, kind: str, broker: bool, answers: Iterator[str]) -> tuple[str, float, str]:
    """Target, seconds and manner of a fault."""
    intake = (INTAKE,) if broker else ()
    match kind:
        case "kill":
            target = rng.choice((*APIS, *WORKERS, *WORKERS, *WORKERS, *intake, *SERVERS))
            return target, rng.uniform(0.0, 2.0), _armed(rng, target)
        case "freeze":
            length = rng.choice((rng.uniform(0.3, 0.7), rng.uniform(0.9, 1.1), rng.uniform(1.3, 2.5)))
            return rng.choice((*APIS, *WORKERS, *WORKERS, *intake)), LEASE_S * length, ""
        case "link":
            links = [f"server:{name}" for name in SERVERS]
            links += [f"database:{name}" for name in (*APIS, *WORKERS, *WORKERS, *intake)]
            links += [f"api:{name}" for name in APIS] + (["broker"] if broker else [])
            how = rng.choice(LINK_FAULTS)
            most = 1.0 if how == "delay" else 2.0
            return rng.choice(links), LEASE_S * rng.uniform(0.2, most), how
        case "answer":
            return rng.choice(SERVERS), rng.uniform(0.2, 2.0), next(answers)
        case "error":
            return rng.choice(SERVERS), 0.0, rng.choice(("oom", "oom", "cuda"))
        case "restart":
            return rng.choice(SERVERS), rng.uniform(0.1, LEASE_S), ""
        case "disk":
            return rng.choice((*APIS, *WORKERS)), rng.uniform(0.5, LEASE_S), ""
        case "clock":
            return rng.choice(WORKERS), LEASE_S * rng.uniform(0.3, 4.0), ""
        case _:  # postgres, broker
            return kind, rng.uniform(0.0, 0.7 * LEASE_S), ""


def _armed(rng: random.Random, target: str) -> str:
    """The failpoint that the next process under this name runs into, if any: soon, and most often around a POST."""
    if target in WORKERS:
        names = [name for name in FAILPOINTS if not name.startswith(_NOT_A_WORKERS)]
        around = [name for name in names if name.startswith("submit.")]
        name = rng.choice(around if rng.random() < 0.5 else names)
        return f"{name}={rng.choice(('kill', 'freeze'))}@{rng.randint(1, 2)}"
    if rng.random() < 0.4:
        return ""
    if target in APIS:
        return f"{rng.choice(('enqueue.before_commit', 'enqueue.after_commit'))}=kill@{rng.randint(1, 4)}"
    if target == INTAKE:
        return f"{rng.choice([each for each in FAILPOINTS if each.startswith('rabbit.')])}=kill@{rng.randint(1, 3)}"
    return ""


def _wishes(rng: random.Random, active_s: float, broker: bool) -> Iterator[Wish]:
    kinds = rounds(rng, WISHES, () if broker else MESSAGES)
    at_s, no = 0.5, 0
    while at_s < active_s:
        no += 1
        kind = next(kinds)
        own = kind in (*MESSAGES, "batch")
        count = BATCH_ROWS if kind == "batch" else 1
        cancels = not own and kind != "torn" and rng.random() < 0.2
        yield Wish(
            no,
            round(at_s, 2),
            kind,
            rng.choice(TENANTS),
            ids=tuple(UUID(int=rng.getrandbits(128), version=4) for _ in range(count)) if own else (),
            keyed=kind != "torn" and rng.random() < 0.9,
            patience_s=rng.choice((0.4, 3.0, 20.0, 20.0)),
            cancel=rng.choice(("soon", "running", "late")) if cancels else "",
            cancel_after_s=rng.uniform(0.0, 3.0),
            streams=rng.random() < 0.3,
            steps=rng.randint(2, 14),
        )
        at_s += rng.uniform(*WISH_EVERY_S)
