"""What a rule tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken promise: of which job, and in what way."""

    what: str
    job: str = ""


Rule = Callable[[Snapshot], Iterator[Broken]]
