"""Addresses that others name: which of them this machine may ask, and how it asks without being led elsewhere."""

from genflow.outside.addresses import Allowed, refused_url
from genflow.outside.opener import Fetched, Opener

__all__ = ["Allowed", "Fetched", "Opener", "refused_url"]
