"""A signed link opens one asset until its time, and nothing else."""

from __future__ import annotations

import time
from types import SimpleNamespace
from urllib.parse import parse_qsl
from uuid import uuid4

import pytest
from fastapi import Request

from genflow.api.links import link_refusal, signed_content
from genflow.api.signing import Signer

ASSET, NOW = uuid4(), 1_764_590_000.5


def test_it_opens_its_asset_until_its_time() -> None:
    signer = Signer(b"secret", ttl_s=600.0)
    query, expires = signer.query(ASSET, NOW)
    assert 600 <= expires - NOW <= 900
    given = dict(parse_qsl(query))
    assert signer.opens(str(ASSET), given, NOW)
    assert signer.opens(str(ASSET), given, expires)
    assert not signer.opens(str(ASSET), given, expires + 1)
    assert not signer.opens(str(uuid4()), given, NOW)
    assert not Signer(b"other", ttl_s=600.0).opens(str(ASSET), given, NOW)


def test_one_who_looks_again_soon_gets_the_same_link() -> None:
    signer = Signer(b"secret", ttl_s=600.0)
    links = {signer.query(ASSET, NOW - NOW % 300 + seconds)[0] for seconds in range(0, 299, 20)}
    assert len(links) == 1


@pytest.mark.parametrize(
    "wrong", [{"expires": "9" * 11}, {"expires": "-1"}, {"expires": "١"}, {"signature": "ä"}, {"signature": ""}]
)
def test_what_was_changed_opens_nothing(wrong: dict[str, str]) -> None:
    signer = Signer(b"secret", ttl_s=600.0)
    given = dict(parse_qsl(signer.query(ASSET, NOW)[0]))
    assert not signer.opens(str(ASSET), given | wrong, NOW)
    assert not signer.opens("nope", given, NOW)
    assert not signer.opens(str(ASSET), {}, NOW)


def request(path: str, query: str, method: str = "GET") -> Request:
    app = SimpleNamespace(state=SimpleNamespace(signer=Signer(b"secret", ttl_s=600.0)))
    return Request(
        {"type": "http", "app": app, "method": method, "path": path, "query_string": query.encode(), "headers": []}
    )


def test_a_request_by_a_signed_link_needs_no_key_and_any_other_hears_why() -> None:
    path, signer = f"/api/v2/assets/{ASSET}/content", Signer(b"secret", ttl_s=600.0)
    fresh, over = signer.query(ASSET, time.time())[0], signer.query(ASSET, NOW)[0]
    for good in (request(path, fresh), request(f"/mount{path}", fresh + "&w=256", "HEAD")):
        assert signed_content(good)
    for asked, code in [
        (request(path, over), "link_expired"),
        (request(path, over + "0"), "link_invalid"),
        (request(path.replace(str(ASSET), str(uuid4())), fresh), "link_invalid"),
        (request(path, "signature=x"), "link_invalid"),
    ]:
        assert not signed_content(asked)
        refusal = link_refusal(asked)
        assert refusal is not None
        assert (refusal.status, refusal.code) == (403, code)
    for other in (request(path, ""), request(path, fresh, "DELETE"), request(f"/api/v2/assets/{ASSET}", fresh)):
        assert not signed_content(other)
        assert link_refusal(other) is None
