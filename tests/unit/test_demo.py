"""The demo judges itself: what is not exactly one run of one prompt fails; its picture needs no network."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """examples/demo.py, which is a program and no part of a package."""
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    return module


def books(*pages: dict[str, int] | None) -> dict[str, Any]:
    """The answers of simulators that counted so for job `j`."""
    return {f"sim{n}": {"prompts": {} if page is None else {"j": page}} for n, page in enumerate(pages)}


def test_one_run_on_one_server_is_what_the_books_must_say(demo: ModuleType) -> None:
    once, never = {"posts": 1, "executions": 1}, {"posts": 0, "executions": 0}
    demo.check_books(books(once, None), "j")
    for wrong, told in (
        (books(once, once), "posted 2, run 2"),
        (books(None, None), "posted 0, run 0"),
        (books({"posts": 1, "executions": 0}, never), "posted 1, run 0"),
        (books({"posts": 2, "executions": 1}, None), "posted 2, run 1"),
    ):
        with pytest.raises(demo.Failed, match=told):
            demo.check_books(wrong, "j")


@pytest.mark.parametrize(
    ("name", "value"),
    [("status", "failed"), ("takeovers", 0), ("takeovers", 2), ("resubmits", 1), ("attempts_spent", 2),
     ("submits", [1, 2])],
)  # fmt: skip
def test_the_story_must_be_one_takeover_and_one_submit(demo: ModuleType, name: str, value: Any) -> None:
    story = {"status": "succeeded", "takeovers": 1, "resubmits": 0, "attempts_spent": 1, "submits": [1]}
    demo.check_story(story)
    with pytest.raises(demo.Failed, match="the job's story must be"):
        demo.check_story(story | {name: value})


def test_half_a_picture_is_none(demo: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    Image.effect_noise((64, 80), 50).save(path)
    assert demo.check_picture(path) == (64, 80)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(demo.Failed, match="no whole picture"):
        demo.check_picture(path)


def test_the_screen_is_drawn_without_anything_from_the_network(demo: ModuleType, tmp_path: Path) -> None:
    stage = demo.Stage()
    stage.at("[bold]two[/] words & more")
    demo.draw_record(stage, tmp_path / "screen.svg")
    for picture in (tmp_path / "screen.svg", ROOT / "docs" / "images" / "demo.svg"):
        svg = picture.read_text(encoding="utf-8")
        assert not re.search(r"@font-face|url\((?!#)|href=|<script", svg), picture
        words = " ".join(ElementTree.fromstring(svg).itertext())  # noqa: S314 - our own file
        assert "two" in words or "this prompt ran once" in words.replace("\xa0", " ")
