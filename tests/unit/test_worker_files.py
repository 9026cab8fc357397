"""What a file that a node wrote is taken for."""

from __future__ import annotations

import mimetypes

import pytest

from genflow.worker.files import content_type_of, output_type


@pytest.mark.parametrize(
    ("name", "content_type", "kind"),
    [
        ("a_00001_.png", "image/png", "image"),
        ("a.WEBP", "image/webp", "image"),
        ("vid_00001_.mp4", "video/mp4", "video"),
        ("aud_00001.flac", "audio/flac", "audio"),
        ("aud_00001.opus", "audio/ogg", "audio"),
        ("mesh_00001_.glb", "model/gltf-binary", "file"),
        ("lat_00001_.latent", "application/octet-stream", "latent"),
        ("notes.txt", "text/plain; charset=utf-8", "text"),
        ("result.json", "application/json", "file"),
        ("depth.exr", "image/x-exr", "image"),
        ("no ending", "application/octet-stream", "file"),
    ],
)
def test_the_ending_tells_on_every_machine(
    name: str, content_type: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mimetypes, "guess_type", lambda _: (None, None))
    assert content_type_of(name) == content_type
    assert output_type(name, content_type_of(name)) == kind
