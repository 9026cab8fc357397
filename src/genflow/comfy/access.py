"""How one server is reached: headers that go with every call to it, and who must have signed its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from genflow.comfy.errors import ServerAnswered
from genflow.errors import GenflowError


@dataclass(frozen=True, slots=True)
class Access:
    """Headers and TLS of one server. The headers may hold secrets, so they are in no text of this."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ssl: ssl.SSLContext | bool = True
    """True: the certificates that this machine trusts."""


OPEN = Access()
"""A server that asks for nothing."""


def access(headers: Mapping[str, str], ca_file: Path | None) -> Access:
    """These headers, and certificates signed by whom this PEM file names. GenflowError `ca_file_unusable`."""
    if ca_file is None:
        return Access(headers)
    try:
        return Access(headers, ssl.create_default_context(cafile=str(ca_file)))
    except OSError as error:  # an SSLError is one: a file without any certificate
        why = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise GenflowError(
            "ca_file_unusable",
            f"the CA file {ca_file} can't be used: {why}; ca_file is a PEM file of the certificate that signed the"
            " server's",
            status=503,
            details={"field": "ca_file", "got": str(ca_file)},
        ) from None


def open_session() -> aiohttp.ClientSession:
    """The session that all servers of a process share: no cookies, no proxy settings, no limit on connections.

    It follows no redirect, not even of a WebSocket: one server's headers would reach another.
    """
    no_redirect = aiohttp.TraceConfig()
    no_redirect.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        trace_configs=[no_redirect],
    )


async def _refuse_redirect(_: aiohttp.ClientSession, __: Any, redirect: aiohttp.TraceRequestRedirectParams) -> None:
    raise ServerAnswered(redirect.response.status, "a redirect, which is not followed")
