"""What a person reads of a job: one sentence for each of its situations, one exit status for each end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from genflow.cli.bars import Bars, drawing
from genflow.cli.client import service_url
from genflow.cli.exits import Exit, Misuse, exit_of_status
from genflow.cli.following import LeaseWatch, Sight, sight_of
from genflow.cli.portrait import read_labels
from genflow.cli.waiting import exit_of_jobs, names_for

NOW = 1_800_000_000.0


def at(seconds: float) -> str:
    """The API's writing of a time `seconds` after now."""
    return (datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def seen(
    status: str,
    state: str,
    step: str = "none",
    silent_s: float | None = None,
    server: str | None = "m/gpu0",
    **job: Any,
) -> Sight:
    """The sight of a job that is so."""
    contract = {"status": status, "progress": None, "queue_position": None, "error": None} | job
    story = {
        "state": state,
        "step": step,
        "server": server,
        "attempts_spent": 1,
        "runs_again_at": at(3.2),
    }
    return sight_of(contract, story, silent_s=silent_s, now=NOW)


SAMPLING = {"value": 0.8, "current_node_class": "KSampler", "step": 12, "steps": 20}


@pytest.mark.parametrize(
    ("sight", "words"),
    [
        (seen("queued", "queued", queue_position=3), "queued, place 3"),
        (seen("queued", "held", "none"), "sending the files to m/gpu0"),
        (seen("queued", "held", "upload"), "handing the prompt to m/gpu0"),
        (seen("queued", "held", "submit"), "in the queue of m/gpu0"),
        (seen("running", "held", "submit"), "running on m/gpu0"),
        (seen("running", "held", "submit", progress=SAMPLING), "running on m/gpu0 — KSampler 12/20"),
        (seen("running", "held", "wait", progress=SAMPLING), "fetching the pictures from m/gpu0"),
        (
            seen("running", "held", "submit", silent_s=3.4, progress=SAMPLING),
            "waiting: lease of a dead worker runs out in 4 s",
        ),
        (
            seen("running", "held", "submit", silent_s=-0.1),
            "waiting: the lease of a dead worker ran out, another takes over",
        ),
        (seen("running", "queued", "submit"), "waiting for a worker that goes on with it"),
        (seen("running", "waiting"), "attempt 1 failed, the next in 4 s"),
        (seen("canceling", "held", "submit"), "canceling"),
        (seen("canceled", "canceled"), "canceled"),
        (seen("failed", "failed", error={"message": "no such model"}), "failed: no such model"),
        (seen("succeeded", "succeeded", "download"), "succeeded"),
    ],
)
def test_each_situation_has_its_sentence(sight: Sight, words: str) -> None:
    assert sight.state == words


def test_the_bar_is_full_only_at_success() -> None:
    assert seen("running", "held", "submit", progress=SAMPLING).fraction == 0.8
    assert seen("succeeded", "succeeded").fraction == 1.0
    assert seen("failed", "failed", error={"message": "x"}).fraction == 0.0
    assert [seen(status, "succeeded").ended for status in ("succeeded", "canceled", "running", "canceling")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_worker_that_renews_is_never_called_dead_and_one_that_stops_is() -> None:
    watch = LeaseWatch()
    renewed = [watch.silent_for(at(second // 10 * 10 + 30), NOW + second) for second in range(60)]
    assert set(renewed) == {None}
    silent = [watch.silent_for(at(90), NOW + 60 + second) for second in range(0, 40, 5)]
    assert silent == [None, None, None, None, 10.0, 5.0, 0.0, -5.0]
    assert watch.silent_for(None, NOW) is None


def test_without_a_terminal_progress_is_plain_lines_and_few_of_them() -> None:
    console = Console(record=True, width=40, force_terminal=False)
    with Bars(console, "portrait") as bars:
        for step in range(1, 20):
            bars.show(seen("running", "held", "submit", progress=SAMPLING | {"step": step}))
        bars.show(seen("running", "held", "wait"))
        bars.show(seen("succeeded", "succeeded"))
    assert console.export_text().splitlines() == [
        " 80% running on m/gpu0 — KSampler 1/20",
        "  0% fetching the pictures from m/gpu0",
        "100% succeeded",
    ]


@pytest.mark.parametrize("columns", [80, 100])
def test_on_a_terminal_there_is_a_bar_for_the_job_and_one_for_the_steps(columns: int) -> None:
    console = Console(record=True, width=columns, force_terminal=True)
    sight = seen("running", "held", "submit", silent_s=3.4, progress=SAMPLING)
    console.print(drawing("portrait", sight, columns))
    job, steps = console.export_text().splitlines()
    assert job.split()[0] == "portrait"
    assert job.rstrip().endswith(" 80% waiting: lease of a dead worker runs out in 4 s"), "not cut off"
    assert steps.split()[0] == "KSampler"
    assert "12/20" in steps
    assert job.count("━") == steps.count("━") >= 9


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["succeeded"], Exit.OK),
        (["failed"], Exit.NEGATIVE),
        (["canceled"], Exit.NEGATIVE),
        (["expired"], Exit.NEGATIVE),
        (["succeeded", "succeeded"], Exit.OK),
        (["succeeded", "canceled"], Exit.NEGATIVE),
        (["canceled", "failed", "succeeded"], Exit.DEAD_LETTERS),
    ],
)
def test_dead_letters_among_several_jobs_have_a_status_of_their_own(statuses: list[str], status: Exit) -> None:
    assert exit_of_jobs(statuses) is status


@pytest.mark.parametrize(
    ("http", "status"),
    [(422, Exit.USAGE), (413, Exit.USAGE), (404, Exit.NEGATIVE), (429, Exit.NEGATIVE), (500, Exit.NEGATIVE),
     (503, Exit.UNREACHABLE)],
)  # fmt: skip
def test_a_refusal_has_an_exit_status(http: int, status: Exit) -> None:
    assert exit_of_status(http) is status


def test_several_pictures_are_numbered_and_keep_their_kind() -> None:
    pictures = [{"name": "portrait_00001_.png"}, {"name": "portrait_00002_.png"}]
    assert names_for(Path("a/me.png"), pictures[:1]) == [Path("a/me.png")]
    assert names_for(Path("a/me.png"), pictures) == [Path("a/me-1.png"), Path("a/me-2.png")]
    assert names_for(Path("me"), [*pictures[:1], {"name": "film.webm"}]) == [Path("me-1.png"), Path("me-2.webm")]


def test_labels_are_pairs() -> None:
    assert read_labels(["order=7", "note=a=b", "empty="]) == {"order": "7", "note": "a=b", "empty": ""}
    with pytest.raises(Misuse, match="KEY=VALUE, not 'order'"):
        read_labels(["order"])
    with pytest.raises(Misuse, match="'order' twice"):
        read_labels(["order=1", "order=2"])


def test_the_address_comes_from_the_environment_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENFLOW_URL", raising=False)
    assert service_url() == "http://127.0.0.1:8190"
    monkeypatch.setenv("GENFLOW_URL", "https://pictures.example/genflow/")
    assert service_url() == "https://pictures.example/genflow"
    for wrong in ("localhost:8190", "ftp://host", "http://"):
        monkeypatch.setenv("GENFLOW_URL", wrong)
        with pytest.raises(Misuse, match="GENFLOW_URL must be an address such as"):
            service_url()
