"""A sealed secret opens for its job, with a key of ours, and for nothing else."""

from __future__ import annotations

import base64
from uuid import uuid4

import pytest

from genflow.sealing import CantOpen, Sealer, read_keys

OLD, NEW = bytes(32), bytes(range(32))
JOB, SECRET = uuid4(), {"api_key_comfy_org": "comfyui-ünïcode"}


def test_it_opens_for_its_job_also_after_a_new_key_has_come() -> None:
    sealed = Sealer([OLD]).seal(JOB, SECRET)
    assert sealed is not None
    assert b"comfyui" not in sealed
    assert Sealer([NEW, OLD]).open(JOB, sealed) == SECRET
    assert Sealer([OLD]).seal(JOB, SECRET) != sealed, "each time another nonce"
    assert Sealer([]).seal(JOB, SECRET) is None


def test_it_opens_for_nothing_else() -> None:
    sealed = Sealer([OLD]).seal(JOB, SECRET) or b""
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for sealer, job, text in (
        (Sealer([NEW]), JOB, sealed), (Sealer([]), JOB, sealed), (Sealer([OLD]), uuid4(), sealed),
        (Sealer([OLD]), JOB, changed), (Sealer([OLD]), JOB, b""), (Sealer([OLD]), JOB, sealed[:10]),
    ):  # fmt: skip
        with pytest.raises(CantOpen):
            sealer.open(job, text)


def test_keys_are_read_as_they_are_made() -> None:
    text = base64.b64encode(NEW).decode()
    assert read_keys(f" {text},{base64.b64encode(OLD).decode()}") == [NEW, OLD]
    assert read_keys("") == []
    for wrong in ("nope", text[:-4], base64.b64encode(bytes(16)).decode(), "ä"):
        with pytest.raises(ValueError, match="32 random bytes"):
            read_keys(wrong)
