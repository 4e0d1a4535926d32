"""What the log says of each request, and what of it is believed."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from service.telemetry.trace_context import read_traceparent
from tests.support.serving import (
    LONG,
    NDJSON,
    NPZ,
    ROOT,
    ROUTES,
    Json,
    Service,
    read_answer,
    request_bytes,
    serve,
)

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
SMALL = {"/encode": {}, "/attention": {"layers": [0], "heads": [0], "queries": [0]}}


@pytest.fixture(scope="module")
def proxied() -> Iterator[Service]:
    """A service that takes this machine for a trusted proxy."""
    with serve(trusted_proxies="127.0.0.0/8, 10.0.0.0/8", log_format="json") as started:
        yield started


def logged(service: Service, name: str, path: str = "/encode", **headers: str) -> Json:
    """The line of a request with these headers, whose names are written with _ here."""
    sent = {key.replace("_", "-"): value for key, value in headers.items()}
    body = {"inputs": "a", **SMALL[path]}
    answer = service.http.post(path, json=body, headers={"X-Request-ID": name, **sent})
    assert answer.status_code == 200
    return service.line(name)


@pytest.mark.parametrize("accept", ["application/json", NPZ, NDJSON])
@pytest.mark.parametrize("path", ROUTES)
def test_a_line_says_what_was_asked_and_sent(proxied: Service, path: str, accept: str) -> None:
    """Model, inputs, tokens that ran, and the bytes of both bodies, also of answers that come in pieces."""
    content = json.dumps({"inputs": ["one", "two words", LONG], **SMALL[path]}).encode()
    name = f"sizes-{path[1:]}-{accept[14:]}"
    headers = {"X-Request-ID": name, "Accept": accept, "Content-Type": "application/json"}
    answer = proxied.http.post(path, content=content, headers=headers)
    line = proxied.line(name)
    assert (line["model"], line["inputs"], line["tokens"]) == ("all-MiniLM-L6-v2", 3, 3 + 4 + 256)
    assert (line["bytes_in"], line["bytes_out"]) == (len(content), answer.num_bytes_downloaded)
    assert line["peer"] == "127.0.0.1"
    assert not {"forwarded_for", "key", "trace_id", "span_id"} & line.keys()


def test_a_refusal_has_the_sizes_that_there_were(strict: Service) -> None:
    """A model that nobody serves, a client's own text, is not repeated; an answer to HEAD has no body."""
    body = json.dumps({"inputs": ["a", "b"], "model": "not served"}).encode()
    headers = {"Content-Type": "application/json"}
    answer = strict.http.post("/encode", content=body, headers=headers | {"X-Request-ID": "size-1"})
    line = strict.line("size-1")
    assert (line["status"], line["bytes_in"]) == (404, len(body))
    assert line["bytes_out"] == len(answer.content)
    assert not {"model", "inputs", "tokens"} & line.keys()
    strict.http.head("/encode", headers={"X-Request-ID": "size-2"})
    assert (strict.line("size-2")["status"], strict.line("size-2")["bytes_out"]) == (405, 0)


def test_what_was_cut_off_counts_as_far_as_it_came(proxied: Service) -> None:
    """A client that goes in the middle of its body, and one that goes in the middle of its answer."""
    head = request_bytes(headers=["X-Request-ID: cut-1"]).replace(b"Content-Length: 0", b"Content-Length: 99")
    with proxied.connect() as connection:
        connection.sendall(head + b'{"inputs": ')
        connection.shutdown(socket.SHUT_WR)
    line = proxied.line("cut-1")
    assert (line["status"], line["bytes_in"], line["bytes_out"]) == (499, 11, 0)
    body = json.dumps({"inputs": LONG}).encode()
    with closing(proxied.connect()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request_bytes("/attention", body, ["X-Request-ID: cut-2"]))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    line = proxied.line("cut-2")
    assert line["bytes_in"] == len(body)
    assert 0 < line["bytes_out"] < 72 * 256 * 256 * 2  # each number of the maps has a digit and a comma


