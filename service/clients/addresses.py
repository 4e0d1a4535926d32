"""Whose request it is: the address of the client, also behind proxies that are trusted."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from service.setting_values import Networks

Address = IPv4Address | IPv6Address

NO_ADDRESS = "local"
"""The client of a connection that has no address: a Unix socket."""

_HEADER = b"x-forwarded-for"
# More proxies in a row than anybody has; what stands before them was written by the client.
_MAX_HOPS = 16
# An IPv6 address with its zone and a port, and then some.
_MAX_CHARACTERS = 64
# What one customer of a provider is given (RFC 6177): a client may have any address of it.
_SUBNET_BITS = 64


class Peers:
    """Tells clients apart by their addresses; `trusted` are the proxies whose word is taken for them."""

    def __init__(self, trusted: Networks = ()) -> None:
        self._trusted = trusted

    def forwarded_for(self, scope: Mapping[str, Any]) -> str | None:
        """Read for whom a trusted proxy asks; None where the connection is the client's own.

        Each proxy appends the address that it was asked from. Read from the right, the first address that
        is no trusted proxy's is the client; what stands left of it is the client's own word. Where an entry
        is no address, the last proxy before it is as far as can be told.
        """
        if not self._trusted or not (peer := scope.get("client")):
            return None
        if (address := read_address(peer[0])) is None or not self._trusts(address):
            return None
        found: Address | None = None
        for entry in _last_entries(scope["headers"]):
            if (address := read_address(entry)) is None:
                break
            found = address
            if not self._trusts(address):
                break
        return None if found is None else str(found)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def peer_address(scope: Mapping[str, Any]) -> str:
    """Say from where the connection comes: an address as one writes it, or NO_ADDRESS."""
    peer = scope.get("client")
    return _normalised(peer[0]) if peer and peer[0] else NO_ADDRESS


@lru_cache(maxsize=1024)
def client_of(address: str) -> str:
    """Name the client at an address: IPv6 addresses of one subnet (/64) are one client."""
    parsed = read_address(address)
    if not isinstance(parsed, IPv6Address):
        return address
    return str(IPv6Network((int(parsed) >> _SUBNET_BITS << _SUBNET_BITS, _SUBNET_BITS)))


def read_address(text: str) -> Address | None:
    """Read an address, which may have a port (`192.0.2.1:80`, `[2001:db8::1]:80`); None if it is none.

    IPv4 addresses that are written as IPv6 ones (`::ffff:192.0.2.1`) are IPv4 addresses.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        # The zone (`fe80::1%eth0`) is of the machine that saw it.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


@lru_cache(maxsize=1024)
def _normalised(host: str) -> str:
    return str(read_address(host) or host)


def _last_entries(headers: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """List the last entries of X-Forwarded-For, the last one first; several such headers are one list."""
    entries: list[str] = []
    for name, value in reversed(headers):
        if name == _HEADER and (left := _MAX_HOPS - len(entries)) > 0:
            parts = value.rsplit(b",", left)[-left:]
            entries += [part.strip().decode("latin-1") for part in reversed(parts)]
    return entries
