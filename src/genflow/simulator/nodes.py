"""What each node computes. Values on the links are small dataclasses; pictures are real.

A node that fails raises NodeFault with the words of the recordings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image, ImageFilter, ImageOps

from genflow.simulator import media, pictures
from genflow.simulator.catalog import Catalog
from genflow.simulator.faults import NodeFault, out_of_memory
from genflow.simulator.folders import Folders, OutsideOutputError
from genflow.simulator.pictures import Picture, Scene

Batch = list[Picture]
Masks = list[Image.Image]


@dataclass(frozen=True)
class Model:
    """A checkpoint with what was applied to it."""

    checkpoint: str
    loras: tuple[str, ...] = ()
    face: Picture | None = None
    strength: float = 1.0


@dataclass(frozen=True)
class Latent:
    """Sizes of a batch, and the finished pictures once it was sampled."""

    width: int
    height: int
    count: int
    pictures: tuple[Picture, ...] = ()


@dataclass
class Result:
    """What a node gives: values for its slots, and what it reports (`outputs` of the history)."""

    values: tuple[Any, ...]
    ui: dict[str, Any] | None = None
    frames: tuple[bytes, ...] = ()
    """Binary frames for the client's socket."""


@dataclass
class Work:
    """What a node may use while it runs."""

    folders: Folders
    catalog: Catalog
    prompt: dict[str, Any]
    extra_pnginfo: dict[str, Any]
    wrote: Callable[[str, str, str], None]
    """Told of every file written: folder type, subfolder, name."""
    write_files: bool = True
    save_delay_s: float = 0.0
    """Between the choice of a file's name and its writing."""
    pixel_limit: int = 0
    video_bytes: int = 0
    """How large SaveVideo makes its file, at least."""

    def hold(self, pixels: int) -> None:
        """Raise the recorded out-of-memory fault for a batch of more pixels than the simulated GPU holds."""
        if pixels > self.pixel_limit:
            raise out_of_memory()

    def name(self, prefix: str, kind: str, size: tuple[int, int]) -> tuple[str, str, int]:
        """Subfolder, first part and number of the next file. Raises NodeFault for a prefix that leads out."""
        try:
            found = self.folders.next_name(prefix, kind, size)
        except OutsideOutputError as fault:
            raise NodeFault("Exception", f"{fault}\n") from fault
        time.sleep(self.save_delay_s)  # a node has a thread of its own
        return found

    def write(self, kind: str, subfolder: str, name: str, data: bytes, pad_to: int = 0) -> dict[str, Any]:
        """Write a file; gives what a node says of it. A smaller one than `pad_to` bytes ends in a hole up to there."""
        if self.write_files:
            with (self.folders.paths[kind] / subfolder / name).open("wb") as file:
                file.write(data)
                if pad_to > len(data) + 16:
                    file.write(media.mp4_padding(pad_to - len(data)))
                    file.truncate(pad_to)
            self.wrote(kind, subfolder, name)
        return {"filename": name, "subfolder": subfolder, "type": kind}


def pixels_of(values: list[Any]) -> int:
    """The pixels of all pictures among a node's inputs and results, for its running time."""
    total = 0
    for value in values:
        if isinstance(value, list):
            total += sum(each.pixels if isinstance(each, Picture) else each.width * each.height for each in value)
        else:  # a sampled latent, a video
            total += sum(picture.pixels for picture in getattr(value, "pictures", ()))
    return total


def printed(value: Any) -> str:
    """A value as ComfyUI prints it: of pictures only the shape."""
    if isinstance(value, list) and value and isinstance(value[0], Picture | Image.Image):
        first: Image.Image = value[0].image if isinstance(value[0], Picture) else value[0]
        return f"tensor of shape [{len(value)}, {first.height}, {first.width}, {len(first.getbands())}]"
    return str(value)


