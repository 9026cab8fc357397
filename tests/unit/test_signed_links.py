"""A signed link opens one asset until its time, and nothing else."""

from __future__ import annotations

from urllib.parse import parse_qsl
from uuid import uuid4

import pytest

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
