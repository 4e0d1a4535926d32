"""What HTTP/1.1 asks of the head of a request beyond what the parser checks (RFC 9110, RFC 9112)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from service.problems import Problem

# A registered name or an IPv4 address, or an IPv6 address in brackets; then a port (RFC 3986 §3.2.2). An
# http URI has a host that is not empty (RFC 9110 §4.2.1).
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+)(?::[0-9]{0,5})?")
_VERSIONS = ("1.1", "1.0")
_SHOWN = 100


def check_head(version: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise the problem of a head whose version, host or transfer coding cannot be served.

    `headers` have their names in lower case. What may be read is one `Host` (none in HTTP/1.0), and bodies
    that are sent whole or in chunks.
    """
    if version not in _VERSIONS:
        raise Problem(
            "http-version-not-supported",
            f"The request is in HTTP/{version}: send it in HTTP/1.1.",
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
        raise _malformed(f"The request {many}: send one, with the name that the service is called by.")
    if not _is_host(hosts[0]):
        raise _malformed(f'The Host header "{_shown(hosts[0])}" is not a name or an address, and a port.')


@lru_cache(maxsize=256)
def _known_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def _is_host(value: bytes) -> bool:
    """Remember short ones: all requests of a client, and most of all clients, have the same."""
    return _known_host(value) if len(value) <= _SHOWN else _HOST.fullmatch(value) is not None


def _check_coding(version: str, value: bytes) -> None:
    if version == "1.0":
        raise _malformed(
            "HTTP/1.0 has no Transfer-Encoding: send the body with a Content-Length.", "Transfer-Encoding"
        )
    if value.strip().lower() != b"chunked":
        raise Problem(
            "transfer-coding-not-implemented",
            f'The transfer coding "{_shown(value)}" is not known here: send the body in chunks '
            "(Transfer-Encoding: chunked), or with a Content-Length.",
            members={"field": "Transfer-Encoding", "actual": _shown(value), "allowed": ["chunked"]},
        )


def _malformed(detail: str, field: str = "Host") -> Problem:
    return Problem("malformed-request", detail, members={"field": field})


def _shown(value: bytes) -> str:
    """Write what a client sent so that it can be logged: with no control character of a terminal."""
    return value[:_SHOWN].decode("ascii", "backslashreplace")
