"""Identifies clients by address, including behind trusted proxies."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from service.setting_values import Networks

Address = IPv4Address | IPv6Address

NO_ADDRESS = "local"
"""The client of a connection that has no address: a Unix socket."""

_HEADER = b"x-forwarded-for"
# More proxies in a row than any deployment has; earlier entries were written by the client.
_MAX_HOPS = 16
# More than an IPv6 address with its zone and a port.
_MAX_CHARACTERS = 64
# The smallest subnet a provider assigns to a customer (RFC 6177): a client may use any address in it.
_SUBNET_BITS = 64


class Peers:
    """Determines client addresses; `trusted` are the proxies whose X-Forwarded-For is trusted."""

    def __init__(self, trusted: Networks = ()) -> None:
        self._trusted = trusted

    def forwarded_for(self, scope: Mapping[str, Any]) -> str | None:
        """Read the client's address from a trusted proxy; None if the connection is the client's own.

        Each proxy appends the address its request came from. Read from the right, the first address that is
        not a trusted proxy is the client; entries left of it can be forged. If an entry is not an address,
        the address to its right is returned.
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
    """Return the peer address of the connection in normal form, or NO_ADDRESS."""
    peer = scope.get("client")
    return _normalised(peer[0]) if peer and peer[0] else NO_ADDRESS


@lru_cache(maxsize=1024)
def client_of(address: str) -> str:
    """Return the client identity of an address: IPv6 addresses of one subnet (/64) are one client."""
    parsed = read_address(address)
    if not isinstance(parsed, IPv6Address):
        return address
    return str(IPv6Network((int(parsed) >> _SUBNET_BITS << _SUBNET_BITS, _SUBNET_BITS)))


def read_address(text: str) -> Address | None:
    """Parse an address, optionally with a port (`192.0.2.1:80`, `[2001:db8::1]:80`); None if invalid.

    IPv4-mapped IPv6 addresses (`::ffff:192.0.2.1`) become IPv4 addresses.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        # A zone (`fe80::1%eth0`) means something only on the machine that added it.
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


@lru_cache(maxsize=1024)
def _normalised(host: str) -> str:
    return str(read_address(host) or host)


def _last_entries(headers: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """List the last entries of X-Forwarded-For, last one first; repeated headers form one list."""
    entries: list[str] = []
    for name, value in reversed(headers):
        if name == _HEADER and (left := _MAX_HOPS - len(entries)) > 0:
            parts = value.rsplit(b",", left)[-left:]
            entries += [part.strip().decode("latin-1") for part in reversed(parts)]
    return entries
