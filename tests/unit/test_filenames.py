"""No text of a client's own leads a server to files of others, however it is spelt; an asset's name is no such text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from genflow.edits import set_inputs
from genflow.errors import GenflowError
from genflow.filenames import leads_away
from genflow.workflow import parse_workflow

FACE = "0b6d3a52-7a0c-4b3e-9d64-2f4f5d1f7c11/ab.jpg"


@pytest.mark.parametrize(
    "text",
    [
        f"genflow/{FACE}", f"./genflow/{FACE}", f"genflow//{FACE}", f"genflow\\{FACE}", f".\\genflow/{FACE}", "genflow",
        f"GenFlow/{FACE}", f"genflow /{FACE}", f"genflow./{FACE}", f"GENFLO~1/{FACE}", f"gen\u200cflow/{FACE}",
        f"\uff47enflow/{FACE}", f"x/../genflow/{FACE}", f"../input/genflow/{FACE}", f"/srv/input/genflow/{FACE}",
        f"C:genflow\\{FACE}", f"genflow/{FACE} [input]", "genflow [input]", f"sub/genflow/{FACE}",
        "ComfyUI_00001_.png [output]", "a.png[output]", "a.png [TEMP]", "a.png [temp] ", "a.png\t[output]\n",
        "../output/a.png", "..\\temp\\a.png", "a/..", "../",
    ],
)  # fmt: skip
def test_a_text_that_leads_to_files_of_others_is_refused_wherever_it_stands(text: str) -> None:
    assert leads_away(text) is not None
    for value in (text, [text], {"a": [{"b": text}]}, {text: 1}, {"__value__": [text]}):
        workflow = json.dumps({"1": {"class_type": "LoadImage", "inputs": {"image": value}}})
        with pytest.raises(GenflowError) as caught:
            parse_workflow(workflow)
        [error] = (caught.value.details or {})["node_errors"]["1"]
        assert (caught.value.code, error["field"], error["reason"]) == ("invalid_workflow", "image", "not_your_file")


@pytest.mark.parametrize(
    "value",
    [
        "in.png", "sub/in.png", "in.png [input]", "a cat, [output] of a printer", "genflow is a word", "my genflow/x",
        "and so on ..", "..", "a..b/c", "...", "", 5, None, True, ["1", 0],
        {"__type": "core/ASSET", "info": {"id": "x", "file_path": f"genflow/{FACE} [output]"}},
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_left_alone(value: Any) -> None:
    assert leads_away(value) is None


def test_a_prefix_is_written_below_a_folder_of_the_jobs_own() -> None:
    workflow = {"9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "genflow/x [output]"}}}
    assert parse_workflow(json.dumps(workflow)) == workflow


def test_a_value_that_is_set_afterwards_is_held_to_the_same() -> None:
    before = '{"1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}}}'
    workflow = set_inputs(before, {"1.image": "a.png [temp]"})
    with pytest.raises(GenflowError, match="temp"):
        parse_workflow(workflow)
