"""A client of genflow's API, as the commands use it: its answers, its refusals, patience while it is away."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from genflow import __version__
from genflow.cli.exits import Misuse
from genflow.errors import clean_text

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8190"
PATIENCE_S = 30.0
"""Seconds that a waiting command bears with an API that does not answer."""

_AWAY = (502, 503, 504)
_CONNECT_S = 5.0
_ANSWER_S = 30.0
_CHUNK_BYTES = 256 * 1024


class Unreachable(Exception):
    """No genflow answers at the address. `in_doubt`: the request may have reached one all the same."""

    def __init__(self, message: str, *, in_doubt: bool = True) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class Refused(Exception):
    """The API answered with an error."""

    def __init__(
        self, status: int, code: str, message: str, details: dict[str, Any], retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s

    def envelope(self) -> dict[str, Any]:
        """The error in the API's own shape."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


def service_url(given: str | None = None) -> str:
    """The API's address: `given`, else GENFLOW_URL, else the local one. Misuse for what is no address."""
    url = (given or os.environ.get("GENFLOW_URL") or DEFAULT_URL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misuse(f"GENFLOW_URL must be an address such as {DEFAULT_URL}, not {clean_text(url, 100)!r}")
    return url


class Client:
    """One API at `url`, without a slash at its end."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session
        self._ahead_s: float | None = None

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """The JSON at a path. Raises Refused or Unreachable."""
        return await self._ask("GET", path, params=params)

    async def post(
        self,
        path: str,
        *,
        form: Callable[[], aiohttp.FormData] | None = None,
        data: bytes | None = None,
        json: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float = _ANSWER_S,
    ) -> Any:
        """The JSON of the answer to a POST of a form, of bytes or of JSON, which may take `answer_s` seconds to begin.

        Raises Refused or Unreachable.
        """
        body = data if form is None else form()
        return await self._ask(
            "POST", path, data=body, json=json, params=params, headers=headers, answer_s=answer_s
        )  # fmt: skip

    async def delete(self, path: str) -> Any:
        """The JSON of the answer to a DELETE. Raises Refused or Unreachable."""
        return await self._ask("DELETE", path)

    async def download(self, path: str, into: IO[bytes]) -> None:
        """Write the bytes at a path from the start of `into`. Raises Refused, or Unreachable also in the middle."""
        into.seek(0)
        into.truncate()
        timeout = aiohttp.ClientTimeout(sock_read=_ANSWER_S)
        # The API may send us on to its store, whose address says all: our key stays with the API.
        async with self._answer("GET", path, allow_redirects=True, timeout=timeout) as response:
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                await asyncio.to_thread(into.write, chunk)

    def server_time(self) -> float:
        """The time by the API's clock, in seconds since 1970; as the `Date` of its answers tells it."""
        return time.time() + (self._ahead_s or 0.0)

    async def _ask(self, method: str, path: str, *, answer_s: float = _ANSWER_S, **request: Any) -> Any:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=answer_s)
        async with self._answer(method, path, timeout=timeout, **request) as response:
            try:
                return json.loads(await response.read())
            except ValueError:
                raise Unreachable(f"what answers at {self.url} is no genflow: it sends no JSON") from None

    @asynccontextmanager
    async def _answer(self, method: str, path: str, **request: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(
                method, self.url + path, **{"allow_redirects": False} | request
            ) as response:
                self._learn_time((*response.history, response)[0].headers.get("Date"))
                if response.status >= 300:
                    raise _refusal(self.url, response, await response.read())
                yield response
        except aiohttp.ClientConnectorError as error:
            message = f"no genflow answers at {self.url} ({os.strerror(error.errno) if error.errno else error})"
            raise Unreachable(message, in_doubt=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"genflow at {self.url} broke off: {str(error) or type(error).__name__}") from error

    def _learn_time(self, date: str | None) -> None:
        try:
            told = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        # The header counts whole seconds, rounded down: the latest reading is nearest to the truth.
        ahead = told - time.time()
        self._ahead_s = ahead if self._ahead_s is None else max(self._ahead_s, ahead)


def _refusal(url: str, response: aiohttp.ClientResponse, body: bytes) -> Exception:
    try:
        error = json.loads(body)["error"]
        code, message, details = str(error["code"]), str(error["message"]), dict(error.get("details") or {})
    except (ValueError, KeyError, TypeError):
        if response.status in _AWAY:
            return Unreachable(f"what answers at {url} says {response.status} {response.reason}")
        return Unreachable(f"what answers at {url} is no genflow: {response.status} {response.reason}")
    wait = response.headers.get("Retry-After", "")
    return Refused(response.status, code, message, details, float(wait) if wait.isdecimal() else None)


@asynccontextmanager
async def connect(given: str | None = None) -> AsyncIterator[Client]:
    """A client of the API at `given`, else where GENFLOW_URL says, with the key of GENFLOW_API_KEY.

    Raises Misuse for what is no address.
    """
    headers = {"User-Agent": f"genflow/{__version__}"}
    if key := os.environ.get("GENFLOW_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    url = service_url(given)
    async with aiohttp.ClientSession(headers=headers) as session:
        yield Client(url, session)


class Patience:
    """Bears with an API that is away, for at most `limit_s` seconds on end."""

    def __init__(self, limit_s: float = PATIENCE_S, pause_s: float = 0.5) -> None:
        self._limit_s = limit_s
        self._pause_s = pause_s
        self._since: float | None = None

    @property
    def left_s(self) -> float:
        """Seconds of patience left."""
        return self._limit_s if self._since is None else self._limit_s - (time.monotonic() - self._since)

    async def bear(self, fault: Unreachable | Refused) -> None:
        """Wait a moment after a fault. Raises it again once patience is out, or where waiting can't help."""
        if isinstance(fault, Refused) and fault.status not in _AWAY:
            raise fault
        if self._since is None:
            self._since = time.monotonic()
        if self.left_s <= 0:
            raise fault
        await asyncio.sleep(self._pause_s)

    def answered(self) -> None:
        """The API answered: patience is whole again."""
        self._since = None

    async def through(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                answer = await ask()
            except (Unreachable, Refused) as fault:
                await self.bear(fault)
            else:
                self.answered()
                return answer