def _empty_image(inputs: dict[str, Any], work: Work) -> Result:
    work.hold(inputs["width"] * inputs["height"] * inputs["batch_size"])
    picture = pictures.empty(inputs["width"], inputs["height"], inputs["color"])
    return Result(([picture] * inputs["batch_size"],))


def _load_image(inputs: dict[str, Any], work: Work) -> Result:
    path = work.folders.annotated(inputs["image"])
    try:
        if path is None:
            raise OSError("gone")
        picture, mask = pictures.load(path.read_bytes())
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as fault:
        shown = f"/comfyui-data/input/{inputs['image']}"
        message = f"[Errno 1094995529] Invalid data found when processing input: '{shown}'\n"
        raise NodeFault("av.error.InvalidDataError", message) from fault
    return Result(([picture], [mask]))


def _invert(inputs: dict[str, Any], work: Work) -> Result:
    return Result(([Picture(ImageOps.invert(picture.image)) for picture in inputs["image"]],))


def _scale(inputs: dict[str, Any], work: Work) -> Result:
    work.hold(inputs["width"] * inputs["height"] * len(inputs["image"]))
    sizes = (inputs["upscale_method"], inputs["width"], inputs["height"], inputs["crop"])
    return Result(([pictures.scaled(picture, *sizes) for picture in inputs["image"]],))


def _blur(inputs: dict[str, Any], work: Work) -> Result:
    radius = inputs["blur_radius"]
    blurred: Batch = []
    for picture in inputs["image"]:
        image = picture.image
        if radius >= min(image.size):
            shape = f"[1, 3, {image.height}, {image.width}]"
            message = (
                "Padding size should be less than the corresponding input dimension, but got: "
                f"padding ({radius}, {radius}) at dimension 3 of input {shape}\n"
            )
            raise NodeFault("RuntimeError", message)
        blurred.append(Picture(image.filter(ImageFilter.GaussianBlur(min(radius, inputs["sigma"] * 2)))))
    return Result((blurred,))


def _to_mask(inputs: dict[str, Any], work: Work) -> Result:
    channel = ("red", "green", "blue", "alpha").index(inputs["channel"])
    if channel == 3:
        raise NodeFault("IndexError", "index 3 is out of bounds for dimension 3 with size 3\n")
    return Result(([picture.image.getchannel(channel) for picture in inputs["image"]],))


def _from_mask(inputs: dict[str, Any], work: Work) -> Result:
    return Result(([Picture(mask.convert("RGB")) for mask in inputs["mask"]],))


def _save(inputs: dict[str, Any], work: Work, kind: str, prefix: str) -> Result:
    batch: Batch = inputs["images"]
    subfolder, base, number = work.name(prefix, kind, batch[0].image.size)
    texts = {"prompt": work.prompt} | work.extra_pnginfo
    shown = [
        work.write(
            kind,
            subfolder,
            f"{base.replace('%batch_num%', str(index))}_{number + index:05}_.png",
            pictures.with_text(picture.png(), texts),
        )
        for index, picture in enumerate(batch)
    ]
    return Result((batch,), {"images": shown})


def _save_image(inputs: dict[str, Any], work: Work) -> Result:
    return _save(inputs, work, "output", inputs["filename_prefix"])


def _preview_image(inputs: dict[str, Any], work: Work) -> Result:
    return _save(inputs, work, "temp", f"ComfyUI_temp_{work.folders.temp_mark}")


def _save_websocket(inputs: dict[str, Any], work: Work) -> Result:
    return Result((), None, tuple(picture.png() for picture in inputs["images"]))


def _checkpoint(inputs: dict[str, Any], work: Work) -> Result:
    name = inputs["ckpt_name"]
    return Result((Model(name), name, name))


def _lora(inputs: dict[str, Any], work: Work) -> Result:
    model: Model = inputs["model"]
    styled = replace(model, loras=(*model.loras, f"{inputs['lora_name']}:{inputs['strength_model']}"))
    return Result((styled, inputs.get("clip")))


def _text(inputs: dict[str, Any], work: Work) -> Result:
    return Result((inputs["text"],))


