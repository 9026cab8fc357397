"""What a simulated server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

WORDS = ("ok", "500", "invalid", "error", "oom", "drop", "hang", "slow")
"""The script words, one per prompt in order of arrival."""

DEFAULT_MODELS: dict[str, tuple[str, ...]] = {
    "checkpoints": ("dreamshaper_8.safetensors", "dummy_sd15.safetensors"),
    "loras": (
        "ip-adapter-faceid-plusv2_sd15_lora.safetensors",
        "style_dummy.safetensors",
        "style_ink.safetensors",
        "style_watercolor.safetensors",
    ),
    "ipadapter": ("ip-adapter-faceid-plusv2_sd15.bin",),
    "clip_vision": ("CLIP-ViT-H-14-laion2B-s32B-b79K.safetensors",),
}


def parse_script(text: str) -> list[str]:
    """The words of a script. Raises ValueError naming an unknown word and the known ones."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in WORDS:
            raise ValueError(f"unknown script word {word!r}; known words: {', '.join(WORDS)}")
    return words


@dataclass(frozen=True, kw_only=True)
class SimulatorOptions:
    """Options of one process of simulated servers; every server gets the same.

    `port` 0 means a free port for each; otherwise `port`, `port + 1`, … . Without `output_dir` the files lie in a
    temporary folder that goes away at exit. With `old` the servers answer as a 0.3.x release.
    """

    count: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    name: str = "sim"
    script: tuple[str, ...] = ()
    seconds_per_step: float = 0.1
    seconds_per_megapixel: float = 0.2
    seed: int = 0
    old: bool = False
    busy: int = 0
    busy_for: float = 0.0
    output_dir: Path | None = None
    models: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(DEFAULT_MODELS))
    knobs: dict[str, object] = field(default_factory=dict)
    """Knobs to be set before the first request, as `POST /simulator/knobs` takes them."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, not {self.count}")
        if self.seconds_per_step < 0 or self.seconds_per_megapixel < 0 or self.busy_for < 0 or self.busy < 0:
            raise ValueError("times and counts must not be negative")
        parse_script(",".join(self.script))
