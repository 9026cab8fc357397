"""A worker process: claims jobs, holds their leases, and drives its ComfyUI servers."""

from genflow.worker.worker import Worker

__all__ = ["Worker"]
