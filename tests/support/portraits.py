"""The FaceID portrait graph with explicit loaders, and a face that can be told from other pictures."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageDraw


def portrait_graph(
    photo: str, *, text: str = "studio portrait", seed: int = 1, count: int = 1, steps: int = 4
) -> dict[str, Any]:
    """The graph of a portrait: the photo's face, the text, one sampler, one SaveImage (node 11)."""
    sampler = {
        "model": ["5", 0], "positive": ["6", 0], "negative": ["7", 0], "latent_image": ["8", 0], "seed": seed,
        "steps": steps, "cfg": 6.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0,
    }  # fmt: skip
    face = {
        "model": ["4", 0], "ipadapter": ["12", 0], "image": ["3", 0], "weight": 0.85, "weight_faceidv2": 1.0,
        "weight_type": "linear", "combine_embeds": "concat", "start_at": 0.0, "end_at": 1.0,
        "embeds_scaling": "V only", "insightface": ["13", 0], "clip_vision": ["14", 0],
    }  # fmt: skip
    lora = "ip-adapter-faceid-plusv2_sd15_lora.safetensors"
    vision = "CLIP-ViT-H-14-laion2B-s32B-b79K.safetensors"
    nodes: dict[str, tuple[str, dict[str, Any]]] = {
        "1": ("CheckpointLoaderSimple", {"ckpt_name": "dummy_sd15.safetensors"}),
        "3": ("LoadImage", {"image": photo}),
        "4": ("LoraLoaderModelOnly", {"model": ["1", 0], "lora_name": lora, "strength_model": 0.6}),
        "5": ("IPAdapterFaceID", face),
        "6": ("CLIPTextEncode", {"text": text, "clip": ["1", 1]}),
        "7": ("CLIPTextEncode", {"text": "blurry", "clip": ["1", 1]}),
        "8": ("EmptyLatentImage", {"width": 256, "height": 320, "batch_size": count}),
        "9": ("KSampler", sampler),
        "10": ("VAEDecode", {"samples": ["9", 0], "vae": ["1", 2]}),
        "11": ("SaveImage", {"images": ["10", 0], "filename_prefix": "portraits/one"}),
        "12": ("IPAdapterModelLoader", {"ipadapter_file": "ip-adapter-faceid-plusv2_sd15.bin"}),
        "13": ("IPAdapterInsightFaceLoader", {"provider": "CPU", "model_name": "buffalo_l"}),
        "14": ("CLIPVisionLoader", {"clip_name": vision}),
    }
    return {node: {"class_type": kind, "inputs": inputs} for node, (kind, inputs) in nodes.items()}


def face_photo(*, turned: bool = False) -> bytes:
    """A JPEG with a dark left and a bright right half; `turned` stores it on its side, with an EXIF orientation."""
    image = Image.new("RGB", (240, 320), (30, 30, 30))
    ImageDraw.Draw(image).rectangle((120, 0, 240, 320), fill=(235, 235, 235))
    exif = Image.Exif()
    if turned:
        exif[0x0112] = 6  # shown turned a quarter clockwise
        image = image.transpose(Image.Transpose.ROTATE_90)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif, quality=95)
    return buffer.getvalue()
