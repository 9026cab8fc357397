"""docs/benchmarks.md is written by the benchmarks: what a run found stands there, and nothing else of it changes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import figures, page, picture
from bench.figures import Findings, Table, Verdict
from bench.place import verdict, verdict_at_least
from bench.runner import Bench, run_all
from tests.support.repository import ROOT

DOCS = ROOT / "docs"
PAGE = f"""# Benchmarks

{page.begin(page.OVERVIEW)}
{page.END}

## Speed

Prose before.

{page.begin("speed")}
| old | figures |
{page.END}

Prose after.

## Size

{page.begin("size")}
| of before |
{page.END}
"""


class Measured:
    """A benchmark that finds what it is told to."""

    def __init__(self, act: Callable[[], bool]) -> None:
        self.__doc__ = "How big it is."
        self._act = act

    async def run(self) -> bool:
        return self._act()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "benchmarks.md").write_text(PAGE)
    return tmp_path


def bounded(value: float, bound: float = 1.5) -> Bench:
    """A benchmark with one figure and its bound."""

    def act() -> bool:
        figures.table(["", "p50"], [["genflow", f"{value} s"]])
        return verdict("ratio", value, bound)

    return Measured(act)


def test_the_page_in_the_repository_is_what_the_runs_found() -> None:
    results = figures.load(DOCS / figures.RESULTS)
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert page.updated(text, results, {}) == text, "changed by hand? `make bench ONLY=page` writes it again"
    assert picture.drawn(results) == (DOCS / "images" / "benchmarks.svg").read_text(encoding="utf-8")


def test_a_run_renews_its_own_section_alone(docs: Path) -> None:
    assert run_all({"speed": bounded(1.25), "size": bounded(9.0)}, ["speed"], docs) == 0
    text = (docs / "benchmarks.md").read_text()
    assert "| genflow | 1.25 s |" in text
    assert "| ratio | 1.25 | at most 1.5 |" in text
    assert "| old | figures |" not in text
    assert "| of before |" in text
    assert text.index("Prose before.") < text.index("| genflow |") < text.index("Prose after.") < text.index("## Size")


def test_another_run_keeps_what_the_first_found(docs: Path) -> None:
    run_all({"speed": bounded(1.25), "size": bounded(1.0)}, ["speed"], docs)
    run_all({"speed": bounded(1.25), "size": bounded(1.0)}, ["size"], docs)
    assert list(figures.load(docs / figures.RESULTS)) == ["speed", "size"]
    text = (docs / "benchmarks.md").read_text()
    assert text.count("| genflow |") == 2
    assert text.count("1 held") == 2


def test_a_missed_bound_fails_the_command_and_stands_on_the_page(docs: Path) -> None:
    assert run_all({"speed": bounded(2.0), "size": bounded(1.0)}, [], docs) == 1
    text = (docs / "benchmarks.md").read_text()
    assert "| ratio | 2 | at most 1.5, **missed** |" in text
    assert "1 **missed**" in text


def test_a_benchmark_that_breaks_fails_the_command_and_stops_no_other(docs: Path) -> None:
    def breaks() -> bool:
        figures.table(["", "p50"], [["genflow", "never"]])
        raise SystemExit("the server is gone")

    assert run_all({"speed": Measured(breaks), "size": bounded(1.0)}, [], docs) == 1
    text = (docs / "benchmarks.md").read_text()
    assert "never" not in text
    assert "| old | figures |" in text, "what it found before stays"
    assert "| genflow | 1.0 s |" in text


def test_the_page_is_written_again_without_a_run(docs: Path) -> None:
    run_all({"speed": bounded(1.25)}, [], docs)
    written = (docs / "benchmarks.md").read_text()
    (docs / "benchmarks.md").write_text(written.replace("1.25 s", "0.01 s"))
    assert run_all({"speed": bounded(9.0)}, ["page"], docs) == 0
    assert (docs / "benchmarks.md").read_text() == written


def test_an_unknown_name_runs_nothing(docs: Path) -> None:
    assert run_all({"speed": bounded(1.0)}, ["sped"], docs) == 2
    assert (docs / "benchmarks.md").read_text() == PAGE


def test_a_benchmark_that_the_page_does_not_know_gets_a_section(docs: Path) -> None:
    run_all({"start_latency": bounded(1.0)}, [], docs)
    text = (docs / "benchmarks.md").read_text()
    assert "## Start latency (`make bench ONLY=start_latency`)\n\nHow big it is.\n" in text
    assert text.index("## Size") < text.index("## Start latency") < text.index("| genflow |")


def test_a_section_written_by_hand_is_taken_over(docs: Path) -> None:
    by_hand = "\n## Starts (`make bench ONLY=starts`)\n\nBefore.\n\n| by | hand |\n| --- | --- |\n\nAfter.\n\n## Last\n"
    (docs / "benchmarks.md").write_text(PAGE + by_hand)
    run_all({"starts": bounded(1.0)}, [], docs)
    text = (docs / "benchmarks.md").read_text()
    assert "by | hand" not in text
    assert text.count("ONLY=starts") == 1
    places = [text.index(each) for each in ("## Starts", "Before.", "| genflow | 1.0 s |", "After.", "## Last")]
    assert places == sorted(places)


def test_a_section_without_a_table_gets_its_figures_at_its_end(docs: Path) -> None:
    (docs / "benchmarks.md").write_text(PAGE + "\n## Starts (`make bench ONLY=starts`)\n\nProse.\n\n## Last\n")
    run_all({"starts": bounded(1.0)}, [], docs)
    text = (docs / "benchmarks.md").read_text()
    assert f"Prose.\n\n{page.begin('starts')}\n" in text
    assert f"{page.END}\n\n## Last\n" in text


def test_what_a_benchmark_without_a_table_prints_stands_there(docs: Path) -> None:
    def prints() -> bool:
        print("speed: the first line says what is measured")
        print("  floor 650 jobs/s   genflow 168 jobs/s")
        return verdict_at_least("ratio", 0.26, 0.2)

    run_all({"speed": Measured(prints)}, [], docs)
    text = (docs / "benchmarks.md").read_text()
    assert "```text\nfloor 650 jobs/s   genflow 168 jobs/s\n```" in text
    assert "| ratio | 0.26 | at least 0.2 |" in text


def test_a_page_that_lost_a_mark_is_refused() -> None:
    torn = PAGE.replace(f"| old | figures |\n{page.END}", "| old | figures |")
    with pytest.raises(ValueError, match="speed"):
        page.updated(torn, {"speed": Findings(date="2026-12-01")}, {})


def test_findings_survive_the_file(tmp_path: Path) -> None:
    found = Findings("2026-12-01T10:00:00", 1.5, True, {"CPython": "3.11.7"})
    found.tables.append(Table(["", "p50"], [["a|b", "1 s"]]))
    found.verdicts.append(Verdict("ratio", 1.0, 2.0, False, True))
    found.numbers["p50"] = {"genflow": 1.0}
    figures.save({"speed": found}, tmp_path / "kept.json")
    assert figures.load(tmp_path / "kept.json") == {"speed": found}


def test_the_picture_is_whole_and_readable_in_light_and_dark() -> None:
    rates = Findings("2026-12-01", numbers={"jobs_per_s": {"genflow": 30.0, "Celery <old>": 20.0}})
    drawn = picture.drawn({"side_by_side": rates})
    root = ElementTree.fromstring(drawn)  # noqa: S314 (our own text)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Celery <old>" in texts
    assert {"30", "20"} <= set(texts)
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if "bar" in each.get("class", "")]
    widths = [float(each.get("width", "0")) for each in bars]
    assert widths[1] / widths[0] == pytest.approx(20 / 30, abs=0.01)
    assert "prefers-color-scheme: dark" in drawn
    assert ElementTree.fromstring(picture.drawn({})) is not None  # noqa: S314
