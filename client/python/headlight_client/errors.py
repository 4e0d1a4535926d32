"""The client's exceptions.

HeadlightError               the service refused or failed: the members of its problem document (RFC 9457)
├── HeadlightConnectionError no complete response: connection refused or reset, unknown host, TLS
│   └── HeadlightTimeout     no complete response in time
└── InputsError              the inputs cannot be sent; also a TypeError and a ValueError
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpx

_SHORT = 200  # characters of a response without a problem document that the message quotes
_MILLISECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_PLACE = re.compile(r"\b(inputs|texts|token_ids|edges)\.(\d+)\b")


class HeadlightError(Exception):
    """The service refused or failed, or its response cannot be read; the message says what to change.

    `status` is the HTTP status, None without a response, and `document` the whole problem document.
    `retry_after` is when the response says to come back, in seconds. If a call took several requests, `rows`
    are the inputs of the request that failed.
    """

    def __init__(
        self, status: int | None, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        super().__init__(status, document, retry_after)  # the constructor's arguments, for pickle
        self.status = status
        self.document = document
        self.retry_after = retry_after
        self.rows: range | None = None
        self.type = str(document.get("type", "about:blank"))
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail", ""))
        self.request_id: str | None = document.get("request_id")
        self.field: str | None = document.get("field")
        self.limit: Any = document.get("limit")
        self.actual: Any = document.get("actual")
        self.allowed: Any = document.get("allowed")

    def __str__(self) -> str:
        """The service's message, and the request id to find in its log."""
        message = self.detail or self.title
        where = "" if self.rows is None else f" [{_named(self.rows)}]"
        if self.status is None:
            return message + where
        kind = self.title if self.type == "about:blank" else self.type.removeprefix("urn:headlight:")
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{message} ({self.status} {kind}{request}){where}"

    def place(self, rows: range) -> None:
        """Record which inputs the request contained, and renumber those it names to match the call."""
        self.rows = rows
        self.detail = _counted_from(rows.start, self.detail)
        self.field = self.field and _counted_from(rows.start, self.field)

    def rename(self, field: str) -> None:
        """Say `field` of inputs that the message names, which the caller gave under this name."""
        self.detail = _PLACE.sub(rf"{field}.\2", self.detail)
        self.field = self.field and _PLACE.sub(rf"{field}.\2", self.field)


class HeadlightConnectionError(HeadlightError):
    """No complete response from `url`; `__cause__` is httpx's error."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(None, {"title": "No response", "detail": detail})
        self.args = (url, detail)  # the constructor's arguments, for pickle
        self.url = url


class HeadlightTimeout(HeadlightConnectionError):
    """No complete response from `url` in time; the service may still be working on it."""


class InputsError(HeadlightError, TypeError, ValueError):
    """The inputs cannot be sent; the message names the first invalid row. Nothing was sent.

    `field` is `inputs.17` for row 17, counted from 0, or `inputs`.
    """

    def __init__(self, detail: str, field: str = "inputs") -> None:
        super().__init__(None, {"title": "The inputs cannot be sent", "detail": detail, "field": field})
        self.args = (detail, field)


@contextmanager
def connection_errors(url: str) -> Iterator[None]:
    """Raise httpx's errors as ours; `url` is that of the request."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise HeadlightTimeout(url, _late(url, error)) from error
    except httpx.RequestError as error:
        raise HeadlightConnectionError(url, _broken(url, error)) from error


def _late(url: str, error: httpx.TimeoutException) -> str:
    bounds = error.request.extensions.get("timeout", {}) if getattr(error, "_request", None) else {}
    if isinstance(error, httpx.ConnectTimeout):
        return (
            f"{url} accepted no connection{_within(bounds, 'connect')}: check the host, port and firewalls."
        )
    if isinstance(error, httpx.PoolTimeout):
        return (
            f"Nothing was sent to {url}: all connections of this client were busy{_within(bounds, 'pool')}. "
            "Send fewer requests at a time."
        )
    what = "write" if isinstance(error, httpx.WriteTimeout) else "read"
    did = "did not accept the request" if what == "write" else "sent nothing"
    return f"{url} {did}{_within(bounds, what)}: allow more with timeout=…, or send fewer texts at a time."


def _within(bounds: Mapping[str, Any], what: str) -> str:
    seconds = bounds.get(what)
    return " in time" if seconds is None else f" for {seconds:g} s"


def _broken(url: str, error: httpx.RequestError) -> str:
    reason = str(error) or type(error).__name__
    if not isinstance(error, httpx.ConnectError):
        return f"The connection to {url} broke before the response was complete: {reason}."
    if "SSL" in reason or "TLS" in reason:
        return (
            f"{url} has no valid certificate or does not use TLS: {reason}. Check the certificate, and http "
            "or https in the URL."
        )
    return (
        f"{url} cannot be reached: {reason}. Check the URL and that the service is running; "
        "client.wait_until_ready() waits for a service that is starting."
    )


def _named(rows: range) -> str:
    return f"input {rows.start}" if len(rows) == 1 else f"inputs {rows.start} to {rows.stop - 1}"


def _counted_from(start: int, text: str) -> str:
    return _PLACE.sub(lambda found: f"{found[1]}.{int(found[2]) + start}", text)


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> HeadlightError:
    """Make the error of a response that is not a 200; one from a proxy has no problem document."""
    wait = retry_after(headers)
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if is_problem(document):
        return HeadlightError(status, document, wait)
    return HeadlightError(status, _plain(status, headers, content.decode("utf-8", "replace")), wait)


def unreadable(status: int, headers: Mapping[str, str], reason: object) -> HeadlightError:
    """Make the error of a 200 whose content is not valid."""
    media_type = headers.get("content-type", "no media type")
    detail = f"The response ({media_type}) cannot be read: {reason}."
    return HeadlightError(status, _plain(status, headers, detail) | {"title": "Unreadable response"})


def is_problem(document: object) -> bool:
    """Whether a JSON value is a problem document."""
    return isinstance(document, dict) and {"type", "title", "status"} <= document.keys()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read when to come back, in seconds from now; None if the headers do not say it.

    `retry-after-ms` is more exact than `Retry-After` (RFC 9110 §10.2.3), which is whole seconds or a date. A
    date is compared with the response's own `Date`, so that a wrong local clock does not matter.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _MILLISECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    until = _date(value)
    if until is None:
        return None
    since = _date(headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (until - since).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _plain(status: int, headers: Mapping[str, str], text: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    detail = text if len(text) <= _SHORT else text[:_SHORT] + "…"
    return {"title": title, "detail": detail.strip(), "request_id": headers.get("x-request-id")}
