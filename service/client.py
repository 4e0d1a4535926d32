"""A client of headlight in Python, `Headlight` and `AsyncHeadlight`: numpy arrays, retries, typed errors.

It needs httpx and numpy, and nothing of the service itself.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Generator
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar

import httpx

from service.client_answers import Answer, AttentionMaps, BertViz, Encoded
from service.client_calls import Call, Lines, Routes
from service.client_errors import HeadlightError, refusal
from service.client_retry import Attempts, Retries

__all__ = ["Answer", "AsyncHeadlight", "AttentionMaps", "BertViz", "Encoded", "Headlight", "HeadlightError"]

T = TypeVar("T", bound=Encoded | AttentionMaps)

URL = "http://127.0.0.1:8000"
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
"""Seconds; the service itself gives up a request after 30 by default, and then says so."""


class _Connection(TypedDict):
    base_url: str
    timeout: float | httpx.Timeout
    headers: dict[str, str]


def _connection(url: str, api_key: str | None, timeout: float | httpx.Timeout) -> _Connection:
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    return {"base_url": url, "timeout": timeout, "headers": headers}


class Headlight(
    Routes[
        Answer[Encoded],
        Answer[AttentionMaps],
        Generator[Encoded, None, None],
        Generator[AttentionMaps, None, None],
    ]
):
    """A client of one service, for any number of threads; a context manager that closes its connections.

    A request that meets 429, 503 or a broken connection is sent again up to `retries` times, within
    `retry_for` seconds of its start; a `Retry-After` is waited for. `timeout` is in seconds.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float | httpx.Timeout = TIMEOUT,
        retries: int = 5,
        retry_for: float = 60.0,
    ) -> None:
        self._retries = Retries(retries, retry_for)
        self._http = httpx.Client(**_connection(url, api_key, timeout))

    def _fetch(self, call: Call[T]) -> Answer[T]:
        response = self._open(call)
        try:
            return call.answer(response.headers, response.read())
        finally:
            response.close()

    def _stream(self, call: Call[T]) -> Generator[T, None, None]:
        response = self._open(call)
        try:
            lines = Lines(call, response.headers)
            for piece in response.iter_bytes():
                yield from lines.feed(piece)
            yield from lines.finish()
        finally:
            response.close()

    def _open(self, call: Call[Any]) -> httpx.Response:
        """Send a request until it is answered: a 200, its body yet to be read."""
        attempts = Attempts(self._retries)
        while True:
            try:
                return self._send(call)
            except (HeadlightError, httpx.TransportError) as error:
                wait = attempts.wait_after(error)
            time.sleep(wait)

    def _send(self, call: Call[Any]) -> httpx.Response:
        request = self._http.build_request(
            "POST", call.path, content=call.body, params=call.parameters, headers=call.headers
        )
        response = self._http.send(request, stream=True)
        if response.status_code == httpx.codes.OK:
            return response
        try:
            raise refusal(response.status_code, response.headers, response.read())
        finally:
            response.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncHeadlight(
    Routes[
        Awaitable[Answer[Encoded]],
        Awaitable[Answer[AttentionMaps]],
        AsyncGenerator[Encoded, None],
        AsyncGenerator[AttentionMaps, None],
    ]
):
    """`Headlight` for asyncio: answers are awaited, streams are read with `async for`."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float | httpx.Timeout = TIMEOUT,
        retries: int = 5,
        retry_for: float = 60.0,
    ) -> None:
        self._retries = Retries(retries, retry_for)
        self._http = httpx.AsyncClient(**_connection(url, api_key, timeout))

    async def _fetch(self, call: Call[T]) -> Answer[T]:
        response = await self._open(call)
        try:
            return call.answer(response.headers, await response.aread())
        finally:
            await response.aclose()

    async def _stream(self, call: Call[T]) -> AsyncGenerator[T, None]:
        response = await self._open(call)
        try:
            lines = Lines(call, response.headers)
            async for piece in response.aiter_bytes():
                for item in lines.feed(piece):
                    yield item
            for item in lines.finish():
                yield item
        finally:
            await response.aclose()

    async def _open(self, call: Call[Any]) -> httpx.Response:
        """Send a request until it is answered: a 200, its body yet to be read."""
        attempts = Attempts(self._retries)
        while True:
            try:
                return await self._send(call)
            except (HeadlightError, httpx.TransportError) as error:
                wait = attempts.wait_after(error)
            await asyncio.sleep(wait)

    async def _send(self, call: Call[Any]) -> httpx.Response:
        request = self._http.build_request(
            "POST", call.path, content=call.body, params=call.parameters, headers=call.headers
        )
        response = await self._http.send(request, stream=True)
        if response.status_code == httpx.codes.OK:
            return response
        try:
            raise refusal(response.status_code, response.headers, await response.aread())
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
