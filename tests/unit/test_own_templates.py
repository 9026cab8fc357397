"""An operator's own template: read whole and checked at start, refused by file and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from genflow.errors import GenflowError
from genflow.settings import PortraitSettings
from genflow.templates import open_shelf, template_of
from genflow.templates.own import OwnTemplate, read_template
from genflow.templates.template import as_json
from genflow.workflow import AssetRef

WORKFLOW: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
    "2": {"class_type": "ImageScale", "inputs": {
        "image": ["1", 0], "width": 512, "height": 512, "upscale_method": "lanczos", "crop": "disabled", "ratio": 0.10,
    }},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "out", "flag": True, "n": 3}},
}  # fmt: skip
PARAMETERS: dict[str, Any] = {
    "picture": {"input": "1.image", "kind": "asset", "required": True},
    "side": {"input": ["2.width", "2.height"], "kind": "whole", "low": 64, "high": 1024, "step": 8},
    "method": {"input": "2.upscale_method", "kind": "choice", "choices": ["lanczos", "area"]},
    "ratio": {"input": "2.ratio", "kind": "number", "low": 0, "high": 1, "default": 0.5},
    "name": {"input": "3.filename_prefix", "kind": "text", "high": 20, "description": "what it is called"},
    "flag": {"input": "3.flag", "kind": "truth"},
    "seed": {"input": "3.n", "kind": "seed"},
}


def template(**parameters: Any) -> OwnTemplate:
    document = {"workflow": WORKFLOW, "parameters": parameters or PARAMETERS, "description": "a test"}
    return read_template("scale", document, lambda path: pytest.fail(path))


def test_values_land_where_the_table_says_and_all_else_stays() -> None:
    made = template()
    values = made.read({"picture": "a", "side": 256, "flag": False}, draw_seed=lambda: 2**64 - 1)
    assert values == {
        "picture": "a", "side": 256, "method": "lanczos", "ratio": 0.5, "name": "out", "flag": False, "seed": 2**64 - 1,
    }  # fmt: skip
    ref = AssetRef(uuid4())
    graph = json.loads(made.workflow(values, {"picture": ref}))
    assert graph["1"]["inputs"] == {"image": ref.as_json()}
    assert (graph["2"]["inputs"]["width"], graph["2"]["inputs"]["height"]) == (256, 256)
    assert (graph["3"]["inputs"]["flag"], graph["3"]["inputs"]["n"]) == (False, 2**64 - 1)
    assert graph["2"]["inputs"]["image"] == ["1", 0]


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        ({}, "picture", "missing"),
        ({"picture": "a", "side": 60}, "side", "out_of_range"),
        ({"picture": "a", "side": 65}, "side", "not_a_multiple"),
        ({"picture": "a", "side": "64"}, "side", "not_a_whole_number"),
        ({"picture": "a", "method": "bicubic"}, "method", "unknown_choice"),
        ({"picture": "a", "ratio": 2}, "ratio", "out_of_range"),
        ({"picture": "a", "name": "x" * 21}, "name", "too_long"),
        ({"picture": "a", "flag": 1}, "flag", "not_a_truth_value"),
        ({"picture": "a", "seed": -1}, "seed", "out_of_range"),
        ({"picture": "a", "colour": 1}, "colour", "unknown_field"),
    ],
)
def test_a_value_out_of_bounds_is_named(given: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(GenflowError) as caught:
        template().read(given)
    assert caught.value.code == "invalid_parameter"
    assert caught.value.details is not None
    assert (caught.value.details["field"], caught.value.details["reason"]) == (field, reason)


def test_the_list_tells_kinds_and_bounds() -> None:
    shown = {each["name"]: each for each in as_json(template())["parameters"]}
    assert shown["side"] | {"description": None} == {
        "name": "side", "kind": "whole", "required": False, "default": 512, "low": 64, "high": 1024, "step": 8,
        "choices": None, "description": None,
    }  # fmt: skip
    assert shown["method"]["choices"] == ["lanczos", "area"]
    assert (shown["picture"]["required"], shown["name"]["description"]) == (True, "what it is called")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kind": "colour", "input": "3.n"}, "x.kind"),
    ({"kind": "whole"}, "x.input"),
    ({"kind": "whole", "input": "9.n"}, "x.input"),
    ({"kind": "whole", "input": "3.images"}, "x.input"),
    ({"kind": "whole", "input": "3.n", "low": "1"}, "x.low"),
    ({"kind": "whole", "input": "3.n", "low": 5, "high": 4}, "x.high"),
    ({"kind": "whole", "input": "3.n", "step": 0}, "x.step"),
    ({"kind": "whole", "input": "3.n", "high": 2}, "x.default"),
    ({"kind": "whole", "input": "3.n", "default": "many"}, "x.default"),
    ({"kind": "number", "input": "2.ratio", "choices": ["a"]}, "x.choices"),
    ({"kind": "choice", "input": "2.upscale_method"}, "x.choices"),
    ({"kind": "choice", "input": "2.upscale_method", "choices": ["area"]}, "x.default"),
    ({"kind": "truth", "input": "3.flag", "required": "yes"}, "x.required"),
    ({"kind": "seed", "input": "3.n", "default": 1}, "x.default"),
    ({"kind": "asset", "input": "1.image", "default": "a.png"}, "x.default"),
    ({"kind": "text", "input": "3.filename_prefix", "description": 7}, "x.description"),
    ({"kind": "text", "input": "3.filename_prefix", "colour": 7}, "x.colour"),
]


@pytest.mark.parametrize(("content", "field"), BAD)
def test_a_bad_table_is_refused_by_its_field(content: dict[str, Any], field: str) -> None:
    with pytest.raises(GenflowError) as caught:
        template(x=content)
    assert caught.value.code == "template_invalid"
    assert caught.value.details == {"field": f"parameters.{field}"}


def test_a_name_that_a_jobs_file_needs_and_an_input_set_twice_are_refused() -> None:
    with pytest.raises(GenflowError, match=r"^parameters\.priority: "):
        template(priority=PARAMETERS["side"])
    with pytest.raises(GenflowError, match="3.n is set by a already"):  # noqa: RUF043
        template(a={"kind": "whole", "input": "3.n"}, b={"kind": "whole", "input": "3.n"})


def test_a_folder_holds_templates_and_their_workflows(tmp_path: Path) -> None:
    (tmp_path / "scale.api.json").write_text(json.dumps(WORKFLOW))
    (tmp_path / "scale.toml").write_text('workflow = "scale.api.json"\n[parameters.n]\ninput = "3.n"\nkind = "seed"\n')
    (tmp_path / "whole.json").write_text(json.dumps({"workflow": WORKFLOW}))
    shelf = open_shelf(tmp_path, PortraitSettings())
    assert list(shelf) == ["portrait", "scale", "whole"]
    assert template_of(shelf, "scale").read({}, draw_seed=lambda: 7) == {"n": 7}
    with pytest.raises(GenflowError, match="there is no template 'scal'; there are portrait, scale, whole"):
        template_of(shelf, "scal")


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("broken.toml", "workflow = ", "document"),
        ("broken.json", "[]", "document"),
        ("Broken.json", "{}", "name"),
        ("portrait.json", json.dumps({"workflow": WORKFLOW}), "name"),
        ("empty.json", "{}", "workflow"),
        ("lost.json", '{"workflow": "nowhere.api.json"}', "workflow"),
        ("other.json", '{"workflow": {"1": {}}}', "workflow"),
    ],
)
def test_a_bad_file_is_refused_by_its_name(tmp_path: Path, name: str, text: str, field: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(GenflowError) as caught:
        open_shelf(tmp_path, PortraitSettings())
    assert caught.value.message.startswith(f"{tmp_path / name}: {field}: ")
    assert caught.value.details == {"field": field, "file": str(tmp_path / name)}


def test_the_portrait_is_a_template_like_any_other() -> None:
    portrait = open_shelf(None, PortraitSettings(loras={"oil": "oil.safetensors"}))["portrait"]
    values = portrait.read({"photo": "a", "prompt": "x", "lora": "oil"}, draw_seed=lambda: 3)
    assert (values["photo"], values["seed"], values["steps"]) == ("a", 3, 20)
    ref = AssetRef(uuid4())
    graph = json.loads(portrait.workflow(values, {"photo": ref}))
    assert graph["3"]["inputs"]["image"] == ref.as_json()
    assert graph["2"]["inputs"]["lora_name"] == "oil.safetensors"
    with pytest.raises(GenflowError, match=r"^photo: is required"):
        portrait.read({"prompt": "x"})
    assert {each.name: each.kind for each in portrait.parameters}["seed"] == "seed"
