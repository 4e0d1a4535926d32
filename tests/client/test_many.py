"""Calls of the Python client that take several requests: in order, some at a time, and how they end early."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headlight_client import AsyncHeadlight, Headlight, HeadlightConnectionError, HeadlightError
from service.engine.admission import DeadlineTooShort
from service.refusals import deadline_too_short
from tests.support.serving import ROOT, Service
from tests.support.stand_in import Answering, Received, Reply, refused, stand_in

pytestmark = pytest.mark.alone

SENTENCES = [f"{'very ' * (i % 7)}long sentence number {i}" for i in range(30)]
INFO = Reply(
    pieces=[
        json.dumps(
            {
                "version": "1",
                "models": [{"name": "m", "max_length": 256, "max_queue_tokens": 65536}],
                "limits": {"max_inputs": 100, "max_body_bytes": 2097152},
            }
        ).encode()
    ]
)
INFORMED = {"/info": INFO}


def echo(received: Received) -> Reply:
    """Answer as the service would; the vector of a text is the number that it is."""
    data = [
        {
            "index": i,
            "tokens": ["a"],
            "token_ids": [1],
            "offsets": [[0, 1]],
            "word_ids": [0],
            "segment_ids": [0],
            "special": [False],
            "truncated": False,
            "original_length": 1,
            "embedding": [float(text)],
        }
        for i, text in enumerate(received.body["inputs"])
    ]
    body = {"model": "m", "data": data, "usage": {"input_tokens": len(data)}}
    headers = {"Content-Type": "application/json", "X-Request-ID": f"r{received.body['inputs'][0]}"}
    return Reply(pieces=[json.dumps(body).encode()], headers=headers)


def numbers(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def failing(when: Callable[[list[str]], bool], reply: Answering) -> Answering:
    """Answer requests whose inputs are so with `reply`, and echo the others."""

    def answer(received: Received) -> Reply:
        chosen = reply if when(received.body["inputs"]) else echo
        return chosen if isinstance(chosen, Reply) else chosen(received)

    return answer


Call = Callable[[str], Any]
"""Encodes something at a URL."""


def encode(url: str, inputs: Any, *, concurrency: int = 4) -> Any:
    """Encode with a client that is closed afterwards."""
    with Headlight(url, concurrency=concurrency) as client:
        return client.encode(inputs)


def stream(url: str, inputs: Any) -> Any:
    """Encode with a client that gives one input at a time, and is closed afterwards."""
    with Headlight(url) as client:
        return list(client.stream_encode(inputs))


def ask(url: str, inputs: Any, *, concurrency: int = 4) -> Any:
    """Encode with the asynchronous client."""

    async def run() -> Any:
        async with AsyncHeadlight(url, concurrency=concurrency) as client:
            return await client.encode(inputs)

    return asyncio.run(run())


def test_any_number_of_texts_gets_the_answers_of_each(strict: Service) -> None:
    """A service that takes 4 texts of 4000 bytes a request answers 30, in order, with the numbers of each."""
    with Headlight(strict.url, concurrency=3) as client:
        alone = [client.encode(text) for text in SENTENCES[:5]]
        answer = client.encode(SENTENCES)
        streamed = list(client.stream_encode(SENTENCES))
        maps = client.attention(SENTENCES, layers=[2], heads=[1], queries=[0])
    assert [item.index for item in answer] == list(range(30))
    assert [item.tokens[-2] for item in answer] == [str(i) for i in range(30)]
    assert answer.usage == {"input_tokens": sum(len(item.tokens) for item in answer)}
    assert len(set(answer.request_ids)) == len(answer.request_ids) >= 8
    assert answer.embeddings.shape == (30, 384)
    assert answer.embeddings.dtype == np.float32
    assert answer.max_error == 0.0
    for (lone,), row in zip(alone, answer.embeddings, strict=False):
        assert lone.embedding is not None
        assert np.abs(lone.embedding - row).max() <= 2e-6
    assert sorted(item.index for item in streamed) == list(range(30))
    assert all(item.tokens == answer[item.index].tokens for item in streamed)
    assert [item.tokens for item in maps] == [item.tokens for item in answer]
    assert [item.index for item in maps] == list(range(30))
    assert repr(answer).startswith("Answer(model='all-MiniLM-L6-v2', items=30 × Encoded, ")


def test_answers_that_would_be_too_large_are_asked_for_in_parts(strict: Service) -> None:
    """What the service bounds by the bytes of its answer comes whole all the same, from both clients."""
    texts = ["word " * 20] * 4
    with Headlight(strict.url) as client:
        whole = client.attention(texts, layers=[0, 1, 2, 3], heads=[0, 1])
        streamed = list(client.stream_attention(texts, layers=[0, 1], heads=[0, 1]))
        with pytest.raises(HeadlightError, match=r"The response could have .*\[input 1\]$") as raised:
            client.attention(["short", "word " * 200])
    assert [item.index for item in whole] == [0, 1, 2, 3]
    assert len(whole.request_ids) > 1
    assert [item.index for item in streamed] == [0, 1, 2, 3]
    assert (raised.value.status, raised.value.rows) == (413, range(1, 2))


def test_both_clients_split_alike() -> None:
    """500 inputs go in requests of the limit that /info says, asked for once."""
    calls: list[Call] = [lambda url: encode(url, numbers(500)), lambda url: ask(url, numbers(500))]
    for call in calls:
        with stand_in(echo, gets=INFORMED) as server:
            answer = call(server.url)
        assert answer.embeddings[:, 0].tolist() == list(range(500))
        assert answer.usage == {"input_tokens": 500}
        assert answer.request_ids == ("r0", "r100", "r200", "r300", "r400")
        info, *posts = server.received
        assert info.path == "/info"
        assert sorted(len(post.body["inputs"]) for post in posts) == [100] * 5


def test_a_call_that_fits_is_one_request() -> None:
    """256 texts are sent as they are: no question before them, no second connection."""
    with stand_in(echo) as server, Headlight(server.url) as client:
        client.encode(numbers(256))
    assert len(server.received) == 1


def test_limits_are_learned_once() -> None:
    """A service that takes fewer than is usual refuses the first call, and later ones are split."""
    too_many = refused(413, {"type": "urn:headlight:too-many-inputs", "limit": 100, "actual": 200})
    answer = failing(lambda inputs: len(inputs) > 100, too_many)
    with stand_in(answer, gets=INFORMED) as server, Headlight(server.url) as client:
        for _ in range(3):
            assert client.encode(numbers(200)).embeddings[:, 0].tolist() == list(range(200))
    assert [len(one.body.get("inputs", [])) for one in server.received] == [200, 0, *[100] * 6]


def test_a_service_without_info_gets_what_is_usual() -> None:
    """A gateway that passes /encode alone is used with requests of 256 inputs."""
    with stand_in(echo) as server, Headlight(server.url) as client:
        assert len(client.encode(numbers(600))) == 600
        assert len(client.encode(numbers(600))) == 600
    gets = [one for one in server.received if one.path == "/info"]
    assert len(gets) == 1
    assert max(len(one.body["inputs"]) for one in server.received if one.body) == 256


@pytest.mark.parametrize("concurrency", [1, 3])
def test_so_many_requests_are_on_their_way_at_a_time(concurrency: int) -> None:
    """Never more than `concurrency`, and as many as there is work for."""
    changed, most = threading.Condition(), []
    on_their_way = 0

    def answer(received: Received) -> Reply:
        nonlocal on_their_way
        with changed:
            on_their_way += 1
            most.append(on_their_way)
            changed.notify_all()
            changed.wait_for(lambda: max(most) >= concurrency, 20)  # however late the others come
        time.sleep(0.05)
        with changed:
            on_their_way -= 1
        return echo(received)

    with stand_in(answer, gets=INFORMED) as server, Headlight(server.url, concurrency=concurrency) as client:
        client.encode(numbers(900))
    assert max(most) == concurrency


def test_the_first_failure_ends_the_others_and_names_its_rows() -> None:
    """A request that fails is raised at once, with the inputs it had; no further ones are sent."""
    members = {"detail": "inputs.7 cannot be done.", "field": "inputs.7", "request_id": "r"}
    failure = failing(lambda inputs: inputs[0] == "200", refused(422, members))
    calls: list[Call] = [
        lambda url: encode(url, numbers(2000), concurrency=2),
        lambda url: ask(url, numbers(2000), concurrency=2),
        lambda url: stream(url, numbers(2000)),
    ]
    for call in calls:
        with stand_in(failure, gets=INFORMED) as server, pytest.raises(HeadlightError) as raised:
            call(server.url)
        error = raised.value
        assert (error.status, error.rows, error.field) == (422, range(200, 300), "inputs.207")
        assert str(error) == ("inputs.207 cannot be done. (422 overloaded, request r) [inputs 200 to 299]")
        assert len(server.received) <= 6


def test_a_broken_connection_names_its_rows_too() -> None:
    """Failures that have no answer say which inputs they were about, and the URL."""
    broken = failing(lambda inputs: inputs[0] == "300", Reply(pieces=[b"{"], length=100))
    with (
        stand_in(broken, gets=INFORMED) as server,
        Headlight(server.url) as client,
        pytest.raises(HeadlightConnectionError, match=r"/encode broke .*\[inputs 300 to 399\]$"),
    ):
        client.encode(numbers(500))


def test_a_busy_service_is_waited_for_as_long_as_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals do not end a call while other requests of it are answered, however many there are."""
    seen: dict[str, int] = {}

    def answer(received: Received) -> Reply:
        first = received.body["inputs"][0]
        seen[first] = seen.get(first, 0) + 1
        return echo(received) if seen[first] > 1 else refused(429, Retry_After="0")

    with (
        caplog.at_level(logging.INFO, "headlight_client"),
        stand_in(answer, gets=INFORMED) as server,
        Headlight(server.url, retries=1, concurrency=1) as client,
    ):
        assert len(client.encode(numbers(500))) == 500
    assert len(caplog.records) == 5
    assert "after: Wait. (429 overloaded)" in caplog.messages[0]


