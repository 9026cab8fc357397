"""Asks a stranger's URL: each hop is checked, each connection goes to the very address that was checked.

A name is resolved once for each hop, by the connector that then connects, so that a second answer of its name server
leads nowhere. Proxies of the environment are not used, cookies are not kept, and no header of ours is sent along.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from genflow import __version__
from genflow.errors import GenflowError, at_field, clean_text
from genflow.outside.addresses import Address, Allowed, Target, check_addresses, read_url, refused_url

MOST_REDIRECTS = 3
TOTAL_S = 30.0
"""Seconds for one fetch from its first name to its last byte."""
CONNECT_S = 5.0
CHUNK_BYTES = 256 * 1024
FETCHES_AT_ONCE = 8
"""Fetches at the same time by one opener; the others wait for their turn."""

Resolve = Callable[[str, int], Awaitable[list[Address]]]


async def system_resolve(host: str, port: int) -> list[Address]:
    """The addresses of a name as this machine's resolver knows them. OSError where there are none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]


class _Checked(AbstractResolver):
    """Gives the connector the checked addresses of one hop, and no others."""

    def __init__(self, host: str, addresses: list[Address]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.rstrip(".") != self._host:
            raise OSError(f"{host} was not checked")
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer that is being read: its media type in lower case, its size if it was told, and its bytes."""

    content_type: str
    size: int | None
    chunks: AsyncIterator[bytes]


class Opener:
    """Fetches URLs that others name."""

    def __init__(self, allowed: Allowed, *, resolve: Resolve = system_resolve, total_s: float = TOTAL_S) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._total_s = total_s
        self._turns = asyncio.Semaphore(FETCHES_AT_ONCE)

    @asynccontextmanager
    async def get(self, url: str, *, limit_bytes: int, field: str = "url") -> AsyncIterator[Fetched]:
        """The bytes at a URL, at most `limit_bytes`, while the context is open.

        Raises GenflowError, also while its bytes are read: `url_refused`, whose reason is the rule, or `url_failed`
        where what is there does not answer with its bytes. `field` is the URL's place in the request.
        """
        async with self._turns:
            try:
                async with asyncio.timeout(self._total_s), self._answer(url) as response:
                    yield _fetched(response, url, limit_bytes)
            except TimeoutError:
                raise _failed(field, "timeout", f"did not end within {self._total_s:g} s", url) from None
            except (aiohttp.ClientError, OSError) as error:
                said = clean_text(str(error) or type(error).__name__, 200)
                raise _failed(field, "connection", f"can't be fetched: {said}", url) from None
            except GenflowError as error:
                raise at_field(error, field) if error.code in ("url_refused", "url_failed") else error from None

    @asynccontextmanager
    async def _answer(self, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
        asked = url
        for _ in range(MOST_REDIRECTS + 1):
            target = read_url(asked)
            addresses = check_addresses(target, await self._addresses(target), self._allowed)
            async with (
                self._session(target, addresses) as session,
                session.get(asked, allow_redirects=False) as response,
            ):
                location = response.headers.get("Location")
                if response.status in (301, 302, 303, 307, 308) and location:
                    asked = urljoin(asked, location)
                    continue
                if response.status != 200:
                    raise _failed("url", "status", f"answers {response.status}", url, got=response.status)
                yield response
                return
        raise refused_url("redirects", f"leads on more than {MOST_REDIRECTS} times", got=url)

    async def _addresses(self, target: Target) -> list[Address]:
        if target.address is not None:
            return [target.address]
        try:
            found = await self._resolve(target.host, target.port)
        except OSError as error:
            raise _failed("url", "unknown_host", f"has an unknown host ({error.strerror})", target.url) from None
        if not found:
            raise _failed("url", "unknown_host", "has a host without an address", target.url)
        return found

    def _session(self, target: Target, addresses: list[Address]) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=_Checked(target.host, addresses), use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"genflow/{__version__}", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S),
            auto_decompress=False,
            trust_env=False,
        )


def _fetched(response: aiohttp.ClientResponse, url: str, limit: int) -> Fetched:
    size = response.content_length
    if size is not None and size > limit:
        raise _too_large(url, limit, size)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _failed("url", "encoding", "answers compressed although it was asked not to", url)

    async def chunks() -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            seen += len(chunk)
            if seen > limit:
                raise _too_large(url, limit, seen)
            yield chunk

    return Fetched(response.content_type.lower(), size, chunks())


def _too_large(url: str, limit: int, got: int) -> GenflowError:
    details = {"field": "url", "reason": "too_large", "limit": limit, "got": got}
    return GenflowError("url_refused", f"url: what is there is larger than {limit} bytes", details=details)


def _failed(field: str, reason: str, message: str, url: str, got: object = None) -> GenflowError:
    details = {"field": field, "reason": reason, "limit": None, "got": clean_text(url, 200) if got is None else got}
    return GenflowError("url_failed", f"{field}: {message}", details=details)
