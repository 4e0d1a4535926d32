"""Clients that are late, gone, deaf, or many requests at once."""

from random import Random

from tests.storm.attack import BAD, LATE, OK, SLOW, Attack, End, Kinds, request, route, word

_SMALL = b'{"inputs": "a"}'
_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
_LAST = _LIVEZ.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
_TEXT = b" ".join([b"word"] * 100)
_MAPS = b'{"inputs": "%b", "layers": [0, 1, 2]}' % _TEXT
"""About four megabytes of maps."""
STEPS = 40
"""Pieces of a client that never comes to an end."""


def _whole(random: Random) -> bytes:
    """A good request, small or with a large answer."""
    if random.random() < 0.8:
        return request(b'{"inputs": "%b", "dimensions": 1}' % word(random), path=b"/encode")
    return request(_MAPS, path=b"/attention")


def _slow_head(random: Random) -> Attack:
    begin = b"POST /encode HTTP/1.1\r\nHost: a\r\n"
    lines = [b"%b: %d\r\n" % (word(random), i) for i in range(STEPS)]
    return Attack((begin, *lines), SLOW, pause_s=0.5, end=End.READ_ALL, slow=True)


def _slow_body(random: Random) -> Attack:
    begin = request(length=b"1000", path=route(random))
    return Attack((begin, *[b" "] * STEPS), SLOW, pause_s=0.5, end=End.READ_ALL, slow=True)


def _slow_chunks(random: Random) -> Attack:
    begin = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % route(random)
    return Attack((begin, *[b"1\r\n \r\n"] * STEPS), SLOW, pause_s=0.5, end=End.READ_ALL, slow=True)


def _trickle(random: Random) -> Attack:
    """A good request in many pieces, all in time."""
    sent = request(_SMALL, b"X-Filler: " + word(random, 50))
    step = random.randint(3, 20)
    return Attack(tuple(sent[i : i + step] for i in range(0, len(sent), step)), OK, pause_s=0.005, slow=True)


def _half_closed(random: Random) -> Attack:
    """The client's side is closed somewhere: in the head, in the body, or behind it."""
    sent = request(_SMALL, path=route(random))
    cut = random.choice((random.randrange(1, len(sent)), len(sent)))
    return Attack((sent[:cut],), OK | BAD, least=0, end=End.HALF_CLOSE)


def _reset(random: Random) -> Attack:
    """Gone at any stage: in the head, in the body, while it waits, runs or is answered."""
    sent = _whole(random)
    cut = random.choice((random.randrange(1, len(sent)), len(sent), len(sent)))
    pause = random.choice((0.0, 0.001, 0.01, 0.05))
    return Attack((sent[:cut], b""), frozenset(), least=0, pause_s=pause, end=End.RESET)


def _batch_left(random: Random) -> Attack:
    texts = b", ".join(b'"%b"' % word(random) for _ in range(64))
    sent = request(b'{"inputs": [%b]}' % texts)
    return Attack((sent, b""), frozenset(), least=0, pause_s=random.random() / 20, end=End.RESET)


def _hurried(random: Random) -> Attack:
    texts = b", ".join([b'"%b"' % _TEXT] * random.choice((1, 16)))
    headers = (b"X-Request-Timeout-Ms: %d" % random.choice((1, 1, 2, 5, 20)),)
    return Attack((request(b'{"inputs": [%b], "dimensions": 1}' % texts, *headers),), OK | LATE)


def _pipelined(random: Random) -> Attack:
    count = random.choice((10, 100, 400))
    return Attack((_LIVEZ * count + _LAST,), OK, least=count + 1, most=count + 1, end=End.READ_ALL)


def _pipelined_work(random: Random) -> Attack:
    count = random.randint(2, 12)
    return Attack((request(_SMALL) * count,), OK, least=count, most=count)


def _pipelined_and_left(random: Random) -> Attack:
    sent = request(_SMALL) * random.randint(2, 50)
    return Attack((sent, b""), OK, least=0, pause_s=random.random() / 20, end=End.RESET)


def _deaf(random: Random) -> Attack:
    """Asks for megabytes and reads none of them."""
    return Attack((request(_MAPS, path=b"/attention"),), OK, least=0, end=End.LINGER, slow=True)


def _deaf_to_many(random: Random) -> Attack:
    """Pipelines a thousand requests, and reads no answer."""
    return Attack((_LIVEZ * 1000,), OK, least=0, end=End.LINGER, slow=True)


CLIENTS: Kinds = {
    "a piece of a request at a time": _trickle,
    "half-closed": _half_closed,
    "reset": _reset,
    "a batch that nobody waits for": _batch_left,
    "a deadline of milliseconds": _hurried,
    "pipelined": _pipelined,
    "pipelined work": _pipelined_work,
    "pipelined and left": _pipelined_and_left,
}
SLOW_CLIENTS: Kinds = {
    "a head that never ends": _slow_head,
    "a body that never ends": _slow_body,
    "chunks now and then": _slow_chunks,
    "silence": lambda _: Attack((), frozenset(), least=0, end=End.READ_ALL, slow=True),
    "deaf": _deaf,
    "deaf to a thousand": _deaf_to_many,
}
