"""One ComfyUI server on the wire: REST and WebSocket client, messages, outputs."""

from genflow.comfy.access import Access, access, open_session
from genflow.comfy.client import CALL_TIMEOUT_S, ComfyServer
from genflow.comfy.errors import ComfyError, OutputGone, ServerAnswered, ServerUnreachable, Withheld
from genflow.comfy.events import (
    Event,
    EventStream,
    NodeFinished,
    NodesCached,
    NodeStarted,
    NodeStates,
    Preview,
    QueueDepth,
    RunEnded,
    RunStarted,
    StepProgress,
)
from genflow.comfy.messages import Device

__all__ = [
    "CALL_TIMEOUT_S",
    "Access",
    "ComfyError",
    "ComfyServer",
    "Device",
    "Event",
    "EventStream",
    "NodeFinished",
    "NodeStarted",
    "NodeStates",
    "NodesCached",
    "OutputGone",
    "Preview",
    "QueueDepth",
    "RunEnded",
    "RunStarted",
    "ServerAnswered",
    "ServerUnreachable",
    "StepProgress",
    "Withheld",
    "access",
    "open_session",
]
