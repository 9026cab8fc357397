"""The portrait's workflow is one that real nodes accept, and its parameters mean what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genflow.errors import GenflowError
from genflow.needs import Capabilities
from genflow.settings import PortraitSettings
from genflow.templates import Parameters, portrait_workflow, read_parameters
from genflow.templates.parameters import RULES, SAMPLERS, SCHEDULERS, Number, Whole
from genflow.validation import FleetNodes, check_workflow
from genflow.workflow import AssetRef, asset_refs, parse_workflow, substitute

DATA = Path(__file__).parent / "data"
RECORDED_GRAPH: dict[str, Any] = json.loads((DATA / "faceid_portrait_graph.json").read_text())
OBJECT_INFO: dict[str, Any] = json.loads((DATA / "faceid_object_info.json").read_text())
KNOWN = FleetNodes((OBJECT_INFO,), (Capabilities(OBJECT_INFO),))
PHOTO = AssetRef(UUID(int=7), "blake3:" + "a" * 64)
LORAS = {"oil": "style_dummy.safetensors"}


def settings(**changes: Any) -> PortraitSettings:
    return PortraitSettings.model_validate({"checkpoint": "dummy_sd15.safetensors", "loras": LORAS, **changes})


def read(*, form: Any = False, **fields: Any) -> Parameters:
    return read_parameters({"prompt": "a portrait", **fields}, LORAS, form=form, draw_seed=lambda: 42)


def refusal(*, form: Any = False, **fields: Any) -> dict[str, Any]:
    with pytest.raises(GenflowError) as caught:
        read(form=form, **fields)
    assert (caught.value.code, caught.value.status) == ("invalid_parameter", 422)
    assert caught.value.details is not None
    assert set(caught.value.details) == {"field", "reason", "limit", "got"}
    json.dumps(caught.value.details, allow_nan=False)
    assert caught.value.message.startswith(caught.value.details["field"] + ": ")
    return caught.value.details


def validate(graph: dict[str, Any]) -> list[str]:
    """What a real server would refuse: by the input tables that one reported."""
    wrong = []
    for node, content in graph.items():
        described = OBJECT_INFO[content["class_type"]]
        required, optional = described["input"]["required"], described["input"].get("optional", {})
        wrong += [f"{node}.{name} is missing" for name in required if name not in content["inputs"]]
        for name, value in content["inputs"].items():
            kind, bounds = (required | optional)[name]
            if isinstance(value, list):
                source = OBJECT_INFO[graph[value[0]]["class_type"]]["output"][value[1]]
                if source != kind:
                    wrong.append(f"{node}.{name} wants {kind}, is linked to {source}")
            elif isinstance(kind, list):
                if value not in kind:
                    wrong.append(f"{node}.{name}: {value} is not in {kind}")
            elif kind in ("INT", "FLOAT"):
                if not bounds["min"] <= value <= bounds["max"]:
                    wrong.append(f"{node}.{name}: {value} is not within {bounds}")
            elif kind not in ("STRING", "IMAGE_FILE"):
                wrong.append(f"{node}.{name} wants a link to {kind}")
    return wrong


def test_the_workflow_is_the_one_that_validated_on_real_nodes() -> None:
    graph = portrait_workflow(
        read(prompt="portrait of a person, oil painting", negative_prompt="blurry", seed=1),
        PHOTO,
        settings(provider="CPU"),
    )
    graph = substitute(graph, {PHOTO.id: "faceid/photo.jpg"})
    graph["11"]["inputs"]["filename_prefix"] = "faceid/portrait"
    for node in (*graph.values(), *RECORDED_GRAPH.values()):
        node.pop("_meta", None)
    assert graph == RECORDED_GRAPH


def test_with_a_style_lora_it_stands_between_the_checkpoint_and_everything_else() -> None:
    graph = portrait_workflow(read(lora="oil", lora_strength=-0.5), PHOTO, settings())
    assert validate(graph) == []
    assert graph["2"]["class_type"] == "LoraLoader"
    assert graph["2"]["inputs"]["lora_name"] == "style_dummy.safetensors"
    assert (graph["2"]["inputs"]["strength_model"], graph["2"]["inputs"]["strength_clip"]) == (-0.5, -0.5)
    assert graph["4"]["inputs"]["model"] == ["2", 0]
    assert graph["6"]["inputs"]["clip"] == graph["7"]["inputs"]["clip"] == ["2", 1]
    assert [n for n, node in graph.items() if ["1", 0] in node["inputs"].values()] == ["2"]


in_bounds = st.fixed_dictionaries(
    {"prompt": st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(str.strip)},
    optional={
        "negative_prompt": st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
        "lora": st.sampled_from(list(LORAS)),
        "lora_strength": st.floats(-2, 2),
        "face_strength": st.floats(0, 3),
        "seed": st.integers(0, 2**64 - 1),
        "steps": st.integers(1, 100),
        "cfg": st.floats(0, 30),
        "width": st.integers(32, 256).map(lambda n: n * 8),
        "height": st.integers(32, 256).map(lambda n: n * 8),
        "sampler": st.sampled_from(SAMPLERS),
        "scheduler": st.sampled_from(SCHEDULERS),
        "count": st.integers(1, 8),
    },
)


@given(in_bounds)
def test_whatever_is_allowed_makes_a_workflow_that_real_nodes_accept(fields: dict[str, Any]) -> None:
    parameters = read_parameters(fields, LORAS)
    graph = parse_workflow(json.dumps(portrait_workflow(parameters, PHOTO, settings())))
    assert validate(graph) == []
    check_workflow(graph, KNOWN)
    assert asset_refs(graph) == [PHOTO]
    sampler = graph["9"]["inputs"]
    assert graph["6"]["inputs"]["text"] == fields["prompt"]
    assert sampler["seed"] == fields.get("seed", sampler["seed"])
    assert sampler["steps"] == fields.get("steps", 20)
    assert sampler["cfg"] == fields.get("cfg", 6.0)
    assert graph["5"]["inputs"]["weight"] == fields.get("face_strength", 0.85)
    assert graph["8"]["inputs"] == {
        "width": fields.get("width", 512), "height": fields.get("height", 640), "batch_size": fields.get("count", 1)
    }  # fmt: skip


@given(in_bounds)
def test_a_form_says_the_same_as_json(fields: dict[str, Any]) -> None:
    form = {field: value if isinstance(value, str) else repr(value) for field, value in fields.items()}
    assert read_parameters(form, LORAS, form=True, draw_seed=lambda: 1) == read_parameters(
        fields, LORAS, draw_seed=lambda: 1
    )


def test_the_model_files_are_the_settings() -> None:
    names = {"checkpoint": "c.ckpt", "ipadapter": "i.bin", "clip_vision": "v.st", "faceid_lora": "l.st"}
    graph = portrait_workflow(read(), PHOTO, settings(**names, provider="ROCM"))
    texts = [value for node in graph.values() for value in node["inputs"].values() if isinstance(value, str)]
    assert {*names.values(), "ROCM"} <= set(texts)


def test_defaults_are_as_documented() -> None:
    assert read().as_json() == {
        "prompt": "a portrait", "negative_prompt": "", "lora": None, "lora_strength": 0.8, "face_strength": 0.85,
        "seed": 42, "steps": 20, "cfg": 6.0, "width": 512, "height": 640, "sampler": "euler", "scheduler": "normal",
        "count": 1,
    }  # fmt: skip


def test_an_absent_seed_is_drawn_from_the_whole_range() -> None:
    seeds = {read_parameters({"prompt": "x"}, {}).seed for _ in range(64)}
    assert len(seeds) == 64
    assert max(seeds) > 2**60


BAD: dict[str, list[Any]] = {
    "prompt": ["", "  \n", "x" * 10_001, "a\x00b", "a\ud800b", 7, None, ["x"]],
    "negative_prompt": ["x" * 10_001, "\x00", "\udc00", 7],
    "lora": ["watercolour", "style_dummy.safetensors", 7, ["oil"]],
    "lora_strength": [-2.01, 2.01, float("nan"), "0.5", True],
    "face_strength": [-0.01, 3.01, float("inf"), {}],
    "seed": [-1, 2**64, 1.5, 1e19, "7", True, 10**90],
    "steps": [0, 101, 20.0, "20"],
    "cfg": [-0.1, 30.1, "6", [6]],
    "width": [248, 2056, 513, 512.0],
    "height": [0, 10_000, 641],
    "sampler": ["Euler", "", 7],
    "scheduler": ["none", 7],
    "count": [0, 9, True],
}


@pytest.mark.parametrize(
    ("field", "bad"),
    [(f, v) for f, values in BAD.items() for v in values],
)
def test_every_value_out_of_bounds_is_named(field: str, bad: Any) -> None:
    assert refusal(**{field: bad})["field"] == field


@pytest.mark.parametrize("bad", ["1_0", "0x10", "٣", "1.5", "ten", "1e1", "9" * 40])
def test_a_form_reads_only_plain_numbers(bad: str) -> None:
    details = refusal(form=True, steps=bad)
    assert (details["field"], details["got"]) == ("steps", bad)
    assert refusal(form=True, cfg="nan")["reason"] == "not_a_number"
    assert refusal(form=True, cfg="1e999")["field"] == "cfg"


def test_bounds_are_included() -> None:
    for field, rule in RULES.items():
        if not isinstance(rule, Whole | Number):
            continue
        for bound in (rule.low, rule.high):
            assert getattr(read(**{field: bound}), field) == bound
    assert len(read(prompt="x" * 10_000).prompt) == 10_000


def test_what_is_missing_or_unknown_is_named_with_a_hint() -> None:
    with pytest.raises(GenflowError, match=r"^prompt: is required") as caught:
        read_parameters({}, {})
    assert caught.value.details == {"field": "prompt", "reason": "missing", "limit": None, "got": None}
    with pytest.raises(GenflowError, match="did you mean negative_prompt") as caught:
        read(negativ_prompt="x")
    assert caught.value.details is not None
    assert (caught.value.details["field"], caught.value.details["reason"]) == ("negativ_prompt", "unknown_field")
    assert refusal(lora="watercolour")["limit"] == ["oil"]
    assert refusal(lora="watercolour")["got"] == "watercolour"


def test_null_in_json_and_an_empty_field_in_a_form_count_as_absent() -> None:
    nothing = dict.fromkeys(["negative_prompt", "lora", "lora_strength", "seed", "width", "sampler"])
    assert read(**nothing) == read()
    assert read(form=True, **dict.fromkeys(nothing, "")) == read()
