"""One ComfyUI server on the wire: REST and WebSocket client, messages, outputs."""

from genflow.comfy.client import CALL_TIMEOUT_S, ComfyServer, open_session
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

__all__ = [
    "CALL_TIMEOUT_S",
    "ComfyError",
    "ComfyServer",
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
    "open_session",
]
