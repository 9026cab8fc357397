"""What a simulated GPU holds: the model that is loaded on it, and what prompts leave behind."""

from __future__ import annotations

from genflow.simulator.knobs import Knobs

GIB = 1024**3
DRIVER_BYTES = GIB // 2
"""Taken whatever is loaded."""
MODEL_BYTES = 2 * GIB
"""What one checkpoint takes, its LoRAs and encoders included."""
PIXELS_PER_GIB = 128_000_000 // 24
"""How many pixels of one batch fit into one GiB."""


class Memory:
    """The memory of one boot's GPU. Its size is the knob `vram`."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self.model: str | None = None
        """The checkpoint that is loaded; one at a time."""
        self.left_behind = 0

    @property
    def total(self) -> int:
        """Bytes of the whole GPU."""
        return int(self._knobs.get("vram"))

    @property
    def free(self) -> int:
        """Bytes that are free; below 0 when a prompt asked for more than there is."""
        return self.total - DRIVER_BYTES - self.left_behind - (MODEL_BYTES if self.model is not None else 0)

    @property
    def pixel_limit(self) -> int:
        """Above this many pixels in one batch a node runs out of memory."""
        return self.total * PIXELS_PER_GIB // GIB

    def grow(self) -> None:
        """A prompt begins that leaves `memory_growth` bytes behind."""
        self.left_behind += int(self._knobs.get("memory_growth"))

    def load(self, checkpoint: str) -> bool:
        """Put a checkpoint in the place of the one that is loaded; whether that was another."""
        swapped = self.model != checkpoint
        self.model = checkpoint
        return swapped

    def unload(self) -> None:
        """Unload the model and give back what prompts left behind."""
        self.model = None
        self.left_behind = 0
