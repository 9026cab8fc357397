"""Which files and texts a history entry names."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from genflow.outputs import TEXTS_PER_KEY, Output, files_beside, output_id, walk_outputs
from tests.unit import recorded


def found(outputs: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    return [(o.node_id, o.key, o.index, o.filename if o.text is None else o.text) for o in walk_outputs(outputs)]


def test_every_recorded_kind_of_output_is_found() -> None:
    kinds = [found(outputs) for outputs in recorded.answer("outputs")]
    assert kinds == [
        [("2", "images", n, f"batch_{n}_0000{n + 1}_.png") for n in range(3)],
        [("2", "images", 0, "anim_00001_.webp")],
        [("2", "images", 0, "apng_00001_.png")],
        [("2", "images", 0, "vid_00001_.mp4")],
        [("2", "text", 0, "hello")],
        [("2", "audio", 0, "aud_00001.flac")],
        [("2", "latents", 0, "lat_00001_.latent")],
        [("2", "images", 0, "two_00001_.png"), ("a-b:c", "images", 0, "two_00001_.png")],
        [("2", "images", 0, "ComfyUI_temp_dxpin_00001_.png")],
    ]


def test_folder_and_type_come_along() -> None:
    item = {"filename": "a.png", "subfolder": "genflow/x/1", "type": "temp", "format": "image/png"}
    assert walk_outputs({"7": {"gifs": [item]}}) == [Output("7", "gifs", 0, "a.png", "genflow/x/1", "temp")]


def test_a_type_that_is_not_told_is_output_as_for_view() -> None:
    assert walk_outputs({"7": {"images": [{"filename": "a.png"}]}}) == [Output("7", "images", 0, "a.png")]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (3, "3"),
        (True, "true"),
        (["a.png", None], '["a.png", null]'),
        ({}, "{}"),
        ("", ""),
        ({"filename": 3}, '{"filename": 3}'),
        ({"filename": ""}, '{"filename": ""}'),
        ({"filename": "a", "subfolder": 1}, '{"filename": "a", "subfolder": 1}'),
        ({"filename": "ä", "type": "bogus"}, '{"filename": "ä", "type": "bogus"}'),
    ],
    ids=str,
)
def test_what_names_no_file_is_a_text(item: Any, text: str) -> None:
    assert walk_outputs({"1": {"key": [item]}}) == [Output("1", "key", 0, text=text)]


@pytest.mark.parametrize(
    ("item", "where"),
    [
        ({"filename": "sub/a.png", "subfolder": ""}, ("sub", "a.png")),
        ({"filename": "sub/a.png", "subfolder": "deep"}, ("deep/sub", "a.png")),
        ({"filename": "a.png", "subfolder": None}, ("", "a.png")),
        ({"filename": "../a.png"}, None),
        ({"filename": "/srv/output/a.png"}, None),
        ({"filename": "a.png", "subfolder": "../../x"}, None),
        ({"filename": "a.png", "subfolder": "/srv"}, None),
    ],
    ids=str,
)
def test_a_file_is_asked_for_where_view_has_it_and_one_that_view_refuses_for_good_is_a_text(
    item: dict[str, Any], where: tuple[str, str] | None
) -> None:
    [output] = walk_outputs({"1": {"images": [item]}})
    if where is None:
        assert output.text == json.dumps(item)
    else:
        assert (output.subfolder, output.filename, output.text) == (*where, None)


def test_of_very_many_values_one_text_holds_all_and_files_stay_files() -> None:
    file = {"filename": "a.png", "subfolder": "", "type": "output"}
    few, many = walk_outputs({"1": {"key": [1] * TEXTS_PER_KEY}}), walk_outputs({"1": {"key": [file, *range(101)]}})
    assert len(few) == TEXTS_PER_KEY
    assert many == [Output("1", "key", 0, "a.png"), Output("1", "key", 1, text=json.dumps([*range(101)]))]


def test_a_flag_beside_files_is_no_output_and_what_is_no_list_says_nothing() -> None:
    assert walk_outputs({"1": {"animated": [True], "key": "a.png"}, "2": None, "3": "text", "4": {"key": None}}) == []


def test_both_ways_to_ask_for_outputs_give_the_same() -> None:
    history = {"1": {"result": [None, "3d/a.GLB", {"filename": "b.glb", "subfolder": "3d", "type": "output"}]}}
    jobs = {"1": {"result": [{"filename": "3d/a.GLB", "type": "output", "subfolder": "", "mediaType": "3d"}]}}
    jobs["1"]["result"] += history["1"]["result"][2:]  # type: ignore[arg-type]
    assert walk_outputs(jobs) == walk_outputs(history)
    assert found(history) == [("1", "result", 0, "3d/a.GLB"), ("1", "result", 1, "b.glb")]


def test_names_are_fit_for_the_database() -> None:
    output = walk_outputs({"1\x00": {"images": [{"filename": "a\x00\ud800.png"}]}})[0]
    (output.node_id + output.filename).encode("utf-8")
    assert "\x00" not in output.node_id + output.filename


def test_a_long_text_is_kept_whole() -> None:
    assert walk_outputs({"1": {"text": ["x" * 100_000]}})[0].text == "x" * 100_000


def test_two_collectors_agree_on_an_outputs_id() -> None:
    job = UUID("95ea73c5-d54f-4a12-bc7e-df1ed74f0466")
    assert output_id(job, "2", "images", 0) == output_id(job, "2", "images", 0)
    ids = {
        output_id(job, "2", "images", 0),
        output_id(job, "2", "images", 1),
        output_id(job, "2", "gifs", 0),
        output_id(job, "21", "mages", 0),
        output_id(job, "3", "images", 0),
        output_id(uuid4(), "2", "images", 0),
    }
    assert len(ids) == 6


def test_a_file_that_a_video_node_wrote_beside_its_own_is_known() -> None:
    """VHS_VideoCombine names its PNG of the first frame in the item's `workflow` alone."""
    item = {"filename": "a_00001.mp4", "subfolder": "genflow/x/1", "type": "output", "workflow": "a_00001.png"}
    preview = item | {"type": "temp", "workflow": "b.png"}
    assert files_beside({"7": {"gifs": [item, None, "text", preview]}, "8": 1}) == {("genflow/x/1", "a_00001.png")}
