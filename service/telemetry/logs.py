"""Logs as text, or as one JSON object per line. Clients' texts are never logged."""

import contextlib
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson

from service.telemetry.request_record import Ended

_ENDED = "ended"
"""The attribute of a log record that holds the request it reports."""


class TextFormatter(logging.Formatter):
    """Human-readable lines: time, level, message, and the fields of a finished request."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Format one record, without its exception."""
        ended: Ended | None = getattr(record, _ENDED, None)
        line = super().formatMessage(record)
        return line if ended is None else f"{line} {ended.text()}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the fields of a finished request."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        ended: Ended | None = getattr(record, _ENDED, None)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({} if ended is None else ended.fields()),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up_logs(level: str, form: Literal["text", "json"]) -> None:
    """Log to standard error."""
    # Our format does not use these, but they would be looked up for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False
    handler = logging.StreamHandler()
    text = TextFormatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Libraries are noisy at info: HTTP clients log every request.
    for name in ("uvicorn", "httpx", "httpx2", "huggingface_hub"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # Warns of clients' `traceparent` and `tracestate`, and repeats them.
    logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)


def write_at_once(logger: logging.Logger, level: int, message: str) -> None:
    """Log a line in a signal handler, without a lock: the interrupted code may hold it."""
    handlers = logging.getLogger().handlers
    if level < logger.getEffectiveLevel() or not handlers:
        return
    record = logging.LogRecord(logger.name, level, __file__, 0, message, None, None)
    with contextlib.suppress(OSError):
        os.write(2, f"{handlers[0].format(record)}\n".encode())
