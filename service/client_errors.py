"""What a client is told when it gets no answer: problem documents (RFC 9457) as an exception."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

_SHORT = 200  # characters of an answer that is no problem document, repeated in the message


class HeadlightError(Exception):
    """The service refused or failed, or its answer cannot be read; the message says what to change.

    `status` is the HTTP status and `document` the whole problem document. `retry_after` is what the answer
    asked to wait, in seconds. Faults of the connection are not this but `httpx.RequestError`.
    """

    def __init__(self, status: int, document: Mapping[str, Any], retry_after: float | None = None) -> None:
        super().__init__(status, document, retry_after)  # as they came, so that the error can be pickled
        self.status = status
        self.document = document
        self.retry_after = retry_after
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
        kind = self.title if self.type == "about:blank" else self.type.removeprefix("urn:headlight:")
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.detail or self.title} ({self.status} {kind}{request})"


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
    """Read `Retry-After` (RFC 9110 §10.2.3), seconds or a date, as seconds from now; None if it says nothing.

    A date is measured against the answer's own `Date`, so that a clock that is wrong here does no harm.
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
