"""A workflow survives as it was written, and one that no server could run is refused by name."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genflow.errors import GenflowError
from genflow.workflow import (
    AssetRef,
    asset_refs,
    parse_workflow,
    read_json,
    split_object,
    substitute,
)


def graph(**inputs: Any) -> dict[str, Any]:
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "out", **inputs}},
    }


def refusal(raw: bytes | str) -> GenflowError:
    with pytest.raises(GenflowError) as caught:
        parse_workflow(raw)
    assert caught.value.status == 422
    return caught.value


def test_the_exact_text_of_a_value_is_found_whatever_stands_around_it() -> None:
    workflow = '{ "3" : {"class_type":"K","inputs":{"seed":18446744073709551615,"cfg":6.50,"t":"}\\"{\\u00e9é"}} }'
    body = f'{{"metadata" : {{"workflow": "no"}} ,\n "workflow":\t{workflow} , "extra_data":null}}'
    fields = split_object(body.encode())
    assert list(fields) == ["metadata", "workflow", "extra_data"]
    assert fields["workflow"][1] == workflow
    assert fields["workflow"][0]["3"]["inputs"] == {"seed": 2**64 - 1, "cfg": 6.5, "t": '}"{éé'}
    assert fields["extra_data"] == (None, "null")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text(), json_values, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_every_object_splits_into_its_own_values(value: dict[str, Any], indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    fields = split_object(text)
    assert {key: found for key, (found, _) in fields.items()} == value
    assert all(json.loads(exact) == value[key] and exact in text for key, (_, exact) in fields.items())


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}x", "[1,2", '{"a":1,}', '{"a" 1}', "{'a':1}", '{"a":1 "b":2}', '{"a":1,"a":2}', '{"a":{"b":1,"b":2}}',
     '{"a":NaN}', '{"a":-Infinity}', '{"a":1e999}', '{"a":01}', '{"a":"\x01"}', '{"a":' + "9" * 5000 + "}",
     '{"a":' + "[" * 100_000, "[]", "null", "{,}"],
)  # fmt: skip
def test_what_is_not_strict_json_is_no_request(text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every kind of broken text has its own words
        split_object(text)
    assert str(caught.value)


def test_text_after_the_end_and_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(ValueError, match="more text after its end"):
        read_json('{"a": 1} {"b": 2}')
    with pytest.raises(ValueError, match="not UTF-8"):
        read_json(b'{"a": "\xff"}')
    assert read_json(b'\xef\xbb\xbf {"a": 1} \n') == {"a": 1}


def test_numbers_are_read_exactly() -> None:
    found = parse_workflow('{"1": {"class_type": "K", "inputs": {"seed": 18446744073709551615, "cfg": 6.5}}}')
    assert json.dumps(found["1"]["inputs"]) == '{"seed": 18446744073709551615, "cfg": 6.5}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "not valid JSON"),
        ("[]", "not a list"),
        ('"text"', "not a text"),
        ("null", "not null"),
        ("7", "not a number"),
        ("{}", "no nodes"),
        ('{"1": {"class_type": "K", "inputs": {"cfg": NaN}}}', "NaN is not JSON"),
        ('{"1": {"class_type": "K", "inputs": {"cfg": Infinity}}}', "Infinity is not JSON"),
        ('{"1": {"class_type": "K", "inputs": {"cfg": 1e400}}}', "too large"),
        ('{"1": {"class_type": "K", "inputs": {}}, "1": {"class_type": "L", "inputs": {}}}', "stands twice"),
        ('{"1": {"class_type": "K", "inputs": {"a": "\\u0000"}}}', "NUL"),
        ('{"1": {"class_type": "K", "inputs": {"a": ["x", {"b": "\\ud800"}]}}}', "U+D800"),
        ('{"\\udfff": {"class_type": "K", "inputs": {}}}', "U+DFFF"),
        ('{"1": {"class_type": "K", "inputs": {"a": ' + "[" * 80 + "]" * 80 + "}}}", "deeper than 64"),
    ],
)
def test_a_workflow_that_is_none_is_refused(text: str, says: str) -> None:
    error = refusal(text)
    assert error.code == "invalid_workflow"
    assert says in error.message


@pytest.mark.parametrize(
    ("node", "field", "reason"),
    [
        (5, "", "not_an_object"),
        ([], "", "not_an_object"),
        ({"inputs": {}}, "class_type", "missing_class_type"),
        ({"class_type": ["K"], "inputs": {}}, "class_type", "missing_class_type"),
        ({"class_type": "", "inputs": {}}, "class_type", "missing_class_type"),
        ({"class_type": "K"}, "inputs", "missing_inputs"),
        ({"class_type": "K", "inputs": []}, "inputs", "missing_inputs"),
    ],
)
def test_a_node_that_would_make_comfyui_stumble_is_named(node: Any, field: str, reason: str) -> None:
    error = refusal(json.dumps({"1": {"class_type": "K", "inputs": {}}, "7": node}))
    assert error.code == "invalid_workflow"
    assert error.details is not None
    (found,) = error.details["node_errors"]["7"]
    assert (found["field"], found["reason"]) == (field, reason)


def test_the_editors_own_format_has_its_own_code() -> None:
    assert refusal('{"nodes": [], "links": [], "last_node_id": 1}').code == "workflow_format_ui"


@pytest.mark.parametrize("prefix", ["../x", "a/../../x", "a\\..\\x", "..", "a/.."])
def test_a_prefix_that_climbs_out_is_refused(prefix: str) -> None:
    error = refusal(json.dumps(graph(filename_prefix=prefix)))
    assert error.code == "invalid_workflow"
    assert error.details is not None
    assert error.details["node_errors"]["9"][0]["field"] == "filename_prefix"


@pytest.mark.parametrize("prefix", ["a..b", "...", "folder/out", "..x/y", ["1", 0]])
def test_a_prefix_that_stays_inside_is_kept(prefix: Any) -> None:
    assert parse_workflow(json.dumps(graph(filename_prefix=prefix)))["9"]["inputs"]["filename_prefix"] == prefix


def test_assets_are_found_anywhere_and_replaced_by_names() -> None:
    one, two = uuid4(), uuid4()
    first = AssetRef(one, "blake3:" + "0" * 64, "photo.png")
    value = graph(image=first.as_json(), extra=[{"deep": AssetRef(two).as_json()}, AssetRef(one).as_json()])
    value["9"]["_meta"] = {"title": AssetRef(two).as_json()}
    before = json.dumps(value)
    assert asset_refs(value) == [first, AssetRef(two)]
    replaced = substitute(value, {one: "a.png", two: "b.png"})
    assert replaced["9"]["inputs"]["image"] == "a.png"
    assert replaced["9"]["inputs"]["extra"] == [{"deep": "b.png"}, "a.png"]
    assert replaced["9"]["_meta"] == {"title": "b.png"}
    assert replaced["1"] == value["1"]
    assert json.dumps(value) == before


def test_replacing_an_asset_that_was_never_uploaded_is_an_error() -> None:
    with pytest.raises(KeyError):
        substitute(graph(image=AssetRef(uuid4()).as_json()), {})


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ({"__type": "core/ASSET"}, "malformed"),
        ({"__type": "core/ASSET", "info": "x"}, "malformed"),
        ({"__type": "core/ASSET", "info": {}}, "malformed"),
        ({"__type": "core/ASSET", "info": {"id": 7}}, "malformed"),
        ({"__type": "core/ASSET", "info": {"id": str(UUID(int=1)), "hash": 7}}, "malformed"),
        ({"__type": "core/ASSET", "info": {"id": "nope"}}, "unknown"),
    ],
)
def test_an_asset_that_can_not_exist_is_named_by_its_place(reference: Any, reason: str) -> None:
    with pytest.raises(GenflowError) as caught:
        asset_refs(graph(image=[reference]))
    assert caught.value.code == "missing_asset"
    assert caught.value.details is not None
    assert caught.value.details["field"] == "workflow.9.inputs.image[0]"
    assert caught.value.details["reason"] == reason
