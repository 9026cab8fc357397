"""Opens the store that the settings name: a folder, or a bucket of one of the clouds."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from genflow.settings import Settings
from genflow.storage.local import LocalStore
from genflow.storage.store import Store, storage_unavailable

if TYPE_CHECKING:
    from genflow.storage.objects import Objects

CONNECT_S = 5.0
REQUEST_S = 60.0
RETRIES = 4
RETRY_S = 15.0
"""Seconds after which a failing request isn't sent again; no call waits longer than these and REQUEST_S together."""


def open_store(settings: Settings) -> Store:
    """The store, not yet asked for anything but a folder. GenflowError `storage_unavailable` where it can't be made."""
    if settings.store is None:
        return LocalStore(settings.data)
    # Here, not above: who keeps pictures on a disk starts without the clouds' client.
    from genflow.storage.objects import ObjectStore

    try:
        objects = _objects(settings, settings.store)
    except Exception as error:  # whatever it finds wrong with the environment's credentials
        reason = str(error).partition("\n\nDebug source")[0]
        raise storage_unavailable(f"be opened as {settings.store}", reason) from None
    return ObjectStore(objects, place=place_of(settings), arriving=settings.data / "arriving")


def place_of(settings: Settings) -> str:
    """Where the store is, for people; it holds no secret."""
    if settings.store is None:
        return f"{settings.data.resolve()} on {settings.instance}"
    return settings.store + ("" if settings.store_endpoint is None else f" at {settings.store_endpoint}")


def _objects(settings: Settings, url: str) -> Objects:
    from obstore.store import AzureStore, GCSStore, S3Store

    parts = urlsplit(url)
    endpoint = settings.store_endpoint
    common: dict[str, Any] = {
        "prefix": parts.path.strip("/") or None,
        "client_options": {
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=REQUEST_S),
            "user_agent": "genflow",
        }
        | ({"allow_http": True} if endpoint is not None and endpoint.startswith("http://") else {}),
        "retry_config": {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S),
            "backoff": {
                "init_backoff": timedelta(seconds=0.2),
                "max_backoff": timedelta(seconds=3),
                "base": 2,
            },
        },
    }
    if parts.scheme == "s3":
        given = {
            "endpoint": endpoint,
            "region": settings.store_region,
            "virtual_hosted_style_request": not settings.store_path_style,
            "disable_bulk_delete": True,  # one blob at a time goes, and not every S3 knows the other way
        }
        return S3Store(parts.netloc, config=_set(given), **common)
    if parts.scheme == "gs":
        return GCSStore(parts.netloc, config=_set({"base_url": endpoint}), **common)
    # The client reads most of Azure's variables by itself, but not the two that Azure's own tool goes by.
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or os.environ.get("AZURE_STORAGE_ACCOUNT")
    if not account:
        raise ValueError("the environment names no account (AZURE_STORAGE_ACCOUNT_NAME)")
    given = {"endpoint": endpoint, "account_name": account, "account_key": os.environ.get("AZURE_STORAGE_KEY")}
    return AzureStore(parts.netloc, config=_set(given), **common)


def _set(given: dict[str, Any]) -> Any:
    return {name: value for name, value in given.items() if value is not None}
