"""Parses settings that hold lists: addresses, models, keys, origins and networks."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from model.checkpoints.source import served_name

Networks = Sequence[IPv4Network | IPv6Network]

_ORIGIN = re.compile(r"https?://[^/\s,?#@]+")
# The syntax of a bearer token (RFC 6750 §2.1).
_KEY = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# Not as Python has them: `str.splitlines` also ends lines at U+0085; `str.strip` also removes it and U+00A0.
_LINE_END, _WHITESPACE = re.compile(r"\r\n|\r|\n"), " \t"


def parse_hosts(value: str) -> list[str]:
    """Parse addresses or names of this machine, separated by commas; raises ValueError."""
    hosts = [part.strip().removeprefix("[").removesuffix("]") for part in value.split(",")]
    if not all(hosts):
        raise ValueError(f"{value!r} does not name an address; use forms like 127.0.0.1, :: or 10.0.0.7,::1")
    return list(dict.fromkeys(hosts))


def parse_models(value: str) -> dict[str, str]:
    """Parse `source` or `name=source,name=source`; raises ValueError."""
    models: dict[str, str] = {}
    for part in value.split(","):
        before, equals, after = part.strip().partition("=")
        name, source = (before.strip(), after.strip()) if equals else (served_name(before), before)
        if not name or not source:
            raise ValueError(f"{part!r} does not name a model; use a folder, a hub name, or name=source")
        if name in models:
            raise ValueError(f"two models are named {name!r}; use different names: name=source,name=source")
        models[name] = source
    return models


PROTOCOLS = ("openai", "tei", "cohere", "oip", "ollama")
"""The protocols of other servers: the values of `Endpoint.protocol` besides `native`."""


def parse_protocols(value: str) -> frozenset[str]:
    """Parse `all`, `none` or names separated by commas; raises ValueError."""
    if value in ("all", "none"):
        return frozenset(PROTOCOLS if value == "all" else ())
    names = [part.strip() for part in value.split(",")]
    for name in names:
        if name not in PROTOCOLS:
            raise ValueError(f"{name!r} is not a protocol; use all, none, or some of {', '.join(PROTOCOLS)}")
    return frozenset(names)


def parse_origins(value: str | None) -> list[str]:
    """Parse origins, separated by commas; raises ValueError."""
    origins = [part.strip() for part in (value or "").split(",") if part.strip()]
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin; use a form like https://example.org, or *")
    return origins


def parse_keys(text: str) -> frozenset[str]:
    """Parse keys, one per line or separated by commas; lines that begin with # are comments.

    Raises ValueError, whose message names the line but never contains the key.
    """
    keys = set()
    for number, line in enumerate(_LINE_END.split(text), 1):
        for part in [] if line.lstrip(_WHITESPACE).startswith("#") else line.split(","):
            key = part.strip(_WHITESPACE)
            if key and not _KEY.fullmatch(key):
                raise ValueError(
                    f"line {number} has a key that is not a valid bearer token; use only letters, digits and "
                    "-._~+/, and = at the end"
                )
            keys.add(key)
    return frozenset(keys - {""})


def parse_proxies(value: str | None) -> Networks:
    """Parse addresses and networks, separated by commas; raises ValueError."""
    return [_network(part.strip()) for part in (value or "").split(",") if part.strip()]


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        meant = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an address nor a network; use forms like 10.0.0.7, 10.0.0.0/8 or "
            "fd00::/8, separated by commas"
        ) from None
    raise ValueError(f"{text!r} has host bits set; for the whole network, use {meant}")
