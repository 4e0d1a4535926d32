"""Sends requests until they are answered, with httpx: connections, retries, and the errors of both."""

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
"""Makes something of the headers and the content of a 200."""

_KEPT = 20  # idle connections, httpx's own default
_OPEN = 100  # connections in all, likewise


class _Arguments(TypedDict):
    base_url: str
    timeout: float | httpx.Timeout
    headers: Mapping[str, str]
    verify: SSLContext
    limits: httpx.Limits


@dataclass(frozen=True)
class Connection:
    """How one service is reached."""

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
        """Check what a client is made with; raises ValueError."""
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url is {url!r}: give it with its scheme, such as http://127.0.0.1:8000.")
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: at least one request is on its way at a time.")
        key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        tls = httpx.create_ssl_context()  # 30 ms, so that it is shared
        return cls(url, {**(headers or {}), **key}, timeout, retries, concurrency, tls)

    @property
    def arguments(self) -> _Arguments:
        """What httpx's clients are made with."""
        return {
            "base_url": self.url,
            "timeout": self.timeout,
            "headers": self.headers,
            "verify": self.tls,
            "limits": httpx.Limits(
                max_connections=max(_OPEN, self.concurrency),
                max_keepalive_connections=max(_KEPT, self.concurrency),
            ),
        }


def where(request: httpx.Request) -> str:
    """Name what a request asks for, without its parameters."""
    return str(request.url.copy_with(query=None))


class Sender:
    """Sends requests one after another in each thread that asks it to."""

    def __init__(self, connection: Connection) -> None:
        self._retries = connection.retries
        self.http = httpx.Client(**connection.arguments)

    def fetch(self, request: httpx.Request, read: Reader[R]) -> R:
        """Send a request until it is answered, and read the whole answer; raises HeadlightError."""
        with connection_errors(where(request)):
            response = self.open(request)
            try:
                return read(response.headers, response.read())
            finally:
                response.close()

    def open(self, request: httpx.Request) -> httpx.Response:
        """Send a request until it is answered: a 200, its body yet to be read.

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
        """Send a request once; raises HeadlightError for what is not a 200."""
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
        """Send a request until it is answered, and read the whole answer; raises HeadlightError.

        `progress` is that of the call of which this is one request among several.
        """
        with connection_errors(where(request)):
            response = await self.open(request, progress)
            try:
                return read(response.headers, await response.aread())
            finally:
                await response.aclose()

    async def open(self, request: httpx.Request, progress: Progress | None = None) -> httpx.Response:
        """Send a request until it is answered: a 200, its body yet to be read.

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
        """Send a request once; raises HeadlightError for what is not a 200."""
        response = await self.http.send(request, stream=True)
        if response.status_code == httpx.codes.OK:
            return response
        try:
            raise refusal(response.status_code, response.headers, await response.aread())
        finally:
            await response.aclose()