@pytest.mark.parametrize(
    ("name", "headers", "address"),
    [
        ("one", {"X_Forwarded_For": "198.51.100.1"}, "198.51.100.1"),
        ("forged", {"X_Forwarded_For": "1.1.1.1, 198.51.100.1, 10.0.0.7"}, "198.51.100.1"),
        ("v6", {"X_Forwarded_For": "[2001:db8::1]:5000"}, "2001:db8::1"),
        ("junk", {"X_Forwarded_For": 'x" key=1\\n{'}, None),
        ("another", {"Forwarded": "for=198.51.100.1", "X_Real_IP": "198.51.100.1"}, None),
        ("none", {}, None),
        ("long", {"X_Forwarded_For": "1.1.1.1, " * 6000 + "198.51.100.1"}, "198.51.100.1"),
    ],
)
def test_a_trusted_proxy_tells_for_whom_it_asks(
    proxied: Service, name: str, headers: dict[str, str], address: str | None
) -> None:
    """Only addresses, of which the client's own word is none; the connection's peer is told as well."""
    line = logged(proxied, f"for-{name}", **headers)
    assert line.get("forwarded_for") == address
    assert line["peer"] == "127.0.0.1"


def test_nobody_else_is_believed(strict: Service) -> None:
    """Not even a client on the same machine: by default there is no trusted proxy."""
    strict.http.post(
        "/encode", json={"inputs": "a"}, headers={"X-Request-ID": "for-1", "X-Forwarded-For": "1.1.1.1"}
    )
    assert "forwarded_for" not in strict.line("for-1")
    assert "1.1.1.1" not in strict.log


TRACES: dict[str, tuple[list[str], bool]] = {
    "sampled": ([PARENT], True),
    "not sampled": ([PARENT[:-1] + "0"], True),
    "a later version": (["01" + PARENT[2:] + "-more"], True),
    "version ff": (["ff" + PARENT[2:]], False),
    "more than there is in version 0": ([PARENT + "-more"], False),
    "upper case": ([PARENT.upper()], False),
    "no trace": ([PARENT.replace(TRACE_ID, "0" * 32)], False),
    "no span": ([PARENT.replace(SPAN_ID, "0" * 16)], False),
    "a line's end": ([PARENT + "\n"], False),
    "too short": ([PARENT[:-1]], False),
    "other characters": ([PARENT.replace("4bf9", "4bg9")], False),
    "two": ([PARENT, PARENT], False),
    "none": ([], False),
    "far too long": (["01" + PARENT[2:] + "-" + "a" * 60_000], False),
}


@pytest.mark.parametrize("case", TRACES)
def test_a_traceparent_is_valid_or_ignored(case: str) -> None:
    """As W3C Trace Context has it, and no other form."""
    values, valid = TRACES[case]
    parent = read_traceparent([value.encode() for value in values], [b"a=1"])
    assert (parent is not None) == valid
    if parent is not None:
        assert (parent.trace_id, parent.span_id) == (int(TRACE_ID, 16), int(SPAN_ID, 16))
        assert parent.trace_state.to_header() == "a=1"
        assert parent.trace_flags.sampled == (case != "not sampled")


def test_a_line_has_the_ids_of_its_trace(proxied: Service) -> None:
    """Those of a valid traceparent; of one that is not, nothing."""
    line = logged(proxied, "trace-1", traceparent=PARENT)
    assert (line["trace_id"], line["span_id"]) == (TRACE_ID, SPAN_ID)
    line = logged(proxied, "trace-2", traceparent=PARENT.upper())
    assert not {"trace_id", "span_id"} & line.keys()


def test_a_line_of_text_is_short_and_whole(several: Service) -> None:
    """What happened, then what is known of it as name=value, in one line."""
    several.http.post(
        "/encode", json={"inputs": ["a", "b"]}, headers={"X-Request-ID": "text-1", "traceparent": PARENT}
    )
    with several.connect() as connection:  # a request of its own, so that the line before is written
        connection.sendall(request_bytes("/livez", method="GET"))
        read_answer(connection, "GET")
    (line,) = [line for line in several.log.splitlines() if line.endswith("id=text-1")]
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d INFO    POST /encode 200 in [\d.]+ ms model=mini inputs=2 tokens=6 "
        rf"in=\d+ out=\d+ peer=127\.0\.0\.1 trace={TRACE_ID} id=text-1",
        line,
    )


def test_every_field_of_a_line_is_documented(proxied: Service) -> None:
    """docs/monitoring.md has a row for each, and none for what is not there."""
    monitoring = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    table = monitoring.partition("\n## Logs\n")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", table, flags=re.MULTILINE))))
    line = logged(proxied, "fields", traceparent=PARENT, X_Forwarded_For="198.51.100.1")
    proxied.http.post("/encode", json={"inputs": []}, headers={"X-Request-ID": "fields-of-refusals"})
    proxied.http.get("/quux", headers={"X-Request-ID": "fields-of-paths"})
    refused, unknown = proxied.line("fields-of-refusals"), proxied.line("fields-of-paths")
    assert documented == line.keys() | refused.keys() | unknown.keys() | {"key", "exception"}
