"""The failpoints: one list in the code, the same in the documentation, and each of them somewhere in the sources."""

from __future__ import annotations

import re

import pytest

from genflow import failpoints
from genflow.failpoints import FAILPOINTS
from tests.support.repository import ROOT, repository_files


def test_every_failpoint_stands_in_the_code() -> None:
    sources = [path for path in repository_files(".py") if path.is_relative_to(ROOT / "src")]
    hits = [name for path in sources for name in re.findall(r'failpoints\.hit\("([^"]+)"\)', path.read_text("utf-8"))]
    assert set(hits) == set(FAILPOINTS)
    twice = {name for name in hits if hits.count(name) > 1}
    assert {name.partition(".")[0] for name in twice} <= {"rabbit"}, "once for each way of acknowledging"


def test_the_page_lists_the_failpoints_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "failpoints.md").read_text("utf-8")
    assert dict(re.findall(r"(?m)^\| `([a-z_.]+)` \| (.+) \|$", page)) == FAILPOINTS


def test_an_armed_failpoint_acts_once_on_the_hit_that_was_asked_for() -> None:
    failpoints.arm("wait.before=error@2, claim.after=error")
    try:
        failpoints.hit("wait.before")
        with pytest.raises(failpoints.FailpointError, match=r"wait\.before"):
            failpoints.hit("wait.before")
        failpoints.hit("wait.before")
        failpoints.hit("upload.before")
        with pytest.raises(failpoints.FailpointError, match=r"claim\.after"):
            failpoints.hit("claim.after")
    finally:
        failpoints.arm("")
    failpoints.hit("claim.after")


@pytest.mark.parametrize("wrong", ["wait.befor=kill", "wait.before=explode", "wait.before=kill@often"])
def test_what_does_not_exist_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"befor|explode|often"):
        failpoints.arm(wrong)
    failpoints.hit("wait.before")
