"""The dashboard and the alerts that are shipped ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from genflow.failures import FailureClass
from genflow.fleet.breaker import Position
from genflow.protocol import Reply
from genflow.queue.registry import ServerState
from genflow.telemetry.metrics import DESCRIBED
from tests.support.repository import ROOT

SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
STORED = {f"{each.name}{suffix}": each for each in DESCRIBED.values() for suffix in SUFFIXES[each.kind]}
"""Every series, as Prometheus stores it."""

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "genflow.json").read_text())
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "genflow.rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]

VALUES: dict[tuple[str, str], set[str]] = {
    ("genflow_server_state", "state"): {state.name.lower() for state in ServerState},
    ("genflow_server_breaker", "position"): {position.value for position in Position},
    ("genflow_submits_total", "reply"): {reply.value for reply in Reply},
    ("genflow_jobs", "state"): {"queued", "waiting", "bound", "held", "canceling"},
    ("genflow_jobs_ended_total", "status"): {"succeeded", "failed", "canceled"},
    ("genflow_http_requests_total", "status"): {"200", "404", "500", "503"},
    ("genflow_dead_letters_last_hour", "class"): {each.value for each in FailureClass},
}
"""What a label that is selected by its value may be."""


def asked() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (rule["expr"] for rule in ALERTS)


@pytest.mark.parametrize("expression", sorted(set(asked())))
def test_each_question_is_about_a_metric_with_such_labels(expression: str) -> None:
    named = re.findall(r"\b(genflow_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    for name, selector in named:
        assert name in STORED, f"there is no {name}"
        for label, how, value in re.findall(r"(\w+)(=~|!=|=)\"([^\"]*)\"", selector):
            assert label in STORED[name].labels, f"{name} has no label {label}"
            known = VALUES[STORED[name].name, label]
            assert any(re.fullmatch(value, each) for each in known), f"no {label} of {name} is {how} {value}"
    grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
    labels = {label for name, _ in named for label in STORED[name].labels} | {"le"}
    assert grouped <= labels, f"{grouped - labels} of {expression}"


def test_a_counter_is_asked_for_its_rate_and_never_for_its_value() -> None:
    for expression in asked():
        for name in re.findall(r"genflow_\w+", expression):
            if STORED[name].kind != "gauge":
                assert re.search(rf"(rate|increase)\({name}", expression), expression


def test_every_alert_says_what_to_type_and_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    for rule in ALERTS:
        assert f"`{rule['alert']}`" in page
        told = rule["annotations"]["description"]
        assert "genflow " in told or "First: " in told, rule["alert"]


def test_every_metric_is_on_the_dashboard_or_is_plain() -> None:
    shown = {STORED[name].name for expression in asked() for name in re.findall(r"genflow_\w+", expression)}
    assert set(DESCRIBED) - shown == {
        "genflow_jobs_ended_last_hour", "genflow_runs_total", "genflow_server_slots", "genflow_server_takes_new",
    }  # fmt: skip


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
