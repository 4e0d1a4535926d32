"""The attacks of `worst_requests.py`: the most expensive valid requests."""

import json
from dataclasses import dataclass

LARGEST = 2 * 2**20 - 200
"""Bytes of a text that, with the rest of its request, stays within the default limit of a body."""


@dataclass(frozen=True)
class Attack:
    """A request that `workers` clients repeat; what they do with the answer.

    `read` is in bytes per second; 0 reads nothing for half a minute, None reads as fast as it comes. `stop`
    bytes of the end are never sent. `leave_s` is after how long the client closes the connection.
    """

    body: bytes
    workers: int = 1
    path: str = "/encode"
    accept: str = "application/json"
    read: int | None = None
    stop: int = 0
    leave_s: float | None = None

    @property
    def request(self) -> bytes:
        """The bytes that are sent."""
        head = f"POST {self.path} HTTP/1.1\r\nHost: a\r\nAccept: {self.accept}\r\n"
        head += f"Content-Length: {len(self.body)}\r\n\r\n"
        whole = head.encode() + self.body
        return whole[: len(whole) - self.stop]


def body_of(inputs: object, **options: object) -> bytes:
    """Write the body of a request."""
    return json.dumps({"inputs": inputs, **options}, ensure_ascii=False).encode()


def _repeated(text: str) -> str:
    return text * (LARGEST // len(text.encode()))


def attacks() -> dict[str, Attack]:
    """Make every kind of attack, by its name."""
    prose = "The quick brown fox jumps over the lazy dog. "
    maps, more = body_of(["word " * 300] * 3), ["word " * 100] * 40
    layers = body_of(["word " * 600] * 3, outputs=["tokens"], layers=list(range(-3, 0)))
    return {
        "punctuation": Attack(body_of(_repeated("!")), 3),
        "long words": Attack(body_of(_repeated("z" * 99 + "q ")), 3),
        "cjk": Attack(body_of(_repeated("中")), 2),
        "one word": Attack(body_of(_repeated("z")), 1),
        "emoji": Attack(body_of(_repeated("😀")), 1),
        "punctuation beyond ASCII": Attack(body_of(_repeated("¡“ab”")), 2),
        "rare ideographs": Attack(body_of(_repeated("㐀")), 1),
        "marks": Attack(body_of(_repeated("e\u0301\u0323")), 1),
        "control characters": Attack(body_of("\x01" * (LARGEST // 6)), 1),
        "prose, cut left": Attack(body_of(_repeated(prose), truncation_side="left"), 2),
        "256 long texts": Attack(body_of([prose * 180] * 256), 3),
        "256 pairs": Attack(body_of([[prose * 90, "?" * 4000]] * 256), 2),
        "a long pair": Attack(body_of([["," * (LARGEST // 2), "." * (LARGEST // 2)]]), 1),
        "a prompt before each": Attack(body_of(["a"] * 256, prompt="! " * 4000), 1),
        "256 vectors": Attack(body_of(["word " * 40] * 256), 2),
        "maps, unread": Attack(maps, 12, "/attention", "application/x-npz", read=0),
        "maps in JSON, unread": Attack(body_of(["word " * 300] * 3, decimals=1), 4, "/attention", read=0),
        "maps, read slowly": Attack(maps, 6, "/attention", "application/x-npz", read=40_000),
        "maps, ndjson": Attack(
            body_of(more, decimals=1, layers=[-1]), 2, "/attention", "application/x-ndjson"
        ),
        "maps of 40": Attack(body_of(more, layers=[0]), 2, "/attention", "application/x-safetensors"),
        "token vectors": Attack(layers, 3),
        "token vectors, unread": Attack(layers, 4, read=0),
        "stalled bodies": Attack(body_of(_repeated("a ")), 300, stop=1, read=0),
        "a name of 2 MB": Attack(json.dumps({"inputs": "a", "n" * LARGEST: 1}).encode(), 3),
        "a model of 2 MB": Attack(body_of("a", model="m" * LARGEST), 2),
        "a prompt_name of 2 MB, unread": Attack(
            body_of("a", prompt_name="\x01" * (LARGEST // 6)), 20, read=0
        ),
        "240,000 pairs": Attack(body_of([["", ""]] * 240_000), 1),
        "empty objects": Attack(b'{"inputs":[' + b"{}," * 650_000 + b"{}]}", 2),
        "clients that leave": Attack(body_of(_repeated("z" * 99 + "q ")), 3, leave_s=0.5),
    }
