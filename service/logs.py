"""Logs as text, or as one JSON object per line. Texts of clients are never logged."""

import contextlib
import logging
import os
from datetime import UTC, datetime
from typing import Literal

import orjson

_FIELDS = ("request_id", "route", "status", "seconds", "stages")


class JsonFormatter(logging.Formatter):
    """One object per line, with the request's id where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in _FIELDS if hasattr(record, name)},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up_logs(level: str, form: Literal["text", "json"]) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What others log at info is noise here: every request of an HTTP client, for one.
    for name in ("uvicorn", "httpx", "huggingface_hub"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def write_at_once(logger: logging.Logger, level: int, message: str) -> None:
    """Log a line without taking a lock, in a signal handler: it may have interrupted what holds the lock."""
    handlers = logging.getLogger().handlers
    if level < logger.getEffectiveLevel() or not handlers:
        return
    record = logging.LogRecord(logger.name, level, __file__, 0, message, None, None)
    with contextlib.suppress(OSError):
        os.write(2, f"{handlers[0].format(record)}\n".encode())
