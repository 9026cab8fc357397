"""Nodes whose results are no plain pictures: animations, videos, sound, 3D, latents, text, and keys that nobody knows.

Keys and names are those that were recorded (docs/design/comfyui.md, section 6). `VHS_VideoCombine` stands in for the
node of that name of a well-known extension; the `Simulated…` nodes exist only here and give out whatever a test wants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from genflow.simulator import media, nodes
from genflow.simulator.faults import NodeFault
from genflow.simulator.nodes import Latent, Result, Work
from genflow.simulator.pictures import Picture


@dataclass(frozen=True)
class Video:
    """Frames and their rate."""

    pictures: tuple[Picture, ...]
    fps: float


@dataclass(frozen=True)
class Audio:
    """Silence of some seconds."""

    seconds: float
    rate: int
    channels: int


@dataclass(frozen=True)
class Mesh:
    """A triangle."""


def _told(work: Work) -> dict[str, Any]:
    return {"prompt": work.prompt} | work.extra_pnginfo


def _saved(work: Work, prefix: str, size: tuple[int, int], ending: str, data: bytes, pad_to: int = 0) -> dict[str, Any]:
    """Write one file with the next free name; what the node says of it. `ending` is all that follows the number."""
    subfolder, base, number = work.name(prefix, "output", size)
    return work.write("output", subfolder, f"{base}_{number:05}{ending}", data, pad_to)


def _animated(kind: str) -> Callable[[dict[str, Any], Work], Result]:
    def save(inputs: dict[str, Any], work: Work) -> Result:
        frames = tuple(inputs["images"])
        data = media.animation(kind, frames, inputs["fps"])
        shown: dict[str, Any] = {
            "images": [_saved(work, inputs["filename_prefix"], frames[0].image.size, f"_.{kind}", data)]
        }
        return Result((), shown | ({"animated": [True]} if len(frames) > 1 else {}))

    return save


def _create_video(inputs: dict[str, Any], work: Work) -> Result:
    return Result((Video(tuple(inputs["images"]), inputs["fps"]),))


def _save_video(inputs: dict[str, Any], work: Work) -> Result:
    video: Video = inputs["video"]
    size, data = video.pictures[0].image.size, media.mp4(video.pictures, _told(work))
    saved = _saved(work, inputs["filename_prefix"], size, "_.mp4", data, work.video_bytes)
    return Result((), {"images": [saved], "animated": [True]})


def _save_webm(inputs: dict[str, Any], work: Work) -> Result:
    frames = tuple(inputs["images"])
    data = media.webm(frames, _told(work))
    saved = _saved(work, inputs["filename_prefix"], frames[0].image.size, "_.webm", data)
    return Result((), {"images": [saved], "animated": [True]})


def _combine_video(inputs: dict[str, Any], work: Work) -> Result:
    # The extension counts for itself: any ending counts, and its numbers end without an underscore.
    frames, kind = tuple(inputs["images"]), "output" if inputs.get("save_output", True) else "temp"
    size, rate, form = frames[0].image.size, float(inputs["frame_rate"]), inputs["format"]
    subfolder, base, _ = work.name(inputs["filename_prefix"], kind, size)
    taken = re.compile(re.escape(base) + r"_(\d+)\D*\..+", re.IGNORECASE)
    folder = work.folders.paths[kind] / subfolder
    number = 1 + max((int(found[1]) for each in folder.iterdir() if (found := taken.fullmatch(each.name))), default=0)
    told = {"frame_rate": rate, **_told(work)}
    ending = form.partition("/")[2]
    data = media.animation(ending, frames, rate) if form.startswith("image/") else media.mp4(frames, told)
    first = work.write(kind, subfolder, f"{base}_{number:05}.png", frames[0].png())
    ending = ending if form.startswith("image/") else "mp4"
    shown = work.write(kind, subfolder, f"{base}_{number:05}.{ending}", data)
    path = str(folder / shown["filename"])
    shown |= {"format": form, "frame_rate": rate, "workflow": first["filename"], "fullpath": path}
    return Result(((kind == "output", [path]),), {"gifs": [shown]})


def _empty_audio(inputs: dict[str, Any], work: Work) -> Result:
    return Result((Audio(inputs["duration"], inputs.get("sample_rate", 44100), inputs.get("channels", 2)),))


def _audio(ending: str) -> Callable[[dict[str, Any], Work], Result]:
    def save(inputs: dict[str, Any], work: Work) -> Result:
        audio: Audio = inputs["audio"]
        told = _told(work)
        data = media.flac(audio.rate, audio.channels) if ending == "flac" else getattr(media, ending)(told)
        # No underscore behind the number, so that ComfyUI's counter does not see it and the next file has it too.
        return Result((), {"audio": [_saved(work, inputs["filename_prefix"], (0, 0), f".{ending}", data)]})

    return save


def _preview_any(inputs: dict[str, Any], work: Work) -> Result:
    source = inputs.get("source")
    if isinstance(source, str):
        return Result((source,), {"text": [source]})
    try:
        text = json.dumps(source) if source is not None else "None"
    except TypeError:
        text = nodes.printed(source)
    return Result((text,), {"text": [text]})


def _save_latent(inputs: dict[str, Any], work: Work) -> Result:
    samples: Latent = inputs["samples"]
    data = media.latent(samples.width, samples.height, samples.count, _told(work))
    return Result((), {"latents": [_saved(work, inputs["filename_prefix"], (0, 0), "_.latent", data)]})


def _save_glb(inputs: dict[str, Any], work: Work) -> Result:
    return Result((), {"3d": [_saved(work, inputs["filename_prefix"], (0, 0), "_.glb", media.glb(_told(work)))]})


def _any_files(inputs: dict[str, Any], work: Work) -> Result:
    ending, shown = f"_.{inputs['extension']}", []
    for number in range(inputs["count"]):
        data = f"simulated {inputs['key']} {number}\n".encode()
        shown.append(_saved(work, inputs["filename_prefix"], (0, 0), ending, data))
    return Result((), {inputs["key"]: shown})


def _any_values(inputs: dict[str, Any], work: Work) -> Result:
    try:
        values = json.loads(inputs["values"])
    except ValueError as fault:
        raise NodeFault("json.decoder.JSONDecodeError", f"{fault}\n") from fault
    if not isinstance(values, list):
        raise NodeFault("TypeError", "the values of a key must be a list\n")
    return Result((), {inputs["key"]: values})


COMPUTE: dict[str, Callable[[dict[str, Any], Work], Result]] = nodes.COMPUTE | {
    "SaveAnimatedWEBP": _animated("webp"),
    "SaveAnimatedPNG": _animated("png"),
    "CreateVideo": _create_video,
    "SaveVideo": _save_video,
    "SaveWEBM": _save_webm,
    "VHS_VideoCombine": _combine_video,
    "EmptyAudio": _empty_audio,
    "SaveAudio": _audio("flac"),
    "SaveAudioMP3": _audio("mp3"),
    "SaveAudioOpus": _audio("opus"),
    "PreviewAny": _preview_any,
    "SaveLatent": _save_latent,
    "SaveGLB": _save_glb,
    "SimulatedMesh": lambda inputs, work: Result((Mesh(),)),
    "SimulatedFiles": _any_files,
    "SimulatedValues": _any_values,
}
"""What computes each node class."""

QUICK = nodes.QUICK | {"CreateVideo", "EmptyAudio", "PreviewAny", "SimulatedMesh", "SimulatedValues"}
