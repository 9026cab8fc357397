"""The FaceID portrait: a face photo and a prompt become a ComfyUI workflow.

Pure. It uses explicit loaders, one node a model file, so that a server without a file refuses the prompt before it is
queued; the unified FaceID loader would find out in the middle of the run (docs/design/comfyui.md, section 8).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from genflow.settings import PortraitSettings
from genflow.templates.parameters import RULES, Choice, Parameters, invalid_parameter, random_seed, read_parameters
from genflow.templates.template import Parameter, kind_of
from genflow.workflow import AssetRef

Link = list[str | int]

PHOTO = "photo"
"""The one parameter that is a file."""


class PortraitTemplate:
    """The FaceID portrait as a template like any other."""

    name = "portrait"
    description = "A portrait of the face in a photo, as a prompt says."

    def __init__(self, settings: PortraitSettings) -> None:
        self._settings = settings
        default = {field.name: field.default for field in fields(Parameters)}
        rules = dict(RULES) | {"lora": Choice(tuple(sorted(settings.loras)))}
        self.parameters = (
            Parameter(PHOTO, "photo", None, required=True),
            *(
                Parameter(name, "seed", rule)
                if name == "seed"
                else Parameter(name, kind_of(rule), rule, required=True)
                if name == "prompt"
                else Parameter(name, kind_of(rule), rule, default=default[name])
                for name, rule in rules.items()
            ),
        )

    def read(
        self, given: Mapping[str, Any], *, form: bool = False, draw_seed: Callable[[], int] = random_seed
    ) -> dict[str, Any]:
        """See `Template.read`."""
        loras = self._settings.loras
        values = read_parameters(given, loras, form=form, others=(PHOTO,), draw_seed=draw_seed).as_json()
        if given.get(PHOTO) in (None, ""):
            raise invalid_parameter(PHOTO, "missing", "is required: the face")
        return {PHOTO: given[PHOTO], **values}

    def workflow(self, values: Mapping[str, Any], files: Mapping[str, AssetRef]) -> str:
        """See `Template.workflow`."""
        parameters = Parameters(**{name: value for name, value in values.items() if name != PHOTO})
        return json.dumps(portrait_workflow(parameters, files[PHOTO], self._settings))


def portrait_workflow(parameters: Parameters, photo: AssetRef, settings: PortraitSettings) -> dict[str, Any]:
    """The workflow of one portrait; `photo` stands in it as an asset reference."""
    model: Link = ["1", 0]
    clip: Link = ["1", 1]
    graph = {"1": _node("CheckpointLoaderSimple", "checkpoint", ckpt_name=settings.checkpoint)}
    if parameters.lora is not None:
        graph["2"] = _node(
            "LoraLoader",
            "style LoRA",
            model=model,
            clip=clip,
            lora_name=settings.loras[parameters.lora],
            strength_model=parameters.lora_strength,
            strength_clip=parameters.lora_strength,
        )
        model, clip = ["2", 0], ["2", 1]
    return graph | {
        "3": _node("LoadImage", "photo", image=photo.as_json()),
        "4": _node(
            "LoraLoaderModelOnly",
            "FaceID LoRA",
            model=model,
            lora_name=settings.faceid_lora,
            strength_model=settings.faceid_lora_strength,
        ),
        "5": _node(
            "IPAdapterFaceID",
            "face",
            model=["4", 0],
            ipadapter=["12", 0],
            image=["3", 0],
            weight=parameters.face_strength,
            weight_faceidv2=1.0,
            weight_type="linear",
            combine_embeds="concat",
            start_at=0.0,
            end_at=1.0,
            embeds_scaling="V only",
            insightface=["13", 0],
            clip_vision=["14", 0],
        ),
        "6": _node("CLIPTextEncode", "prompt", text=parameters.prompt, clip=clip),
        "7": _node("CLIPTextEncode", "negative prompt", text=parameters.negative_prompt, clip=clip),
        "8": _node(
            "EmptyLatentImage",
            "size",
            width=parameters.width,
            height=parameters.height,
            batch_size=parameters.count,
        ),
        "9": _node(
            "KSampler",
            "sampler",
            model=["5", 0],
            positive=["6", 0],
            negative=["7", 0],
            latent_image=["8", 0],
            seed=parameters.seed,
            steps=parameters.steps,
            cfg=parameters.cfg,
            sampler_name=parameters.sampler,
            scheduler=parameters.scheduler,
            denoise=1.0,
        ),
        "10": _node("VAEDecode", "decode", samples=["9", 0], vae=["1", 2]),
        "11": _node("SaveImage", "portrait", images=["10", 0], filename_prefix="portrait"),
        "12": _node("IPAdapterModelLoader", "IPAdapter", ipadapter_file=settings.ipadapter),
        "13": _node("IPAdapterInsightFaceLoader", "InsightFace", provider=settings.provider, model_name="buffalo_l"),
        "14": _node("CLIPVisionLoader", "CLIP vision", clip_name=settings.clip_vision),
    }


def _node(class_type: str, title: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs, "_meta": {"title": title}}
