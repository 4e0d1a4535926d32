"""Bodies whose length is a lie, is said twice, or never comes to an end; and requests smuggled in them."""

from random import Random

from tests.storm.attack import (
    BAD,
    LARGE,
    OK,
    REFUSED,
    UNSERVED,
    Attack,
    End,
    Kinds,
    once,
    request,
    route,
    word,
)

GOOD = b'{"inputs": "a", "dimensions": 1}'
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
"""Inside another request's body: an answer to it is found by its path."""
LIMIT = 2 * 2**20
"""The service's limit of a body."""

_LENGTHS = (
    b"-1",
    b"+5",
    b"0x20",
    b"32, 32",
    b"1e2",
    b"",
    b"9" * 30,
    b"32 32",
    b"\xb2",
    b"3_2",
    b"32.0",
    b"32;",
)
_TRANSFERS = (
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding:\r\n chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    b'Transfer-Encoding: "chunked"',
)
_BOTH = (
    b"Transfer-Encoding: chunked",
    b"transfer-ENCODING:chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    *_TRANSFERS,
)
_CHUNKS = (
    b"not a size\r\n",
    b"-1\r\na\r\n",
    b"0x5\r\nhello\r\n",
    b"F" * 17 + b"\r\na",
    b"5\r\nhelloworld\r\n",
    b" 5\r\nhello\r\n",
    b"5 ;a\r\nhello\r\n0\r\n\r\n",
    b"\r\n\r\n",
    b"5\nhello\n",
    b"5;\x00\r\nhello\r\n",
)


