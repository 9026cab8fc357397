"""The durable queue: owns every table written in a job's transaction. SQL stands in sql/, one statement a file."""

from genflow.queue.abilities import Abilities
from genflow.queue.coalescing import CoalescingWriter
from genflow.queue.dead import AlreadyRequeued, DeadFilter, DeadLetters, Mended
from genflow.queue.erasure import Erasure
from genflow.queue.hold import Hold, JobCanceled, LeaseLost, NotHeld, SlotTaken, StartByPassed
from genflow.queue.ledger import Ledger
from genflow.queue.many import Arrival, Fate
from genflow.queue.queue import Queue
from genflow.queue.registry import Registry
from genflow.queue.sweeps import Sweeps
from genflow.queue.writer import DirectWriter, RowWriter, Writer

__all__ = [
    "Abilities",
    "AlreadyRequeued",
    "Arrival",
    "CoalescingWriter",
    "DeadFilter",
    "DeadLetters",
    "DirectWriter",
    "Erasure",
    "Fate",
    "Hold",
    "JobCanceled",
    "LeaseLost",
    "Ledger",
    "Mended",
    "NotHeld",
    "Queue",
    "Registry",
    "RowWriter",
    "SlotTaken",
    "StartByPassed",
    "Sweeps",
    "Writer",
]
