"""HTTP: the Comfy API v2 and genflow's own routes. Parsing only; what happens, happens in the rooms below."""

from genflow.api.app import create_app

__all__ = ["create_app"]