def _name(key: str) -> Callable[[dict[str, Any], Work], Result]:
    return lambda inputs, work: Result((inputs[key],))


def _unified(inputs: dict[str, Any], work: Work) -> Result:
    # The unified loader looks for its files by pattern, and only at run time.
    for folder, what in (("clip_vision", "ClipVision"), ("ipadapter", "IPAdapter"), ("loras", "LoRA")):
        wanted = "faceid" if folder == "loras" else ""
        if not any(wanted in name for name in work.catalog.models.get(folder, [])):
            raise NodeFault("Exception", f"{what} model not found.\n")
    return Result((inputs["model"], inputs.get("preset")))


def _face(inputs: dict[str, Any], work: Work) -> Result:
    batch: Batch = inputs["image"]
    model = replace(inputs["model"], face=batch[0], strength=float(inputs["weight"]))
    return Result((model, batch))


def _empty_latent(inputs: dict[str, Any], work: Work) -> Result:
    work.hold(inputs["width"] * inputs["height"] * inputs["batch_size"])
    return Result((Latent(inputs["width"], inputs["height"], inputs["batch_size"]),))


def _sample(inputs: dict[str, Any], work: Work) -> Result:
    model: Model = inputs["model"]
    latent: Latent = inputs["latent_image"]
    scene = Scene(
        text=str(inputs["positive"]),
        seed=inputs.get("seed", inputs.get("noise_seed", 0)),
        width=latent.width,
        height=latent.height,
        style=(model.checkpoint, *model.loras),
        steps=inputs["steps"],
        strength=model.strength,
    )
    painted = tuple(pictures.paint(scene, model.face, index) for index in range(latent.count))
    for picture in painted:
        picture.png()
    return Result((replace(latent, pictures=painted),))


def _decode(inputs: dict[str, Any], work: Work) -> Result:
    latent: Latent = inputs["samples"]
    if latent.pictures:
        return Result((list(latent.pictures),))
    return Result(([pictures.empty(latent.width, latent.height, 0x808080)] * latent.count,))


COMPUTE: dict[str, Callable[[dict[str, Any], Work], Result]] = {
    "EmptyImage": _empty_image,
    "LoadImage": _load_image,
    "ImageInvert": _invert,
    "ImageScale": _scale,
    "ImageBlur": _blur,
    "ImageToMask": _to_mask,
    "MaskToImage": _from_mask,
    "SaveImage": _save_image,
    "PreviewImage": _preview_image,
    "SaveImageWebsocket": _save_websocket,
    "CheckpointLoaderSimple": _checkpoint,
    "LoraLoader": _lora,
    "LoraLoaderModelOnly": _lora,
    "CLIPTextEncode": _text,
    "CLIPVisionLoader": _name("clip_name"),
    "IPAdapterModelLoader": _name("ipadapter_file"),
    "IPAdapterInsightFaceLoader": _name("model_name"),
    "IPAdapterUnifiedLoader": _unified,
    "IPAdapterUnifiedLoaderFaceID": _unified,
    "IPAdapterFaceID": _face,
    "IPAdapterAdvanced": _face,
    "EmptyLatentImage": _empty_latent,
    "KSampler": _sample,
    "KSamplerAdvanced": _sample,
    "VAEDecode": _decode,
}

QUICK = frozenset(
    {
        "CheckpointLoaderSimple", "LoraLoader", "LoraLoaderModelOnly", "CLIPTextEncode", "CLIPVisionLoader",
        "IPAdapterModelLoader", "IPAdapterInsightFaceLoader", "IPAdapterUnifiedLoader",
        "IPAdapterUnifiedLoaderFaceID", "IPAdapterFaceID", "IPAdapterAdvanced", "EmptyLatentImage", "VAEDecode",
    }
)  # fmt: skip
"""Nodes that only pass names and sizes on: they need no thread."""

SAMPLERS = frozenset({"KSampler", "KSamplerAdvanced"})
