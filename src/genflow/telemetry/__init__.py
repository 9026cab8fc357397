"""What genflow tells about itself: structured logs."""

from genflow.telemetry.logs import configure_logs

__all__ = ["configure_logs"]
