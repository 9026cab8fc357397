"""What a simulated server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_VRAM = 24 * 1024**3

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

    `port` 0 means a free port for each; otherwise `port`, `port + 1`, … . `speed` and `vram` (bytes) are one value for
    all servers or one for each. Without `output_dir` the files lie in a temporary folder that goes away at exit. With
    `old` the servers answer as a 0.3.x release. Raises ValueError for a value that is out of its range.
    """

    count: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    name: str = "sim"
    script: tuple[str, ...] = ()
    seconds_per_step: float = 0.1
    seconds_per_megapixel: float = 0.2
    swap_seconds: float = 0.0
    speed: tuple[float, ...] = (1.0,)
    vram: tuple[int, ...] = (DEFAULT_VRAM,)
    seed: int = 0
    old: bool = False
    guard: bool = False
    """With genflow's guard installed, as `genflow.integrations.comfyui_genflow` does it on a real server."""
    busy: int = 0
    busy_for: float = 0.0
    output_dir: Path | None = None
    shared_output: Path | None = None
    """One output folder for all servers, and for those of other processes that name it too."""
    journal: Path | None = None
    """A folder with a file for each server's books: an event a line, kept past the death of the process."""
    models: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(DEFAULT_MODELS))
    knobs: dict[str, object] = field(default_factory=dict)
    """Knobs to be set before the first request, as `POST /simulator/knobs` takes them."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, not {self.count}")
        if self.seconds_per_step < 0 or self.seconds_per_megapixel < 0 or self.busy_for < 0 or self.busy < 0:
            raise ValueError("times and counts must not be negative")
        if self.swap_seconds < 0 or min(self.speed) <= 0 or min(self.vram) < 0:
            raise ValueError("swap seconds and bytes must not be negative, and a speed must be above 0")
        for name, values in (("speed", self.speed), ("vram", self.vram)):
            if len(values) not in (1, self.count):
                told = f"{len(values)} values for {self.count} servers"
                raise ValueError(f"{name} takes one value, or one for each server, not {told}")
        parse_script(",".join(self.script))

    def of(self, index: int) -> tuple[float, int]:
        """Speed and bytes of VRAM of the server with that index."""
        return self.speed[index % len(self.speed)], self.vram[index % len(self.vram)]
