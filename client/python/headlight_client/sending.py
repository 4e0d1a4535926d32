"""Sends requests with httpx: connections, retries and their errors."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Self, TypedDict, TypeVar

import httpx

from headlight_client.errors import HeadlightError, connection_errors, refusal
from headlight_client.retry import Attempts, Progress, Retries

R = TypeVar("R")
Reader = Callable[[Mapping[str, str], bytes], R]
"""Parses the headers and the content of a 200."""

_MAX_IDLE = 20  # idle connections, httpx's default
_MAX_CONNECTIONS = 100  # connections in total, likewise


class _Arguments(TypedDict):
    base_url: str
    timeout: float | httpx.Timeout
    headers: Mapping[str, str]
    verify: SSLContext
    limits: httpx.Limits


@dataclass(frozen=True)
class Connection:
    """How to reach one service."""

    url: str
    headers: Mapping[str, str]
    timeout: float | httpx.Timeout
    retries: Retries
    concurrency: int
    tls: SSLContext

    @classmethod
    def of(
        cls,
        url: str,
        api_key: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | httpx.Timeout,
        retries: Retries,
        concurrency: int,
    ) -> Self:
        """Check the arguments of a client; raises ValueError."""
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url is {url!r}: include the scheme, such as http://127.0.0.1:8000.")
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: it must be at least 1.")
        key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        tls = httpx.create_ssl_context()  # shared, since it takes 30 ms to create
        return cls(url, {**(headers or {}), **key}, timeout, retries, concurrency, tls)

    @property
    def arguments(self) -> _Arguments:
        """The arguments of httpx's clients."""
        return {
            "base_url": self.url,
            "timeout": self.timeout,
            "headers": self.headers,
            "verify": self.tls,
            "limits": httpx.Limits(
                max_connections=max(_MAX_CONNECTIONS, self.concurrency),
                max_keepalive_connections=max(_MAX_IDLE, self.concurrency),
            ),
        }


def where(request: httpx.Request) -> str:
    """Return the URL of a request without its query."""
    return str(request.url.copy_with(query=None))


class Sender:
    """Sends requests, each in the calling thread."""

    def __init__(self, connection: Connection) -> None:
        self._retries = connection.retries
        self.http = httpx.Client(**connection.arguments)

    def fetch(self, request: httpx.Request, read: Reader[R]) -> R:
        """Send a request, with retries, and read the whole response; raises HeadlightError."""
        with connection_errors(where(request)):
            response = self.open(request)
            try:
                return read(response.headers, response.read())
            finally:
                response.close()

    def open(self, request: httpx.Request) -> httpx.Response:
        """Send a request, with retries; returns a 200 whose body is still to be read.

        Raises HeadlightError and httpx.RequestError.
        """
        attempts = Attempts(self._retries, where(request))
        while True:
            try:
                return self.send(request)
            except (HeadlightError, httpx.TransportError) as error:
                wait = attempts.wait_after(error)
            time.sleep(wait)

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request once; raises HeadlightError for any status except 200."""
        response = self.http.send(request, stream=True)
        if response.status_code == httpx.codes.OK:
            return response
        try:
            raise refusal(response.status_code, response.headers, response.read())
        finally:
            response.close()


class AsyncSender:
    """`Sender` for asyncio."""

    def __init__(self, connection: Connection) -> None:
        self._retries = connection.retries
        self.http = httpx.AsyncClient(**connection.arguments)

    async def fetch(self, request: httpx.Request, read: Reader[R], progress: Progress | None = None) -> R:
        """Send a request, with retries, and read the whole response; raises HeadlightError.

        `progress` is shared by the requests of one call.
        """
        with connection_errors(where(request)):
            response = await self.open(request, progress)
            try:
                return read(response.headers, await response.aread())
            finally:
                await response.aclose()

    async def open(self, request: httpx.Request, progress: Progress | None = None) -> httpx.Response:
        """Send a request, with retries; returns a 200 whose body is still to be read.

        Raises HeadlightError and httpx.RequestError.
        """
        attempts = Attempts(self._retries, where(request), progress or Progress())
        while True:
            try:
                return await self.send(request)
            except (HeadlightError, httpx.TransportError) as error:
                wait = attempts.wait_after(error)
            await asyncio.sleep(wait)

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request once; raises HeadlightError for any status except 200."""
        response = await self.http.send(request, stream=True)
        if response.status_code == httpx.codes.OK:
            return response
        try:
            raise refusal(response.status_code, response.headers, await response.aread())
        finally:
            await response.aclose()
