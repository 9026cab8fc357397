"""What the end of a POST means: each row of the table in docs/design/protocol.md, section 5, step 6."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from genflow.protocol import PostReply, Reply, classify_post
from tests.unit import recorded

JOB = UUID("95ea73c5-d54f-4a12-bc7e-df1ed74f0466")
COMFY = {"Server": "Python/3.11 aiohttp/3.14.5", "Content-Type": "application/json; charset=utf-8"}
NGINX = {"Server": "nginx/1.22.1", "Content-Type": "text/html"}
HTML = b"<html><body>ComfyUI is starting</body></html>"


def classify(status: int, body: Any, headers: dict[str, str] = COMFY) -> PostReply:
    return classify_post(JOB, status, headers, body if isinstance(body, bytes) else json.dumps(body).encode())


def receipt(**changed: Any) -> dict[str, Any]:
    return {"prompt_id": str(JOB), "number": 0, "node_errors": {}, **changed}


def test_a_receipt_for_our_id_is_accepted_and_number_zero_is_a_number() -> None:
    assert classify(200, receipt()) == PostReply(Reply.ACCEPTED, 200, number=0.0)


@pytest.mark.parametrize(
    "body",
    [
        HTML,
        b"",
        b"null",
        b"[1]",
        b"[" * 100_000,
        receipt(prompt_id="6fe5e6c6-4b46-4f5e-9f02-3f7e0c6b2a11"),
        receipt(prompt_id=str(JOB).upper()),
        receipt(number=None),
        receipt(number="3"),
        receipt(number=True),
        receipt(number=10**400),
        b'{"prompt_id": "95ea73c5-d54f-4a12-bc7e-df1ed74f0466", "number": NaN, "node_errors": {}}',
        receipt(node_errors=None),
        receipt(node_errors=[]),
        {"prompt_id": str(JOB), "number": 1},
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_200_that_is_not_our_receipt_is_open_doubt(body: Any) -> None:
    assert classify(200, body).kind is Reply.OPEN_DOUBT


def test_a_200_with_node_errors_is_half_valid_and_names_node_and_class() -> None:
    told = recorded.reply("200 exception_during_validation")
    reply = classify_post(UUID(told["prompt_id"]), 200, COMFY, json.dumps(told).encode())
    assert (reply.kind, reply.number) == (Reply.HALF_VALID, 32.0)
    assert (reply.node_id, reply.node_class) == ("9", "SaveImage")
    assert "node 9 (SaveImage)" in reply.message


@pytest.mark.parametrize("name", [name for name in recorded.reply_names() if name.startswith("400")])
def test_every_recorded_400_is_refused_with_its_type_and_leaks_no_server_path(name: str) -> None:
    told = recorded.reply(name)
    reply = classify(400, told)
    assert (reply.kind, reply.status, reply.error_type) == (Reply.REFUSED, 400, told["error"]["type"])
    assert reply.message.startswith(told["error"]["message"])
    shown = json.dumps(reply.node_errors) + reply.message
    assert "/comfyui/" not in shown
    assert "traceback" not in shown
    if told["node_errors"]:
        node_id, first = next(iter(told["node_errors"].items()))
        assert (reply.node_id, reply.node_class) == (node_id, first["class_type"])
        assert reply.input_name == first["errors"][0]["extra_info"].get("input_name")
        assert first["errors"][0]["message"] in reply.message


def test_an_unknown_node_type_is_named_although_node_errors_is_empty() -> None:
    reply = classify(400, recorded.reply("400 missing_node_type"))
    assert (reply.node_id, reply.node_class) == ("2", "NoSuchNode")


def test_a_value_off_the_list_is_named_but_not_the_list_of_the_servers_files() -> None:
    told = recorded.reply("400 value_not_in_list, list echoed")
    error = told["node_errors"]["1"]["errors"][0]
    error["details"] = "ckpt_name: 'missing.safetensors' not in ['someone-elses.safetensors']"
    error["extra_info"]["input_config"][0] = ["someone-elses.safetensors"]
    reply = classify(400, told)
    assert "missing.safetensors" in reply.message
    assert "someone-elses" not in reply.message + json.dumps(reply.node_errors)


def test_text_from_the_server_is_cleaned_and_bounded() -> None:
    told = recorded.reply("400 value_smaller_than_min")
    told["error"]["message"] = "bad\x00" + "x" * 10_000
    told["node_errors"] = {
        str(n): {"class_type": "A\ud800", "errors": [{"type": "t", "message": "m" * 9_999}] * 99} for n in range(999)
    }
    reply = classify(400, told)
    shown = reply.message + json.dumps(reply.node_errors, ensure_ascii=False)
    assert "\x00" not in shown
    shown.encode("utf-8")
    assert len(reply.message) <= 4_000
    assert len(shown) < 500_000


@pytest.mark.parametrize("body", [HTML, b"", {"error": "Bad Request"}, {"error": {"message": "no type"}}, [1]])
def test_a_400_that_is_not_comfyuis_is_open_doubt(body: Any) -> None:
    assert classify(400, body, NGINX).kind is Reply.OPEN_DOUBT


@pytest.mark.parametrize("headers", [COMFY, NGINX])
def test_a_413_is_refused_whoever_says_it(headers: dict[str, str]) -> None:
    reply = classify(413, b"Maximum request body size 104857600 exceeded.", headers)
    assert (reply.kind, reply.error_type) == (Reply.REFUSED, "too_large")
    assert "104857600" in reply.message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 401, 403, 404, 405, 407, 429])
def test_a_login_a_limit_or_a_redirect_in_front_refuses(status: int) -> None:
    reply = classify(status, HTML, NGINX)
    assert (reply.kind, reply.status) == (Reply.REFUSED_IN_FRONT, status)
    assert str(status) in reply.message


@pytest.mark.parametrize("name", ["Server", "server", "SERVER"])
def test_a_500_of_comfyui_itself_is_settled_doubt(name: str) -> None:
    told = recorded.reply("500")
    headers = {name: told["headers"]["Server"]}
    assert classify(500, told["body"].encode(), headers).kind is Reply.SETTLED_DOUBT


@pytest.mark.parametrize(
    ("status", "headers"),
    [(500, NGINX), (500, {}), (502, COMFY), (503, NGINX), (504, NGINX), (204, COMFY), (410, COMFY)],
)
def test_every_other_status_is_open_doubt(status: int, headers: dict[str, str]) -> None:
    assert classify(status, HTML, headers).kind is Reply.OPEN_DOUBT