def test_what_takes_too_long_is_asked_for_in_smaller_parts() -> None:
    """A service that is too slow for a hundred texts within its deadline does fifty."""
    late = failing(lambda inputs: len(inputs) > 50, refused(504, {"type": "urn:headlight:deadline-exceeded"}))
    with stand_in(late, gets=INFORMED) as server, Headlight(server.url, concurrency=2) as client:
        answer = client.encode(numbers(500))
    assert answer.embeddings[:, 0].tolist() == list(range(500))
    assert sum(len(one.body["inputs"]) > 50 for one in server.received if one.body) <= 2


def test_a_single_request_that_takes_too_long_is_split_too() -> None:
    """A call that is sent whole at first is no different from a part of a longer one."""
    late = failing(lambda inputs: len(inputs) > 50, refused(504, {"type": "urn:headlight:deadline-exceeded"}))
    calls: list[Call] = [lambda url: encode(url, numbers(90)), lambda url: ask(url, numbers(90))]
    for call in calls:
        with stand_in(late, gets=INFORMED) as server:
            assert call(server.url).embeddings[:, 0].tolist() == list(range(90))
        assert sorted(len(one.body["inputs"]) for one in server.received if one.body) == [45, 45, 90]


def too_short(received: Received) -> Reply:
    """Refuse texts as a service does that takes 0.01 s for each and has 0.5 s, or one that takes longer."""
    count = len(received.body["inputs"])
    problem = deadline_too_short(DeadlineTooShort(3 * count, max(0.51, 0.01 * count), 0.5))
    document = problem.document(instance=received.path, request_id="r")
    return Reply(problem.status, [document], {"Content-Type": "application/problem+json"})


