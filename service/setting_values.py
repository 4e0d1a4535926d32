"""Values of settings that are lists written as text: models, keys, origins and networks."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from model.checkpoints.source import model_name

Networks = Sequence[IPv4Network | IPv6Network]

_ORIGIN = re.compile(r"https?://[^/\s,?#@]+")
# What can be sent as a bearer token (RFC 6750 §2.1).
_KEY = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def parse_models(value: str) -> dict[str, str]:
    """Read `source` or `name=source,name=source`; raises ValueError."""
    models: dict[str, str] = {}
    for part in value.split(","):
        before, equals, after = part.strip().partition("=")
        name, source = (before.strip(), after.strip()) if equals else (model_name(before), before)
        if not name or not source:
            raise ValueError(f"{part!r} names no model; write a folder, a hub name, or name=source")
        if name in models:
            raise ValueError(f"two models are called {name!r}; give them names: name=source,name=source")
        models[name] = source
    return models


def parse_origins(value: str | None) -> list[str]:
    """Read origins, separated by commas; raises ValueError."""
    origins = [part.strip() for part in (value or "").split(",") if part.strip()]
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin; write it like https://example.org, or *")
    return origins


def parse_keys(text: str) -> frozenset[str]:
    """Read keys, one per line or separated by commas; lines that begin with # are comments.

    Raises ValueError, which says where the fault is and never what the key was.
    """
    keys = set()
    for number, line in enumerate(text.splitlines(), 1):
        for part in [] if line.lstrip().startswith("#") else line.split(","):
            key = part.strip()
            if key and not _KEY.fullmatch(key):
                raise ValueError(
                    f"line {number} has a key that no client could send; a key has letters, digits and "
                    "-._~+/ only, and = at its end"
                )
            keys.add(key)
    return frozenset(keys - {""})


def parse_proxies(value: str | None) -> Networks:
    """Read addresses and networks, separated by commas; raises ValueError."""
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
            f"{text!r} is neither an address nor a network; write them like 10.0.0.7, 10.0.0.0/8 or "
            "fd00::/8, separated by commas"
        ) from None
    raise ValueError(f"{text!r} is an address within a network; for the whole network write {meant}")
