"""Checks of a request's head that HTTP/1.1 requires beyond the parser's (RFC 9110, RFC 9112)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from service.problems import Problem

# A registered name or an IPv4 address, or an IPv6 address in brackets; then a port (RFC 3986 §3.2.2). The
# host of an http URI is not empty (RFC 9110 §4.2.1).
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]{0,5})?")
_VERSIONS = ("1.1", "1.0")
_SHOWN = 100


def check_head(version: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise a Problem for a head whose version, host or transfer coding is invalid or not supported.

    `headers` have lower-case names. Exactly one `Host` is required (HTTP/1.0: at most one), and the only
    transfer coding is chunked.
    """
    if version not in _VERSIONS:
        raise Problem(
            "http-version-not-supported",
            f"The request uses HTTP/{version}: send it as HTTP/1.1.",
            members={"actual": f"HTTP/{version}", "allowed": [f"HTTP/{known}" for known in _VERSIONS]},
        )
    hosts = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            _check_coding(version, value)
    if len(hosts) != 1:
        if not hosts and version == "1.0":
            return
        many = f"has {len(hosts)} Host headers" if hosts else "has no Host header"
        raise _malformed(f"The request {many}: send exactly one, with the name or address of the service.")
    if not _is_host(hosts[0]):
        raise _malformed(
            f'The Host header "{_shown(hosts[0])}" is not valid: send a name or an address, with or without '
            "a port."
        )


@lru_cache(maxsize=256)
def _known_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def _is_host(value: bytes) -> bool:
    """Check a host, caching short ones: nearly all requests have the same."""
    return _known_host(value) if len(value) <= _SHOWN else _HOST.fullmatch(value) is not None


def _check_coding(version: str, value: bytes) -> None:
    if version == "1.0":
        raise _malformed(
            "HTTP/1.0 has no Transfer-Encoding: send the body with a Content-Length.", "Transfer-Encoding"
        )
    if value.strip().lower() != b"chunked":
        raise Problem(
            "transfer-coding-not-implemented",
            f'The transfer coding "{_shown(value)}" is not supported: send the body with '
            "Transfer-Encoding: chunked or a Content-Length.",
            members={"field": "Transfer-Encoding", "actual": _shown(value), "allowed": ["chunked"]},
        )


def _malformed(detail: str, field: str = "Host") -> Problem:
    return Problem("malformed-request", detail, members={"field": field})


def _shown(value: bytes) -> str:
    """Escape client input for the log, so that it contains no control characters of a terminal."""
    return value[:_SHOWN].decode("ascii", "backslashreplace")
