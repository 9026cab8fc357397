"""What a workflow needs of a server, and which server has it."""

from __future__ import annotations

from typing import Any

from genflow.needs import Capabilities, Needs, closest_lack, needs_from_json, needs_of, without_uploads


def object_info(checkpoints: list[str], **more: Any) -> dict[str, Any]:
    """A server with a loader in the old form, a filter in the new one, and a node that loads uploads."""
    return {
        "Loader": {"input": {"required": {"ckpt_name": [checkpoints, {}], "strength": ["FLOAT", {"default": 1.0}]}}},
        "Filter": {"input": {"optional": {"channel": ["COMBO", {"options": ["red", "green", 3]}]}}},
        "LoadImage": {"input": {"required": {"image": [["a.png"], {"image_upload": True}]}}},
        "LoadVideo": {"input": {"required": {"file": ["COMBO", {"video_upload": True, "options": ["a.mp4"]}]}}},
        **more,
    }


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


GRAPH: dict[str, Any] = {
    "1": node("Loader", ckpt_name="a.safetensors", strength="1.0"),
    "2": node("Filter", channel="red", image=["3", 0]),
    "3": node("LoadImage", image="a.png"),
    "4": node("LoadVideo", file="a.mp4"),
}


def test_needs_are_the_nodes_and_what_is_chosen_out_of_their_lists() -> None:
    needs = needs_of(GRAPH, [Capabilities(object_info(["a.safetensors"]))])
    assert needs.nodes == ("Filter", "LoadImage", "LoadVideo", "Loader")
    assert needs.values == (("Filter", "channel", "red"), ("Loader", "ckpt_name", "a.safetensors"))


def test_what_is_uploaded_for_a_job_is_no_need() -> None:
    reference = {"1": node("LoadImage", image={"__type": "core/ASSET", "info": {"id": "x"}})}
    known = [Capabilities(object_info([]))]
    assert needs_of(reference, known).values == needs_of({"3": GRAPH["3"]}, known).values == ()


def test_what_no_known_server_has_is_no_need_so_that_a_server_says_what_is_wrong() -> None:
    known = [Capabilities(object_info(["a.safetensors"])), Capabilities(object_info(["b.safetensors"]))]
    assert needs_of({"1": node("Loader", ckpt_name="c.safetensors")}, known).values == ()
    assert needs_of({"1": node("Loader", ckpt_name="b.safetensors")}, known).values != ()
    assert needs_of({"1": node("Nobody")}, known) == Needs()
    assert needs_of(GRAPH, []) == Needs()
    odds: list[Any] = [[], None, {"1": 1}, {"1": {"class_type": ["Loader"], "inputs": {}}}]
    for odd in odds:
        assert needs_of(odd, known) == Needs()
    assert needs_of({"1": {"class_type": "Loader", "inputs": None}}, known) == Needs(("Loader",))


def test_one_set_of_needs_is_one_class_whatever_the_order() -> None:
    known = [Capabilities(object_info(["a.safetensors"]))]
    turned = dict(reversed(GRAPH.items())) | {"9": GRAPH["1"]}
    assert needs_of(GRAPH, known).hash == needs_of(turned, known).hash != needs_of({"1": GRAPH["1"]}, known).hash
    assert needs_from_json(needs_of(GRAPH, known).as_json()) == needs_of(GRAPH, known)
    assert Needs().hash == b"", "the class that the schema begins with"
    assert needs_from_json({}) == Needs()


def test_a_server_is_able_when_it_has_every_node_and_every_choice() -> None:
    one = Capabilities(object_info(["a.safetensors"], Extra={}))
    other = Capabilities({name: info for name, info in object_info(["b.safetensors"]).items() if name != "Filter"})
    needs = needs_of(GRAPH | {"9": node("Extra")}, [one, other])
    assert one.lacks(needs) == []
    assert other.lacks(needs) == ["node Extra", "node Filter", "a.safetensors (ckpt_name of Loader)"]
    assert closest_lack(needs, [other, one]) is None
    assert closest_lack(needs, []) is None, "nothing is known"


def test_where_none_is_able_the_closest_one_is_told() -> None:
    needs = Needs(tuple(f"N{number}" for number in range(9)))
    bare, better = Capabilities({}), Capabilities({"N1": {}, "N5": {}, "N6": {}, "N7": {}})
    told = closest_lack(needs, [bare, better])
    assert told == "no known server can run it; the closest lacks node N0, node N2, node N3, node N4, node N8"
    many = closest_lack(needs, [bare])
    assert many is not None
    assert many.endswith("lacks node N0, node N1, node N2, node N3, node N4 and 4 more")


def test_lists_of_uploaded_files_are_left_out_of_what_is_kept() -> None:
    kept = without_uploads(object_info(["a.safetensors"], Odd=None, Bare={"input": None}))
    assert kept["LoadImage"]["input"]["required"]["image"] == [[], {"image_upload": True}]
    assert kept["LoadVideo"]["input"]["required"]["file"] == ["COMBO", {"video_upload": True}]
    assert kept["Loader"] == object_info(["a.safetensors"])["Loader"]
    assert kept["Odd"] is None


def test_descriptions_of_no_known_shape_are_a_node_without_choices() -> None:
    odd: dict[str, Any] = {
        "A": None,
        "B": {"input": {"required": None, "optional": {"x": [], "y": "COMBO", "z": ["COMBO"], "w": ["COMBO", 3]}}},
    }
    made = Capabilities(odd)
    assert made.has("A")
    assert not made.offers("B", "x", "")
    assert made.lacks(Needs(("A", "B"))) == []