@pytest.mark.parametrize("call", [encode, ask, stream])
def test_what_would_take_too_long_is_split_before_it_runs(call: Callable[[str, list[str]], Any]) -> None:
    """Texts that are too many for their deadline go in smaller requests; for a single text it is an error."""
    for count in (90, 500):
        with stand_in(failing(lambda inputs: len(inputs) > 50, too_short), gets=INFORMED) as server:
            answer = call(server.url, numbers(count))
        assert sorted(int(item.embedding[0]) for item in answer) == list(range(count))
        assert 1 <= sum(len(one.body.get("inputs", ())) > 50 for one in server.received) <= 4
    with stand_in(too_short) as server, pytest.raises(HeadlightError) as raised:
        call(server.url, ["0"])
    assert (raised.value.type, raised.value.status) == ("urn:headlight:deadline-too-short", 422)
    assert (raised.value.limit, raised.value.actual, raised.value.rows) == (0.5, 0.51, None)
    assert len(server.received) == 1


def test_progress_is_drawn_in_texts(capsys: pytest.CaptureFixture[str]) -> None:
    """The bar counts texts to their number; without it nothing is written."""
    with stand_in(echo, gets=INFORMED) as server, Headlight(server.url) as client:
        client.encode(numbers(500))
        assert capsys.readouterr().err == ""
        client.encode(numbers(500), progress=True)
        assert "500/500" in capsys.readouterr().err
        client.encode(numbers(3), progress=True)
        assert "3/3" in capsys.readouterr().err


