"""`Headlight` and `AsyncHeadlight`: each call is sent in as many requests as necessary."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from headlight_client.answers import Answer, AttentionMaps, Encoded, Tokens
from headlight_client.calls import Call, Lines
from headlight_client.errors import (
    HeadlightError,
    connection_errors,
)
from headlight_client.explanations import Explained
from headlight_client.info import Info, Waiting, read_info
from headlight_client.many import is_small, parts_of, run_in_thread, send_all, without_info
from headlight_client.predictions import Predicted, Ranked
from headlight_client.retry import Progress, Retries
from headlight_client.routes import Routes
from headlight_client.sending import AsyncSender, Connection, Sender, where
from headlight_client.similarities import Similarities
from headlight_client.splitting import WHOLE, Limits, Parts, is_too_much

T = TypeVar("T")

URL = "http://127.0.0.1:8000"
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
"""Seconds. Longer than the service's own timeout (default 30), so that its error is received."""


class Headlight(
    Routes[
        Answer[Encoded],
        Answer[AttentionMaps],
        Generator[Encoded, None, None],
        Generator[AttentionMaps, None, None],
        Answer[Predicted],
        Answer[Ranked],
        Similarities,
        Answer[Tokens],
        Answer[str],
        Answer[Explained],
    ]
):
    """A thread-safe client of one service; a context manager that closes its connections.

        with Headlight("http://127.0.0.1:8000") as client:
            answer = client.encode(["A man is eating.", "Someone eats."])
        answer.embeddings  # (2, 384), float32

    After a 429, a 503 or a broken connection, a request is retried within `retry_for` seconds of its start:
    when the service says, as often as it says so, or up to `retries` times if it does not say when. With
    `retries=0` each request is sent once. Failed attempts are logged as `headlight_client`. A call with many
    inputs sends up to `concurrency` requests at a time. `timeout` is in seconds; `headers` are sent with
    every request.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float | httpx.Timeout = TIMEOUT,
        retries: int = 5,
        retry_for: float = 60.0,
        concurrency: int = 4,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        policy = Retries(retries, retry_for)
        self._connection = Connection.of(url, api_key, headers, timeout, policy, concurrency)
        self._sender = Sender(self._connection)
        self._info_document: Mapping[str, Any] | None = None

    def info(self) -> Info:
        """`GET /info`: the version, the served models and the limits. Raises HeadlightError."""
        return self._sender.fetch(self._sender.http.build_request("GET", "/info"), read_info)

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait up to `timeout` seconds until `GET /readyz` returns 200.

        Raises HeadlightTimeout, with the last error, or any HeadlightError that waiting would not resolve.
        """
        http = self._sender.http
        waiting = Waiting(where(http.build_request("GET", "/readyz")), timeout)
        while True:
            try:
                with connection_errors(waiting.url):
                    request = http.build_request("GET", "/readyz", timeout=waiting.timeout)
                    return self._sender.send(request).close()
            except HeadlightError as error:
                wait = waiting.after(error)
            time.sleep(wait)

    def _fetch(self, call: Call[T]) -> Answer[T]:
        refused = None
        if is_small(call, self._info_document):
            try:
                return self._sender.fetch(self._request(call, call.rows), partial(call.answer, call.rows))
            except HeadlightError as error:
                if not is_too_much(error) or len(call.rows) == 1:
                    raise
                refused = error
        limits = self._limits(call)
        call = call.in_parts(self._info_document or {})
        parts = parts_of(call, limits, self._connection.concurrency, refused)
        return run_in_thread(partial(self._send_all, call, parts))

    async def _send_all(self, call: Call[T], parts: Parts) -> Answer[T]:
        async with AsyncHeadlight._over(self._connection) as others:
            return await others._send_all(call, parts)

    def _stream(self, call: Call[T]) -> Generator[T, None, None]:
        parts = parts_of(call, WHOLE if is_small(call, self._info_document) else self._limits(call), 1)
        for part in parts:
            request = self._request(call, part)
            with connection_errors(where(request)):
                try:
                    response = self._sender.open(request)
                except HeadlightError as error:
                    parts.refused(error, part)
                    continue
                try:
                    lines = Lines(call, response.headers, part)
                    for piece in response.iter_bytes():
                        yield from lines.feed(piece)
                    yield from lines.finish()
                except HeadlightError as error:
                    parts.place(error, part)
                    raise
                finally:
                    response.close()

    def _request(self, call: Call[Any], rows: range) -> httpx.Request:
        return self._sender.http.build_request(**call.request(rows))

    def _limits(self, call: Call[Any]) -> Limits:
        if self._info_document is None:
            try:
                self._info_document = self.info().document
            except HeadlightError as error:
                self._info_document = without_info(error)
        return Limits.of(self._info_document, call.model)

    def close(self) -> None:
        """Close the connections."""
        self._sender.http.close()

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
        Awaitable[Answer[Predicted]],
        Awaitable[Answer[Ranked]],
        Awaitable[Similarities],
        Awaitable[Answer[Tokens]],
        Awaitable[Answer[str]],
        Awaitable[Answer[Explained]],
    ]
):
    """`Headlight` for asyncio: await the calls, and read streams with `async for`."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float | httpx.Timeout = TIMEOUT,
        retries: int = 5,
        retry_for: float = 60.0,
        concurrency: int = 4,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        policy = Retries(retries, retry_for)
        self._begin(Connection.of(url, api_key, headers, timeout, policy, concurrency))

    def _begin(self, connection: Connection) -> None:
        self._connection = connection
        self._sender = AsyncSender(connection)
        self._info_document: Mapping[str, Any] | None = None

    @classmethod
    def _over(cls, connection: Connection) -> Self:
        client = cls.__new__(cls)
        client._begin(connection)
        return client

    async def info(self) -> Info:
        """`GET /info`: the version, the served models and the limits. Raises HeadlightError."""
        return await self._sender.fetch(self._sender.http.build_request("GET", "/info"), read_info)

    async def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait up to `timeout` seconds until `GET /readyz` returns 200.

        Raises HeadlightTimeout, with the last error, or any HeadlightError that waiting would not resolve.
        """
        http = self._sender.http
        waiting = Waiting(where(http.build_request("GET", "/readyz")), timeout)
        while True:
            try:
                with connection_errors(waiting.url):
                    request = http.build_request("GET", "/readyz", timeout=waiting.timeout)
                    return await (await self._sender.send(request)).aclose()
            except HeadlightError as error:
                wait = waiting.after(error)
            await asyncio.sleep(wait)

    async def _fetch(self, call: Call[T]) -> Answer[T]:
        refused = None
        if is_small(call, self._info_document):
            try:
                return await self._send_part(call, call.rows)
            except HeadlightError as error:
                if not is_too_much(error) or len(call.rows) == 1:
                    raise
                refused = error
        limits = await self._limits(call)
        call = call.in_parts(self._info_document or {})
        parts = parts_of(call, limits, self._connection.concurrency, refused)
        return await self._send_all(call, parts)

    async def _send_all(self, call: Call[T], parts: Parts) -> Answer[T]:
        return await send_all(call, parts, partial(self._send_part, call), self._connection.concurrency)

    async def _send_part(self, call: Call[T], rows: range, progress: Progress | None = None) -> Answer[T]:
        return await self._sender.fetch(self._request(call, rows), partial(call.answer, rows), progress)

    async def _stream(self, call: Call[T]) -> AsyncGenerator[T, None]:
        parts = parts_of(call, WHOLE if is_small(call, self._info_document) else await self._limits(call), 1)
        for part in parts:
            request = self._request(call, part)
            with connection_errors(where(request)):
                try:
                    response = await self._sender.open(request)
                except HeadlightError as error:
                    parts.refused(error, part)
                    continue
                try:
                    lines = Lines(call, response.headers, part)
                    async for piece in response.aiter_bytes():
                        for item in lines.feed(piece):
                            yield item
                    for item in lines.finish():
                        yield item
                except HeadlightError as error:
                    parts.place(error, part)
                    raise
                finally:
                    await response.aclose()

    def _request(self, call: Call[Any], rows: range) -> httpx.Request:
        return self._sender.http.build_request(**call.request(rows))

    async def _limits(self, call: Call[Any]) -> Limits:
        if self._info_document is None:
            try:
                self._info_document = (await self.info()).document
            except HeadlightError as error:
                self._info_document = without_info(error)
        return Limits.of(self._info_document, call.model)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sender.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
