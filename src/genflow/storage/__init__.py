"""Blobs: bytes addressed by their BLAKE3 hash, durable before they are confirmed; `store.py` has the interface."""