def chunked(*chunks: bytes, path: bytes = b"/encode", headers: tuple[bytes, ...] = ()) -> bytes:
    """A request in chunks, without its end."""
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: a", b"Transfer-Encoding: chunked", *headers]
    framed = (b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"\r\n".join([*lines, b"", b""]) + b"".join(framed)


def _twice(random: Random) -> Attack:
    first, second = random.sample((b"0", b"5", b"32", b"100"), 2)
    sent = request(GOOD + SMUGGLED, b"Content-Length: " + second, length=first)
    return once(sent, BAD, end=End.READ_ALL)


def _both(random: Random) -> Attack:
    """Length and chunks at once, in either order: refused, and nothing behind it is taken for a request."""
    transfer = random.choice(_BOTH)
    body = b"0\r\n\r\n" + SMUGGLED
    length = random.choice((b"%d" % len(body), b"5", b"0"))
    first = request(body, transfer, length=length)
    if random.random() < 0.5:
        lines = [b"POST /encode HTTP/1.1", b"Host: a", transfer, b"Content-Length: " + length, b"", b""]
        first = b"\r\n".join(lines) + body
    return once(first, BAD, end=End.READ_ALL)


def _transfer(random: Random) -> Attack:
    lines = [b"POST /encode HTTP/1.1", b"Host: a", random.choice(_TRANSFERS), b"", b""]
    sent = b"\r\n".join(lines) + b"0\r\n\r\n" + SMUGGLED
    return once(sent, BAD | UNSERVED, end=End.READ_ALL)


def _shorter(random: Random) -> Attack:
    """The body is longer than it says: the rest is no request."""
    sent = request(GOOD, length=b"%d" % random.randrange(1, len(GOOD)))
    return Attack((sent,), BAD, least=2, most=2, end=End.READ_ALL)


def _longer(random: Random) -> Attack:
    """The body is shorter than it says, and the client waits, or closes its side."""
    sent = request(GOOD, length=b"%d" % random.randrange(100, 10_000))
    end = random.choice((End.HALF_CLOSE, End.RESET))
    return Attack((sent,), frozenset(), least=0, end=end)


def _swallowed(random: Random) -> Attack:
    """What a client meant as a second request is the first one's body, and only that."""
    sent = request(SMUGGLED, path=route(random)) + request(GOOD, b"Connection: close")
    return Attack((sent,), OK | BAD, least=2, most=2, end=End.READ_ALL)


def _body_of_get(random: Random) -> Attack:
    path = random.choice((b"/livez", b"/info", b"/metrics"))
    size = random.choice((1, 1000, 300_000))
    body = (SMUGGLED * (size // len(SMUGGLED) + 1))[:size]
    sent = request(body, path=path, method=b"GET") + request(GOOD, b"Connection: close")
    return Attack((sent,), OK, least=2, most=2, end=End.READ_ALL)


def _chunks_of_one(random: Random) -> Attack:
    body = b'{"inputs": "%b", "dimensions": 1}' % word(random, random.choice((30, 3000)))
    sent = chunked(*(body[i : i + 1] for i in range(len(body)))) + b"0\r\n\r\n"
    return once(sent, OK)


def _extensions(random: Random) -> Attack:
    extension = b";" + word(random) * random.choice((1, 1000, 20_000)) + b"=1"
    sent = chunked() + b"%x%b\r\n%b\r\n0\r\n\r\n" % (len(GOOD), extension, GOOD)
    return Attack((sent,), OK | BAD, least=0)


def _trailers(random: Random) -> Attack:
    """What follows the last chunk changes nothing."""
    trailers = b"Content-Length: 5\r\nTransfer-Encoding: x\r\nX-Request-ID: a b\r\n" * random.randint(1, 5)
    sent = chunked(GOOD, headers=(b"Connection: close",)) + b"0\r\n" + trailers + b"\r\n"
    return Attack((sent,), OK | BAD, most=2, end=End.READ_ALL)


def _endless_trailer(random: Random) -> Attack:
    begin = chunked(GOOD) + b"0\r\n" + word(random) + b": "
    return Attack((begin, *[b"a" * 65_536] * 16), BAD, least=0, end=End.READ_ALL)


def _endless_chunks(random: Random) -> Attack:
    """Three megabytes in chunks without an end: refused, and read no longer than it is worth."""
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    return Attack((chunked(word(random)), *[piece] * 48), LARGE, least=0)


def _declared(random: Random) -> Attack:
    size = random.choice((LIMIT + 1, 10 * LIMIT, 2**31, 2**63 - 1))
    return Attack((request(b"{", length=b"%d" % size, path=route(random)),), LARGE)


FRAMING: Kinds = {
    "a length that is none": lambda r: once(
        request(GOOD + SMUGGLED, length=r.choice(_LENGTHS)), BAD, end=End.READ_ALL
    ),
    "two lengths": _twice,
    "a length and chunks": _both,
    "an unknown transfer coding": _transfer,
    "a body longer than its length": _shorter,
    "a body shorter than its length": _longer,
    "a request in a body": _swallowed,
    "a body of a GET": _body_of_get,
    "chunks of one byte": _chunks_of_one,
    "chunk extensions": _extensions,
    "trailers": _trailers,
    "a trailer that never ends": _endless_trailer,
    "broken chunks": lambda r: Attack(
        (chunked() + r.choice(_CHUNKS) + SMUGGLED,), BAD, least=1, most=2, end=End.READ_ALL
    ),
    "declared too large": _declared,
    "no body at all": lambda r: once(b"POST %b HTTP/1.1\r\nHost: a\r\n\r\n" % route(r), BAD),
    "an old version": lambda r: once(
        request(GOOD).replace(b"1.1", r.choice((b"1.0", b"0.9", b"2.0")), 1),
        OK | UNSERVED,
        end=End.READ_ALL,
    ),
    "no host": lambda r: once(
        request(GOOD, path=route(r)).replace(b"Host: a\r\n", b""), BAD, end=End.READ_ALL
    ),
}
HEAVY_FRAMING: Kinds = {
    "a body too large": lambda r: once(
        request(b'{"inputs": "' + word(r, 1) * LIMIT + b'"}', path=route(r)), LARGE, least=0
    ),
    "chunks that never end": _endless_chunks,
    "eight pieces of a body that is refused": lambda r: Attack(
        (request(length=b"%d" % (4 * LIMIT)), *[b" " * 2**20] * 8), LARGE | REFUSED, least=0
    ),
}
