"""Clients that were refused and come back when they were told to are served before those who never waited."""

import threading
import time

import pytest

from tests.support.serving import Service, post, read_answer, request_bytes, serve

# Of a queue of 2,048 tokens, six fill it; each takes a twentieth of a second or more.
BODY = b'{"inputs": ["%s"]}' % b'", "'.join([b"word " * 60] * 6)
CLIENTS, LONGEST_S = 12, 60.0
# Where nothing else runs, nine tenths of the times are true; if none went first, a twentieth.
ENOUGH, TRUE = 40, 0.6


def ask_again_and_again(service: Service, until: float, retried: list[int], *, closing: bool) -> None:
    """Send a request over and over, and after a refusal when it says; collects the statuses of the latter."""
    connection, returns = service.connect(), False
    while len(retried) < ENOUGH and time.monotonic() < until:
        connection.sendall(request_bytes(body=BODY))
        answer = read_answer(connection)
        if returns:
            retried.append(answer.status_code)
        returns = answer.status_code == 429
        if returns:
            if closing:
                connection.close()
            time.sleep(int(answer.headers["retry-after-ms"]) / 1000)
            if closing:
                connection = service.connect()
    connection.close()


@pytest.mark.parametrize(
    "closing",
    [
        pytest.param(False, id="the same connection"),
        pytest.param(True, id="another connection", marks=pytest.mark.thorough),
    ],
)
def test_they_find_the_room_that_they_were_promised(closing: bool) -> None:
    """Twelve clients of which half would fill the queue: those that were just answered ask again at once."""
    retried: list[int] = []
    with serve(max_queue_tokens=2048, processes=1, threads=1) as service:
        post(service, {"inputs": ["word " * 60] * 6})
        until = time.monotonic() + LONGEST_S
        clients = [
            threading.Thread(
                target=ask_again_and_again, args=(service, until, retried), kwargs={"closing": closing}
            )
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join(2 * LONGEST_S)
    assert len(retried) >= ENOUGH
    assert set(retried) <= {200, 429}
    assert retried.count(200) >= TRUE * len(retried)
