"""What a client is told when it gets no answer: one tree of exceptions.

HeadlightError               the service refused or failed: the members of its problem document (RFC 9457)
├── HeadlightConnectionError no whole answer came: refused, reset, no such host, TLS
│   └── HeadlightTimeout     no whole answer came in time
└── InputsError              the inputs are none that can be sent; also a TypeError and a ValueError
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

_SHORT = 200  # characters of an answer that is no problem document, repeated in the message
_PLACE = re.compile(r"\binputs\.(\d+)\b")


class HeadlightError(Exception):
    """The service refused or failed, or its answer cannot be read; the message says what to change.

    `status` is the HTTP status, None where there was no answer, and `document` the whole problem document.
    `retry_after` is what the answer asked to wait, in seconds. `rows` are the inputs that were in the request
    that failed, where a call took several requests.
    """

    def __init__(
        self, status: int | None, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        super().__init__(status, document, retry_after)  # as they came, so that the error can be pickled
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
        """The sentence of the service, and what finds the request in its log."""
        said = self.detail or self.title
        where = "" if self.rows is None else f" [{_named(self.rows)}]"
        if self.status is None:
            return said + where
        kind = self.title if self.type == "about:blank" else self.type.removeprefix("urn:headlight:")
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{said} ({self.status} {kind}{request}){where}"

    def place(self, rows: range) -> None:
        """Say which inputs the request had, and count those that it names from the first of the call."""
        self.rows = rows
        self.detail = _counted_from(rows.start, self.detail)
        self.field = self.field and _counted_from(rows.start, self.field)


class HeadlightConnectionError(HeadlightError):
    """No whole answer came from `url`; `__cause__` is what httpx says."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(None, {"title": "No answer", "detail": detail})
        self.args = (url, detail)  # those of the constructor, for pickle
        self.url = url


class HeadlightTimeout(HeadlightConnectionError):
    """No whole answer came from `url` in time; the service may still be at work."""


class InputsError(HeadlightError, TypeError, ValueError):
    """The inputs cannot be sent; the message names the first row that is wrong. Nothing was sent.

    `field` is `inputs.17` for row 17, counted from 0, or `inputs`.
    """

    def __init__(self, detail: str, field: str = "inputs") -> None:
        super().__init__(None, {"title": "The inputs cannot be sent", "detail": detail, "field": field})
        self.args = (detail, field)


@contextmanager
def connection_errors(url: str) -> Iterator[None]:
    """Raise httpx's errors as ours; `url` is what was asked for."""
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
            f"{url} took no connection{_within(bounds, 'connect')}: check the host, the port and firewalls."
        )
    if isinstance(error, httpx.PoolTimeout):
        return (
            f"{url} was not asked: all connections of this client were in use{_within(bounds, 'pool')}. "
            "Send fewer requests at a time."
        )
    what = "write" if isinstance(error, httpx.WriteTimeout) else "read"
    did = "did not take the request" if what == "write" else "sent nothing"
    return f"{url} {did}{_within(bounds, what)}: allow more with timeout=…, or send fewer texts at a time."


def _within(bounds: Mapping[str, Any], what: str) -> str:
    seconds = bounds.get(what)
    return " in time" if seconds is None else f" for {seconds:g} s"


def _broken(url: str, error: httpx.RequestError) -> str:
    reason = str(error) or type(error).__name__
    if not isinstance(error, httpx.ConnectError):
        return f"The connection to {url} broke before its answer was whole: {reason}."
    if "SSL" in reason or "TLS" in reason:
        return (
            f"{url} cannot be trusted, or speaks no TLS: {reason}. Check the certificate, or http and https."
        )
    return (
        f"{url} cannot be reached: {reason}. Check the URL, and that the service runs there; "
        "client.wait_until_ready() waits for one that is starting."
    )


def _named(rows: range) -> str:
    return f"input {rows.start}" if len(rows) == 1 else f"inputs {rows.start} to {rows.stop - 1}"


def _counted_from(start: int, text: str) -> str:
    return _PLACE.sub(lambda found: f"inputs.{int(found[1]) + start}", text)


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> HeadlightError:
    """Read an answer that is not a 200, whoever gave it: a proxy in between writes no problem documents."""
    wait = retry_after(headers)
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if is_problem(document):
        return HeadlightError(status, document, wait)
    return HeadlightError(status, _plain(status, headers, content.decode("utf-8", "replace")), wait)


def unreadable(status: int, headers: Mapping[str, str], reason: object) -> HeadlightError:
    """Make the error of an answer that should have been one and is not."""
    media_type = headers.get("content-type", "nothing")
    detail = f"The answer, declared as {media_type}, cannot be read: {reason}."
    return HeadlightError(status, _plain(status, headers, detail) | {"title": "Unreadable answer"})


def is_problem(document: object) -> bool:
    """Tell a problem document from anything else that JSON can say."""
    return isinstance(document, dict) and {"type", "title", "status"} <= document.keys()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` (RFC 9110 §10.2.3), seconds or a date, as seconds from now; None if invalid.

    A date is compared with the response's own `Date`, so that a wrong local clock does not matter.
    """
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