def test_progress_without_tqdm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the bar needs it."""
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with stand_in(echo, gets=INFORMED) as server, Headlight(server.url) as client:
        with pytest.raises(ModuleNotFoundError, match="pip install tqdm"):
            client.encode(numbers(500), progress=True)
        assert len(client.encode(numbers(500))) == 500


def test_a_call_works_where_an_event_loop_runs_already() -> None:
    """In a notebook the thread has a loop: the synchronous client is used there all the same."""

    async def cell(url: str) -> int:
        with Headlight(url) as client:
            return len(client.encode(numbers(500)))

    with stand_in(echo, gets=INFORMED) as server:
        assert asyncio.run(cell(server.url)) == 500


@pytest.mark.parametrize("noticed", [True, False])
def test_an_interrupt_ends_a_call_at_once(noticed: bool) -> None:
    """Ctrl-C while requests wait for a slow service: KeyboardInterrupt, soon, and no more tracebacks.

    Also where the main thread does not notice the signal, as when it arrives just before a wait begins: here
    the system gives it to another thread.
    """
    waiting, gate = threading.Event(), threading.Event()

    def slow(received: Received) -> Reply:
        waiting.set()
        gate.wait(20)
        return echo(received)

    # A shell's background jobs ignore SIGINT, and so would this. A process that hangs says where, and ends.
    program = (
        "import faulthandler, signal, sys, threading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from headlight_client import Headlight\n"
        "def interrupt():\n"
        "    sys.stdin.read()\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "if sys.argv[2] == 'unnoticed':\n"
        "    threading.Thread(target=interrupt, daemon=True).start()\n"
        "faulthandler.dump_traceback_later(10, exit=True)\n"
        "try:\n"
        "    Headlight(sys.argv[1]).encode([str(i) for i in range(900)])\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    with stand_in(slow, gets=INFORMED) as server:
        ended = subprocess.Popen(
            [sys.executable, "-c", program, server.url, "noticed" if noticed else "unnoticed"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.wait(20)
        if noticed:
            ended.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = ended.communicate(timeout=20)  # closes its input
        took = time.monotonic() - start
        gate.set()
    assert (out, err, ended.returncode) == ("interrupted\n", "", 0)
    assert took < 5


def test_a_cancelled_task_ends_its_requests() -> None:
    """Cancelling an awaited call lets go of all that is on its way."""
    waiting, gate = threading.Event(), threading.Event()

    def slow(received: Received) -> Reply:
        waiting.set()
        gate.wait(20)
        return echo(received)

    async def run(url: str) -> None:
        async with AsyncHeadlight(url, concurrency=2) as client:
            asked = asyncio.ensure_future(client.encode(numbers(900)))
            await asyncio.to_thread(waiting.wait, 20)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert len(asyncio.all_tasks()) == 1

    with stand_in(slow, gets=INFORMED) as server:
        try:
            asyncio.run(run(server.url))
        finally:
            gate.set()
        assert sum(bool(one.body) for one in server.received) <= 2
