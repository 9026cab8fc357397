"""genflow: the durable production service in front of ComfyUI."""

__version__ = "0.1.0"
