"""What a file is taken for by its name, and the ending that it gets on a server."""

from __future__ import annotations

import mimetypes

import pytest

from genflow.media import content_type_of, ending_of, output_type, shown_in_place


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


@pytest.mark.parametrize(
    ("content_type", "name", "ending"),
    [
        ("image/jpeg", "me", ".jpg"),
        ("image/jpeg", "me.JPEG", ".jpeg"),
        ("image/png", "clip.mp4", ".png"),
        ("image/png", "notes.final", ".png"),
        ("audio/x-wav", "voice.wav", ".wav"),
        ("audio/mp3", "song.mp3", ".mp3"),
        ("audio/ogg", "song.opus", ".opus"),
        ("audio/ogg", "song", ".ogg"),
        ("audio/mp4", "song.mp4", ".m4a"),
        ("video/mp4", "", ".mp4"),
        ("application/octet-stream", "song.mp3", ".mp3"),
        ("application/octet-stream", "lat.latent", ".latent"),
        ("application/octet-stream", "x", ".bin"),
        ("application/octet-stream", 'x.p"/ng', ".bin"),
        ("text/plain; charset=utf-8", "3-text-0.txt", ".txt"),
        ("text/plain", "table.csv", ".csv"),
        ("model/gltf-binary", "mesh.glb", ".glb"),
        ("x/unheard-of", "a.thing", ".thing"),
        ("x/unheard-of", "a", ".bin"),
    ],
)
def test_a_server_gets_an_ending_that_its_nodes_know(
    content_type: str, name: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mimetypes, "guess_extension", lambda _: None)
    assert ending_of(content_type, name) == ending


@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        ("image/png", True),
        ("image/avif", True),
        ("VIDEO/mp4", True),
        ("audio/ogg; codecs=opus", True),
        ("image/svg+xml", False),
        ("image/SVG+xml; charset=utf-8", False),
        ("text/html", False),
        ("application/pdf", False),
    ],
)
def test_what_can_hold_a_script_is_saved_and_never_shown_in_place(content_type: str, shown: bool) -> None:
    assert shown_in_place(content_type) is shown
