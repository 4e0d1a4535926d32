"""Whose request is it? For fairness: by key where there are keys, else by address."""

from ipaddress import IPv6Address, ip_address

from starlette.types import Scope

CLIENT = "client"
"""Under this name the request's scope says who it is from."""
# Of an IPv6 address, the network that one subscriber is given.
_NETWORK_BYTES = 8


def client_of(scope: Scope) -> str:
    """Name the client of a request: equal for all that get one share together."""
    client: str | None = scope.get("state", {}).get(CLIENT)
    if client is None:
        client = scope["client"][0] if scope.get("client") else ""
    return _network(client) if ":" in client else client


def _network(client: str) -> str:
    """Take all addresses of a subscriber's IPv6 network for one client; leave anything else as it is."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return client
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else f"{address.packed[:_NETWORK_BYTES].hex()}::/64"
