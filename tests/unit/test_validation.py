"""A workflow is refused for what ComfyUI itself would refuse, in its words where it has some, and for nothing else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genflow.errors import GenflowError
from genflow.needs import Capabilities
from genflow.simulator.catalog import Catalog
from genflow.simulator.validation import validate_prompt
from genflow.validation import SHOWN, FleetNodes, check_workflow, may_pass_soon
from genflow.workflow import AssetRef, check_structure

RECORDED = json.loads((Path(__file__).parent / "recordings/simulator/validation.json").read_text())["rows"]

CATALOG = Catalog({"checkpoints": ("one.safetensors",)})
OBJECT_INFO = CATALOG.all_object_info([])


def fleet(*infos: dict[str, Any]) -> FleetNodes:
    return FleetNodes(infos, tuple(Capabilities(info) for info in infos))


KNOWN = fleet(OBJECT_INFO)


def graph(**inputs: Any) -> dict[str, Any]:
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "out", **inputs}},
    }


def errors_of(value: dict[str, Any], known: FleetNodes | None = KNOWN, **how: Any) -> dict[str, list[str]]:
    """The reasons by node and field for which a workflow is refused; nothing where it is taken."""
    try:
        check_workflow(value, known, **how)
    except GenflowError as error:
        told = error
    else:
        return {}
    assert (told.code, told.status) == ("invalid_workflow", 422)
    details = told.details or {}
    if "node_errors" not in details:
        return {"": [details["reason"]]}
    for node, errors in details["node_errors"].items():
        for each in errors:
            assert set(each) == {"field", "reason", "message", "class_type"}
            assert each["class_type"] == value[node]["class_type"]
    return {
        node: [f"{each['field']} {each['reason']}" for each in errors]
        for node, errors in details["node_errors"].items()
    }


# --- as ComfyUI ---

AS_RECORDED = Catalog({"checkpoints": ("dummy_sd15.safetensors", "random_sd15.safetensors")})
OURS = {"exception_during_inner_validation": "bad_link", "exception_during_validation": "bad_link"}


@pytest.mark.parametrize("row", RECORDED, ids=[row["case"] for row in RECORDED])
def test_what_comfyui_was_recorded_to_refuse_is_refused_and_nothing_else(row: dict[str, Any]) -> None:
    body = row.get("body", row)
    try:
        check_structure(row["prompt"])
    except GenflowError:
        assert "error" in body or row["prompt"]["3"]["inputs"]["filename_prefix"].startswith(".."), "refused by shape"
        return
    theirs = {
        node: [f"{OURS.get(each['type'], each['type'])}" for each in told["errors"]]
        for node, told in body.get("node_errors", {}).items()
        if told["errors"][0]["type"] != "custom_validation_failed"  # which only the server itself can know
    }
    ours = errors_of(row["prompt"], fleet(AS_RECORDED.all_object_info([])))
    kind = body.get("error", {}).get("type")
    if kind == "missing_node_type":
        assert ours == {body["error"]["extra_info"]["node_id"]: ["class_type unknown_class"]}
    elif kind == "prompt_no_outputs":
        assert ours == {"": ["no_output_node"]}
    else:
        assert {node: [each.split()[1] for each in errors] for node, errors in ours.items()} == theirs


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.sampled_from(["64", "x", "", "red", "nan"]),
    st.lists(st.one_of(st.sampled_from(["1", "2", "9", "404"]), st.integers(-3, 3), st.floats(-2, 2)), max_size=3),
    st.just({"__value__": [1]}), st.just({}),
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["image", "channel"]), ANYTHING),
    st.dictionaries(st.sampled_from(["width", "height", "batch_size", "color", "unknown"]), ANYTHING),
    st.sampled_from([["2", 0], ["2", 1], ["1", 0], ["1", -1], ["4", 0], ["4", True]]),
)
def test_a_node_is_refused_exactly_where_a_server_refuses_it(
    mask: dict[str, Any], empty: dict[str, Any], images: list[Any]
) -> None:
    value = graph(images=images)
    value["1"]["inputs"] |= empty
    value["2"] = {"class_type": "ImageToMask", "inputs": {"image": ["1", 0], "channel": "red"} | mask}
    value["4"] = {"class_type": "MaskToImage", "inputs": {"mask": ["2", 0]}}
    verdict = validate_prompt(copy.deepcopy(value), CATALOG, lambda name: True)
    assert bool(errors_of(value)) == bool(verdict.error or verdict.node_errors)


# --- what a description tells, and what it does not ---


def one_node(spec: Any, value: Any, **more: Any) -> dict[str, list[str]]:
    """What is said of one value at an input `x` of this description."""
    info = OBJECT_INFO | {"K": {"input": {"required": {"x": spec}}, "output": ["IMAGE"], "output_node": True} | more}
    return errors_of({"1": {"class_type": "K", "inputs": {} if value is ... else {"x": value}}}, fleet(info))


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (["INT", {"min": 0}], "7"), (["INT", {}], 6.7), (["FLOAT", {"max": 1}], "nan"), (["STRING", {"min": 3}], 1),
        (["BOOLEAN", {}], None), (["COMBO", {"options": [1, "b"]}], 1), ([["a"], {}], "a"), (["IMAGE"], 5),
        ([["a", "b"], {"multiselect": True}], {"__value__": ["a", "b"]}),
        ([[], {"image_upload": True}], "new.png"), (["COMBO", {"remote": {"route": "/r"}}], "far"),
        ([["a"], {}], AssetRef(UUID(int=1)).as_json()),
        (["COMFY_AUTOGROW_V3", {}], ...), (["INT", {"min": 0, "max": 2**64 - 1}], 2**64 - 1),
    ],
)  # fmt: skip
def test_what_a_server_may_take_is_left_to_it(spec: Any, value: Any) -> None:
    assert one_node(spec, value) == {}


@pytest.mark.parametrize(
    ("spec", "value", "reason"),
    [
        (["INT", {}], "6.5", "invalid_input_type"), (["INT", {}], None, "invalid_input_type"),
        (["INT", {"max": 2**64 - 1}], 2**64, "value_bigger_than_max"), (["INT", {}], {}, "invalid_input_type"),
        (["FLOAT", {"min": 0.5}], 0.4, "value_smaller_than_min"), (["FLOAT", {}], 10**400, "invalid_input_type"),
        ([["a"], {}], "b", "value_not_in_list"), (["COMBO", {"options": ["a"]}], None, "value_not_in_list"),
        ([["a"], {"multiselect": True}], {"__value__": ["a", "z"]}, "value_not_in_list"),
        (["IMAGE"], ..., "required_input_missing"), (["INT"], [], "bad_linked_input"), (["INT"], [1, 0], "bad_link"),
    ],
)  # fmt: skip
def test_what_no_server_takes_is_named(spec: Any, value: Any, reason: str) -> None:
    assert one_node(spec, value) == {"1": [f"x {reason}"]}


def test_a_list_of_files_is_not_told_to_whoever_misses() -> None:
    with pytest.raises(GenflowError) as caught:
        check_workflow(
            graph() | {"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "x"}}}
            | {"5": {"class_type": "SaveImage", "inputs": {"images": ["4", 0], "filename_prefix": "p"}}},
            KNOWN,
        )  # fmt: skip
    assert "one.safetensors" not in json.dumps(caught.value.details) + caught.value.message
    assert may_pass_soon(caught.value)


def test_outputs_that_a_node_makes_up_are_not_judged() -> None:
    info = OBJECT_INFO | {"Any": {"input": {}, "output": ["*"]}, "Two": {"input": {}, "output": ["MASK,IMAGE"]}}
    for class_type, index in (("Any", 7), ("Two", 0)):
        value = graph(images=["1", index]) | {"1": {"class_type": class_type, "inputs": {}}}
        assert errors_of(value, fleet(info)) == {}


def test_inputs_that_no_class_declares_run_too_so_their_links_must_lead_somewhere() -> None:
    bad = {"class_type": "EmptyImage", "inputs": {"width": -1}}
    assert errors_of(graph(more=["404", 0])) == {"9": ["more bad_link"]}
    assert errors_of(graph(more=["5", 0]) | {"5": bad}) == {}, "a server doesn't validate what it needs only to run"
    assert errors_of(graph() | {"5": bad}) == {}, "nothing needs it"


def test_a_circle_of_links_is_named_by_one_of_its_nodes() -> None:
    circle = {
        "1": {"class_type": "ImageInvert", "inputs": {"image": ["2", 0]}},
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    }
    assert list(errors_of(graph() | circle).values()) == [["image dependency_cycle"]]


def test_a_long_line_of_nodes_and_thousands_of_errors_are_no_trouble() -> None:
    chain: dict[str, Any] = {
        str(n): {"class_type": "ImageInvert", "inputs": {"image": [str(n - 1), 0]}} for n in range(10, 5_000)
    }
    chain["10"]["inputs"] = {"image": ["1", 0]}
    assert errors_of(graph(images=["4999", 0]) | chain) == {}
    for node in chain.values():
        node["inputs"]["image"] = "no link"
    many = {str(n): {"class_type": "SaveImage", "inputs": {}} for n in range(5_000)}
    assert sum(len(each) for each in errors_of(many).values()) == SHOWN


# --- several servers ---


def test_nothing_known_accepts_and_each_server_counts() -> None:
    unknown = {"1": {"class_type": "NoSuchNode", "inputs": {}}}
    assert errors_of(unknown, None) == {}
    assert errors_of(unknown) == {"1": ["class_type unknown_class"]}
    assert errors_of(unknown, fleet(OBJECT_INFO, {"NoSuchNode": {"output_node": True}})) == {}


def test_what_no_single_server_has_together_is_refused_or_waits() -> None:
    def loads(name: str, saves: str) -> dict[str, Any]:
        return {
            "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": name}},
            "2": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["1", 2]}},
            "3": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
            "9": {"class_type": saves, "inputs": {"images": ["2", 0], "filename_prefix": "out"}},
        }

    one = Catalog({"checkpoints": ("one.safetensors",)}).all_object_info([])
    two = Catalog({"checkpoints": ("two.safetensors",)}).all_object_info([])
    del two["SaveImage"]
    del one["PreviewImage"]
    both = fleet(one, two)
    assert errors_of(loads("one.safetensors", "SaveImage"), both) == {}
    assert errors_of(loads("two.safetensors", "PreviewImage"), both) == {}
    apart = loads("two.safetensors", "SaveImage")
    assert errors_of(apart, both) == {"": ["no_single_server"]}
    assert errors_of(apart, both, lenient=True) == {}
    with pytest.raises(GenflowError, match=r"node SaveImage|two\.safetensors \(ckpt_name of"):
        check_workflow(apart, both)
    assert errors_of(loads("three.safetensors", "SaveImage"), both, lenient=True) == {
        "1": ["ckpt_name value_not_in_list"]
    }
