"""Whose request it is: addresses, and what trusted proxies say of them."""

import asyncio
import time
from typing import Any

import pytest

from service.app import create_app
from service.clients.addresses import (
    NO_ADDRESS,
    Peers,
    client_of,
    peer_address,
    read_address,
)
from service.http.request_context import context_of
from service.setting_values import parse_proxies
from service.settings import Settings
from tests.support.serving import run_command

Headers = list[tuple[bytes, bytes]]

PROXY, CLIENTS = "10.0.0.7", "198.51.100.1"


def scope_of(peer: str | None, *forwarded: str) -> dict[str, Any]:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    client = None if peer is None else (peer, 1234)
    return {"type": "http", "client": client, "headers": [(b"host", b"a"), *headers, (b"accept", b"*/*")]}


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("", []),
        (" , ", []),
        ("10.0.0.0/8, ::1", ["10.0.0.0/8", "::1/128"]),
        ("10.0.0.7,fd00::/8", ["10.0.0.7/32", "fd00::/8"]),
    ],
)
def test_proxies_are_addresses_and_networks(text: str, networks: list[str]) -> None:
    """Separated by commas, of both families."""
    assert list(map(str, parse_proxies(text))) == networks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10.0.0.1/8", "use 10.0.0.0/8"),
        ("proxy.example", "'proxy.example' is neither an address nor a network"),
        ("*", "'*' is neither an address nor a network"),
        ("10.0.0.0/8;::1", "neither"),
    ],
)
def test_a_proxy_that_is_none_is_named(text: str, says: str) -> None:
    """In a sentence that says what to write."""
    with pytest.raises(ValueError, match=says.replace("*", r"\*")):
        parse_proxies(text)


@pytest.mark.thorough
def test_a_proxy_that_is_none_ends_the_start() -> None:
    """Exit code 2 and a sentence that names the setting."""
    code, out, err = run_command(trusted_proxies="10.0.0.1/8")
    assert (code, out) == (2, "")
    assert "HEADLIGHT_TRUSTED_PROXIES is '10.0.0.1/8'" in err
    assert "use 10.0.0.0/8" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", None),
        ("unknown", None),
        ("_hidden", None),
        ("192.0.2", None),
        ("192.0.2.1\n", None),
        ("1" * 60_000, None),
    ],
)
def test_addresses_are_read_as_proxies_write_them(text: str, address: str | None) -> None:
    """With ports and without, IPv4 also where it is written as IPv6; anything else is none."""
    read = read_address(text)
    assert (None if read is None else str(read)) == address


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        (PROXY, ["198.51.100.1"], "198.51.100.1"),
        (PROXY, ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        (PROXY, ["198.51.100.1, 10.1.1.1, 10.2.2.2"], "198.51.100.1"),
        (PROXY, ["1.1.1.1", "198.51.100.1", "10.1.1.1"], "198.51.100.1"),
        (PROXY, ["1.1.1.1 ,\t198.51.100.1:5000 "], "198.51.100.1"),
        (PROXY, ["[2001:db8::1]:5000"], "2001:db8::1"),
        (PROXY, ["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
        (PROXY, ["198.51.100.1, unknown, 10.2.2.2"], "10.2.2.2"),
        (PROXY, ["198.51.100.1, unknown"], None),
        (PROXY, [""], None),
        (PROXY, [], None),
        ("::ffff:10.0.0.7", ["198.51.100.1"], "198.51.100.1"),
        ("::1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        (CLIENTS, ["10.9.9.9"], None),
        (None, ["198.51.100.1"], None),
        ("", ["198.51.100.1"], None),
    ],
)
def test_only_trusted_proxies_are_believed(
    peer: str | None, forwarded: list[str], address: str | None
) -> None:
    """The rightmost address that is no trusted proxy's; the client's own word, left of it, never counts."""
    assert Peers(parse_proxies("10.0.0.0/8, ::1")).forwarded_for(scope_of(peer, *forwarded)) == address


def test_by_default_no_proxy_is_trusted() -> None:
    """Not even one on the same machine."""
    assert Peers().forwarded_for(scope_of("127.0.0.1", "198.51.100.1")) is None


def test_long_lists_cost_next_to_nothing() -> None:
    """Of 60 KB only the last entries are looked at, however they are spread over headers."""
    peers = Peers(parse_proxies("10.0.0.0/8"))
    lists = [["1.1.1.1," * 7000 + "198.51.100.1"], ["10.0.0.1, " * 6000], [",".join("1" * 30_000)]]
    lists += [["," * 60_000], [" " * 60_000 + ",198.51.100.1"], ["10.1.1.1"] * 256, ["1" * 60_000]]
    for forwarded in lists:
        scope = scope_of(PROXY, *forwarded)
        fastest = min(_seconds(peers, scope) for _ in range(5))
        assert fastest < 0.002, forwarded[0][:50]
    assert peers.forwarded_for(scope_of(PROXY, *lists[0])) == "198.51.100.1"
    assert peers.forwarded_for(scope_of(PROXY, "198.51.100.1", *["10.1.1.1"] * 256)) == "10.1.1.1"


def _seconds(peers: Peers, scope: dict[str, Any]) -> float:
    start = time.perf_counter()
    peers.forwarded_for(scope)
    return time.perf_counter() - start


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        (NO_ADDRESS, NO_ADDRESS),
    ],
)
def test_a_subnet_of_ipv6_is_one_client(address: str, client: str) -> None:
    """Nobody becomes many clients by taking another address of their own subnet."""
    assert client_of(address) == client


def test_the_peer_is_told_as_one_writes_it() -> None:
    """IPv4 on a socket of both families is IPv4; a Unix socket has no address."""
    assert peer_address(scope_of("::ffff:192.0.2.1")) == "192.0.2.1"
    assert peer_address(scope_of("2001:0DB8::1")) == "2001:db8::1"
    assert peer_address(scope_of(None)) == peer_address(scope_of("")) == NO_ADDRESS


async def ask(settings: Settings, scope: dict[str, Any]) -> str:
    """The client that a handler finds; nothing is loaded, so the answer is a 503."""
    app = create_app(settings)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(_: object) -> None:
        return

    scope |= {"method": "POST", "path": "/encode", "query_string": b"", "http_version": "1.1", "state": {}}
    await app(scope, receive, send)
    return context_of(scope).permit.client


def test_every_inference_request_has_its_client() -> None:
    """Its key where keys are required, else its address or subnet, behind a trusted proxy the told one."""
    key = "first-0123456789abcdef"
    open_door, guarded = Settings(), Settings(api_keys=key)
    behind = Settings(trusted_proxies=PROXY)
    bearer = (b"authorization", f"Bearer {key}".encode())
    assert asyncio.run(ask(open_door, scope_of(CLIENTS, "192.0.2.9"))) == CLIENTS
    assert asyncio.run(ask(open_door, scope_of("2001:db8::1"))) == "2001:db8::/64"
    assert asyncio.run(ask(open_door, scope_of(None))) == NO_ADDRESS
    assert asyncio.run(ask(behind, scope_of(PROXY, "192.0.2.9"))) == "192.0.2.9"
    assert asyncio.run(ask(behind, scope_of(PROXY, "2001:db8::1"))) == "2001:db8::/64"
    with_key = scope_of(CLIENTS)
    with_key["headers"].append(bearer)
    assert asyncio.run(ask(guarded, with_key)) == "key:04e08273"
    assert asyncio.run(ask(guarded, scope_of(CLIENTS))) == CLIENTS
