"""The way that genflow replaces: a Celery task that submits to ComfyUI and polls until the picture is there."""
