"""Loops after the fact: what keeps jobs moving when nobody holds them."""

from genflow.upkeep.upkeep import ApiUpkeep, WorkerUpkeep

__all__ = ["ApiUpkeep", "WorkerUpkeep"]
