"""What a POST's body holds: docs/design/protocol.md, sections 2 and 5, step 4."""

from __future__ import annotations

import copy
import json
from typing import Any
from uuid import UUID

import pytest

from genflow.protocol import prompt_body, same_work

JOB = UUID("95ea73c5-d54f-4a12-bc7e-df1ed74f0466")
SUBMIT = UUID("11111111-2222-4333-8444-555555555555")

GRAPH: dict[str, Any] = {
    "1": {"class_type": "KSampler", "inputs": {"seed": 18446744073709551615, "cfg": 6.5, "steps": 20}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "me/ok"}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": ["9", 0]}},
}


def body(graph: dict[str, Any] | None = None, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "job_id": JOB,
        "submit": SUBMIT,
        "token": 7,
        "client_id": "c-1",
        "submit_no": 2,
        "extra_data": None,
    }
    return json.loads(prompt_body(GRAPH if graph is None else graph, **{**given, **changed}))


def test_the_body_carries_the_ids_and_no_number() -> None:
    sent = body()
    assert (sent["prompt_id"], sent["client_id"]) == (str(JOB), "c-1")
    assert sent["extra_data"]["genflow"] == {"submit": str(SUBMIT), "token": 7}
    assert set(sent) == {"prompt", "prompt_id", "client_id", "extra_data"}


def test_seeds_and_floats_arrive_as_they_were() -> None:
    raw = prompt_body(GRAPH, job_id=JOB, submit=SUBMIT, token=7, client_id="c", submit_no=1, extra_data=None)
    assert b'"seed":18446744073709551615' in raw
    assert b'"cfg":6.5' in raw
    assert b'"steps":20' in raw


def test_each_submit_writes_into_a_folder_of_its_own() -> None:
    assert body()["prompt"]["2"]["inputs"]["filename_prefix"] == f"genflow/{JOB}/2/me/ok"
    assert body(submit_no=3)["prompt"]["2"]["inputs"]["filename_prefix"] == f"genflow/{JOB}/3/me/ok"


def test_a_prefix_that_is_a_link_stays_and_a_nonce_makes_its_cache_key_new() -> None:
    first, second = body()["prompt"]["3"]["inputs"], body(submit_no=3)["prompt"]["3"]["inputs"]
    assert first["filename_prefix"] == second["filename_prefix"] == ["9", 0]
    assert first["_nonce"] != second["_nonce"]


def test_nodes_without_a_prefix_are_left_alone_so_that_the_cache_serves_them() -> None:
    assert body()["prompt"]["1"] == GRAPH["1"]


def test_the_clients_graph_is_not_touched() -> None:
    before = copy.deepcopy(GRAPH)
    body()
    assert before == GRAPH


@pytest.mark.parametrize("prefix", ["..", "../x", "a/../../x", "a/..", "..\\x"])
def test_a_prefix_that_leaves_its_folder_is_never_sent(prefix: str) -> None:
    with pytest.raises(ValueError, match="must not leave its folder"):
        body({"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": prefix}}})


def test_dots_inside_a_name_are_fine() -> None:
    sent = body({"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "a..b/v1..2"}}})
    assert sent["prompt"]["1"]["inputs"]["filename_prefix"] == f"genflow/{JOB}/2/a..b/v1..2"


@pytest.mark.parametrize("client_id", [{}, [], 7, None, ""])
def test_a_client_id_that_could_kill_the_server_is_never_sent(client_id: Any) -> None:
    with pytest.raises(ValueError, match="client_id must be a text"):
        body(client_id=client_id)


def test_a_number_that_is_not_finite_is_never_sent() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        body({"1": {"class_type": "KSampler", "inputs": {"cfg": float("nan")}}})


@pytest.mark.parametrize(
    "hurting",
    [
        {"extra_pnginfo": None},
        {"extra_pnginfo": []},
        {"extra_pnginfo": {"workflow": None}},
        {"extra_pnginfo": {"workflow": "x"}},
        {"preview_method": {}},
        {"preview_method": None},
        {"client_id": {}},
        {"create_time": 1},
    ],
    ids=str,
)
def test_extra_data_that_would_hurt_the_server_is_left_out(hurting: dict[str, Any]) -> None:
    sent = body(extra_data={**hurting, "mine": 1})["extra_data"]
    assert sent == {"mine": 1, "genflow": {"submit": str(SUBMIT), "token": 7}}


def test_harmless_extra_data_is_passed_on() -> None:
    harmless = {"extra_pnginfo": {"workflow": {"id": "wf-1"}, "note": "x"}, "preview_method": "auto"}
    sent = body(extra_data=harmless)["extra_data"]
    assert {key: sent[key] for key in harmless} == harmless


def test_a_client_cant_name_a_submit() -> None:
    assert body(extra_data={"genflow": {"submit": "someone"}})["extra_data"]["genflow"]["submit"] == str(SUBMIT)


ASSET = {"__type": "core/ASSET", "id": str(SUBMIT)}


def test_a_posted_graph_is_known_again_whatever_its_submit() -> None:
    assert same_work(GRAPH, body(submit_no=1)["prompt"])
    assert same_work(GRAPH, body(submit_no=12)["prompt"])
    assert same_work(GRAPH, GRAPH)


def test_an_uploaded_asset_stands_as_the_name_of_its_file() -> None:
    ours = {"1": {"class_type": "LoadImage", "inputs": {"image": ASSET}}}
    assert same_work(ours, {"1": {"class_type": "LoadImage", "inputs": {"image": f"genflow/{JOB}/6b86.png"}}})
    assert not same_work(ours, {"1": {"class_type": "LoadImage", "inputs": {"image": ["2", 0]}}})


@pytest.mark.parametrize(
    ("node", "name", "value"),
    [
        ("1", "seed", 18446744073709551614),
        ("1", "more", 1),
        ("2", "filename_prefix", "me/other"),
        ("2", "filename_prefix", "xme/ok"),
        ("2", "filename_prefix", f"genflow/{JOB}/x/me/ok"),
        ("2", "filename_prefix", f"genflow/{JOB}/2/"),
        ("3", "filename_prefix", ["8", 0]),
    ],
)
def test_another_graph_under_our_id_is_not_ours(node: str, name: str, value: Any) -> None:
    other = body()["prompt"]
    other[node]["inputs"][name] = value
    assert not same_work(GRAPH, other)


@pytest.mark.parametrize(
    "spoiled", [None, [], {"class_type": "Other"}, {"class_type": "KSampler", "inputs": [1]}], ids=str
)
def test_a_graph_of_another_shape_is_not_ours(spoiled: Any) -> None:
    assert not same_work(GRAPH, {})
    assert not same_work(GRAPH, {**body()["prompt"], "1": spoiled})
    assert not same_work(GRAPH, {**body()["prompt"], "9": GRAPH["1"]})
