"""What a refusal repeats of a request is cut to a readable length, whatever was sent."""

import json

import pytest

from tests.support.serving import Json, Service, request_bytes

MUCH = 1_900_000
MOST = 4096
NAME = "n" * MUCH


def body(**fields: object) -> bytes:
    return json.dumps({"inputs": "a", **fields}).encode()


REFUSED = {
    "a field": request_bytes(body=body(**{NAME: 1})),
    "a field of control characters": request_bytes(body=body(**{"\x01" * 300_000: 1})),
    "many fields": request_bytes(body=body(**{NAME[:30_000] + str(i): 1 for i in range(60)})),
    "a model": request_bytes(body=body(model=NAME)),
    "a model of control characters": request_bytes(body=body(model="\x01" * 300_000)),
    "a prompt_name": request_bytes(body=body(prompt_name=NAME)),
    "a choice": request_bytes("/attention", body=body(weights=NAME)),
    "a list": request_bytes("/attention", body=body(layers=[NAME])),
    "a path": request_bytes("/" + NAME[:60_000], b"{}"),
    "a path with a method": request_bytes("/docs/" + NAME[:60_000], b"", method="GET"),
    "Accept": request_bytes(body=body(), headers=[f"Accept: {NAME[:60_000]}"]),
    "Content-Type": request_bytes(body=body(), headers=[f"Content-Type: {NAME[:60_000]}"]),
    "Content-Encoding": request_bytes(body=body(), headers=[f"Content-Encoding: {NAME[:60_000]}"]),
    "a deadline": request_bytes(body=body(), headers=[f"X-Request-Timeout-Ms: {NAME[:60_000]}"]),
    "an id": request_bytes("/no", headers=[f"X-Request-ID: {NAME[:60_000]}"]),
    "a type of arrays": request_bytes(
        f"/encode?dtype={NAME[:60_000]}", body(), ["Accept: application/x-npz"]
    ),
    "not JSON": request_bytes(body=b'{"inputs": ' + NAME.encode()),
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_short(plain: Service, sent: bytes) -> None:
    """Of two megabytes of a client's own words a hundred characters come back, in a sentence."""
    answer = plain.raw(sent)
    document: Json = answer.json()
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < MOST, len(answer.content)
    assert document["detail"][-1] in ".]"


def test_what_is_short_is_repeated_whole(plain: Service) -> None:
    """A hundred characters are what a person reads."""
    answer = plain.raw(request_bytes(body=body(model="m" * 100)))
    assert answer.json()["actual"] == "m" * 100
    answer = plain.raw(request_bytes(body=body(model="m" * 101)))
    assert answer.json()["actual"] == "m" * 100 + "…"
    assert f'The model "{"m" * 100}…" is not served here' in answer.json()["detail"]
