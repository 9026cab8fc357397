"""Progress tells the truth: nodes done of those that run, steps inside, and it never goes back."""

from __future__ import annotations

import io
from typing import Any, cast
from uuid import uuid4

import pytest
from PIL import Image

from genflow.comfy import Event, NodesCached, NodeStarted, NodeStates, Preview, RunEnded, StepProgress
from genflow.needs import Capabilities
from genflow.protocol import Timing
from genflow.queue import Hold, Ledger
from genflow.queue.records import LiveNews
from genflow.queue.watches import WATCHED_S
from genflow.worker import live
from genflow.worker.live import LiveProgress, as_jpeg
from genflow.worker.progress import Progress
from genflow.workflow import needed_by

JOB = uuid4()
HOLD = Hold(JOB, 3, uuid4(), Timing.from_lease(30.0))
GRAPH: dict[str, Any] = {
    "1": {"class_type": "Load", "inputs": {}},
    "2": {"class_type": "Sample", "inputs": {"image": ["1", 0], "seed": 4}},
    "3": {"class_type": "Save", "inputs": {"images": ["2", 0]}},
    "4": {"class_type": "Unused", "inputs": {"image": ["1", 0]}},
    "5": {"class_type": "Save", "inputs": {"images": ["missing", 0]}},
}


def test_only_what_an_output_needs_will_run() -> None:
    known = Capabilities({"Save": {"output_node": True}, "Load": {"output_node": False}, "Sample": {}})
    outputs = [node for node, each in GRAPH.items() if known.is_output(each["class_type"])]
    assert outputs == ["3", "5"]
    assert needed_by(GRAPH, ["3"]) == {"1", "2", "3"}
    assert needed_by(GRAPH, ["5"]) == {"5"}
    assert needed_by(GRAPH, ["nope"]) == set()


def test_a_run_from_its_first_node_to_its_last() -> None:
    progress = Progress(GRAPH, {"1", "2", "3"})
    told: list[tuple[float, int, Any, Any]] = []
    events: list[Event] = [
        NodesCached(JOB, ("1",)),
        NodeStarted(JOB, "2"),
        StepProgress(JOB, "2", 5.0, 10.0),
        NodeStates(JOB, {"2": ("finished", 10.0, 10.0), "3": ("running", 0.0, 1.0)}),
        RunEnded(JOB, "success", settled=False),
    ]
    for event in events:
        assert progress.take(event)
        now = progress.snapshot()
        assert now["nodes_total"] == 3
        told.append((round(now["value"], 3), now["nodes_done"], now["current_node_class"], now["step"]))
    assert told == [
        (0.333, 1, None, None), (0.333, 1, "Sample", None), (0.5, 1, "Sample", 5), (0.667, 2, "Save", None),
        (1.0, 3, "Save", None),
    ]  # fmt: skip


def test_it_never_goes_back_and_learns_of_what_was_not_foreseen() -> None:
    progress = Progress(GRAPH, {"3"})
    progress.take(StepProgress(JOB, "3", 9.0, 10.0))
    before = progress.snapshot()["value"]
    progress.take(StepProgress(JOB, "3", 1.0, 10.0))
    progress.take(NodeStarted(JOB, "4"))
    after = progress.snapshot()
    assert (after["value"], after["nodes_total"]) == (before, 2)
    for ignored in (NodeStarted(JOB, "nope"), RunEnded(JOB, "error", settled=False), StepProgress(JOB, "x", 1, 2)):
        assert not progress.take(ignored)


class Written:
    """A ledger that keeps what is written."""

    def __init__(self) -> None:
        self.news: list[dict[Any, LiveNews]] = []

    async def live_progress(self, news: dict[Any, LiveNews]) -> None:
        self.news.append(news)


def picture(kind: str, size: tuple[int, int] = (64, 48)) -> bytes:
    out = io.BytesIO()
    Image.new("RGBA" if kind == "PNG" else "RGB", size).save(out, kind)
    return out.getvalue()


async def test_nothing_is_written_while_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(live, "boottime", lambda: now)
    ledger = Written()
    runs = LiveProgress(cast(Ledger, ledger))
    runs.listening = True
    progress = Progress(GRAPH, {"1", "2", "3"})
    runs.begin(HOLD, progress)
    runs.take(JOB, NodeStarted(JOB, "2"))
    assert await runs._gathered() == {}

    runs.watch([JOB])  # what was told before is told to the first who watches
    [news] = (await runs._gathered()).values()
    assert (news.progress["current_node"], news.preview) == ("2", None)
    assert await runs._gathered() == {}, "nothing new"
    runs.take(JOB, Preview(JOB, None, "image/png", picture("PNG")))
    runs.take(JOB, Preview(JOB, None, "image/jpeg", picture("JPEG", (80, 48))))
    [news] = (await runs._gathered()).values()
    assert news.preview_node == "2"
    assert Image.open(io.BytesIO(news.preview or b"")).size == (80, 48), "the newest only"

    runs.take(JOB, RunEnded(JOB, "success", settled=False))
    runs.end(JOB)
    [news] = (await runs._gathered()).values()
    assert news.progress["value"] == 1.0, "the last word is still told"
    runs.begin(HOLD, progress)
    now += WATCHED_S + 1
    runs.take(JOB, NodeStarted(JOB, "3"))
    runs.take(JOB, Preview(JOB, None, "image/jpeg", picture("JPEG")))
    assert await runs._gathered() == {}, "they have gone"
    runs.listening = False
    runs.take(JOB, NodeStarted(JOB, "1"))
    assert list(await runs._gathered()) == [JOB], "nobody tells who watches: the database knows"


async def test_who_watches_is_kept_in_mind_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WATCHED_JOBS", 3)
    runs = LiveProgress(cast(Ledger, Written()))
    runs.listening = True
    jobs = [uuid4() for _ in range(5)]
    runs.watch(jobs)
    assert [runs._is_watched(job) for job in jobs] == [False, False, True, True, True]


def test_a_preview_is_a_small_jpeg() -> None:
    jpeg = picture("JPEG")
    assert as_jpeg("image/jpeg", jpeg) == jpeg
    made = as_jpeg("image/png", picture("PNG", (2_000, 1_000)))
    assert made is not None
    opened = Image.open(io.BytesIO(made))
    assert (opened.format, opened.size) == ("JPEG", (768, 384))
    for wrong in (b"", b"nonsense", picture("JPEG")[:40], picture("PNG", (5_000, 5_000))):
        assert as_jpeg("image/png", wrong) is None
