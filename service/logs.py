"""Logs as text, or as one JSON object per line. Texts of clients are never logged."""

import logging
from datetime import UTC, datetime
from typing import Literal

import orjson

_FIELDS = (
    "request_id",
    "route",
    "status",
    "seconds",
    "stages",
    "model",
    "inputs",
    "tokens",
    "bytes_in",
    "bytes_out",
    "peer",
    "forwarded_for",
    "key",
    "trace_id",
    "span_id",
)
# Those that the message of a line of text does not say already, and what they are called there.
_TEXT = {
    "model": "model",
    "inputs": "inputs",
    "tokens": "tokens",
    "bytes_in": "in",
    "bytes_out": "out",
    "peer": "peer",
    "forwarded_for": "for",
    "key": "key",
    "trace_id": "trace",
    "request_id": "id",
}


class TextFormatter(logging.Formatter):
    """A line for people: time, level, message, and what is known of a request as `name=value`."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Write one record, without its exception."""
        known = vars(record)
        told = "".join([f" {short}={known[name]}" for name, short in _TEXT.items() if name in known])
        return super().formatMessage(record) + told


class JsonFormatter(logging.Formatter):
    """One object per line, with the request's id where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        known = vars(record)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: known[name] for name in _FIELDS if name in known},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up_logs(level: str, form: Literal["text", "json"]) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    text = TextFormatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What others log at info is noise here: every request of an HTTP client, for one.
    for name in ("uvicorn", "httpx", "huggingface_hub"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
