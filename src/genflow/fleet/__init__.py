"""The ComfyUI servers of one worker: which answer, which take new work, which comes first."""

from genflow.fleet.fleet import Fleet
from genflow.fleet.server import FleetServer

__all__ = ["Fleet", "FleetServer"]
