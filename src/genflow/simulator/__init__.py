"""A ComfyUI without a GPU: it says on the wire what a real one says, and keeps books of what it ran."""

from genflow.simulator.options import DEFAULT_MODELS, WORDS, SimulatorOptions, parse_script
from genflow.simulator.server import SimulatedServer, running

__all__ = ["DEFAULT_MODELS", "WORDS", "SimulatedServer", "SimulatorOptions", "parse_script", "running"]
