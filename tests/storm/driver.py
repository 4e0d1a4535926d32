"""Carries attacks out, many at a time, and judges every answer."""

import asyncio
import json
import re
import select
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.storm.attack import BUSY, Attack, End

PATIENCE_S = 90.0
"""So long after an attack began at the latest, it must be over."""
_QUICK, _SLOW = 12, 250
_POLL_S = 0.5
_SANE_ID = re.compile(rb"[A-Za-z0-9._~:+/=@-]{1,128}")
_TITLES = re.compile(r"\w.*[.\]]$", re.DOTALL)
_EMPTY = re.compile(r"\w.* cannot (both )?be empty\.?$")
_TEI = re.compile(rb"\w+ /(embed|embed_all|embed_sparse|rerank|similarity|predict|tokenize|decode|tei\S*)? ")
_OPENAI = re.compile(rb"\w+ /v[12]/\S+ ")
_INFERENCE = re.compile(rb"\w+ /v2(/(?!(embed|rerank)[ ?])\S*)?[ ?]")
"""The beginnings of requests whose errors may have the form of text-embeddings-inference, OpenAI and the Open
Inference Protocol."""
_GONE = (ConnectionError, BrokenPipeError, asyncio.IncompleteReadError)


@dataclass
class Census:
    """What came of all attacks: how often which outcome, by kind, and what was wrong."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    attacks: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def note(self, kind: str, outcome: str) -> None:
        self.outcomes[kind, outcome] += 1

    def fault(self, kind: str, sentence: str) -> None:
        self.faults.append(f"{kind}: {sentence}"[:600])


@dataclass(frozen=True)
class Answer:
    """One answer as it came."""

    status: int
    headers: dict[bytes, list[bytes]]
    body: bytes


async def storm(port: int, attacks: Iterable[tuple[str, Attack]], census: Census) -> None:
    """Carry out all attacks; those that mostly wait run beside the others."""
    quick, slow = asyncio.Semaphore(_QUICK), asyncio.Semaphore(_SLOW)
    async with asyncio.TaskGroup() as group:
        for kind, attack in attacks:
            places = slow if attack.slow else quick
            await places.acquire()
            task = group.create_task(_one(port, kind, attack, census))
            task.add_done_callback(lambda _, places=places: places.release())  # type: ignore[misc]


async def _one(port: int, kind: str, attack: Attack, census: Census) -> None:
    census.attacks[kind] += 1
    start = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _carry_out(port, kind, attack, census)
    except TimeoutError:
        census.fault(kind, f"is not over after {PATIENCE_S:g} s: {_shown(attack)}")
    except OSError as error:
        census.fault(kind, f"{error!r} on {_shown(attack)}")
    census.seconds[kind] += time.perf_counter() - start


async def _carry_out(port: int, kind: str, attack: Attack, census: Census) -> None:
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setblocking(False)  # noqa: FBT003
    if attack.end is End.LINGER:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(connection, ("127.0.0.1", port))
    if attack.end is End.LINGER:
        with connection:
            await _linger(connection, attack)
        census.note(kind, "given up")
        return
    reader, writer = await asyncio.open_connection(sock=connection)
    sending = asyncio.create_task(_send(writer, attack))
    try:
        if attack.end is End.RESET:
            await sending
            connection_option = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, connection_option)
            census.note(kind, "reset")
        else:
            await _read(reader, kind, attack, census)
    finally:
        sending.cancel()
        writer.transport.abort()
        with suppress(asyncio.CancelledError, *_GONE):
            await sending


async def _send(writer: asyncio.StreamWriter, attack: Attack) -> None:
    with suppress(*_GONE):
        for i, part in enumerate(attack.parts):
            if i and attack.pause_s:
                await asyncio.sleep(attack.pause_s)
            writer.write(part)
            await writer.drain()
        if attack.end is End.HALF_CLOSE:
            writer.write_eof()


async def _linger(connection: socket.socket, attack: Attack) -> None:
    """Read nothing until the service has let go of the connection, whatever its kernel still has of it."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        for part in attack.parts:
            await loop.sock_sendall(connection, part)
    answered = select.poll()
    answered.register(connection, select.POLLIN)
    while not answered.poll(0):  # an answer has begun, or the connection is over
        await asyncio.sleep(_POLL_S)
    _, own = connection.getsockname()
    _, its = connection.getpeername()
    while _is_held(its, own):
        await asyncio.sleep(_POLL_S)


def _is_held(port: int, by: int) -> bool:
    """Whether some process has the end of a loopback connection that goes from `port` to `by`."""
    ends = f":{port:04X} 0100007F:{by:04X} "
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()
    return any(ends in line and line.split()[9] != "0" for line in lines)


async def _read(reader: asyncio.StreamReader, kind: str, attack: Attack, census: Census) -> None:
    answers: list[Answer] = []
    end = "closed"
    to_end = attack.end is not End.READ
    try:
        while (to_end or len(answers) < attack.most) and (answer := await _next(reader, attack)) is not None:
            answers.append(answer)
            if len(answers) <= attack.most:
                census.note(kind, str(answer.status))
            for wrong in _judge(answer, attack):
                census.fault(kind, f"{wrong} on {_shown(attack)}")
    except _GONE:
        end = "reset"
    if not answers:
        census.note(kind, end)
    if not attack.least <= len(answers) <= attack.most:
        shown = [(answer.status, answer.body[:200]) for answer in answers[:3]]
        census.fault(kind, f"{len(answers)} answers, then {end}, on {_shown(attack)}: {shown}")


async def _next(reader: asyncio.StreamReader, attack: Attack) -> Answer | None:
    """Read an answer; None at the end of the connection."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None
        first, *lines = head[:-4].split(b"\r\n")
        status = int(first.split(b" ")[1])
        if status >= 200:
            break
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, _, value = line.partition(b": ")
        headers.setdefault(name.lower(), []).append(value)
    return Answer(status, headers, b"" if attack.head else await _read_body(reader, headers))


async def _read_body(reader: asyncio.StreamReader, headers: dict[bytes, list[bytes]]) -> bytes:
    if b"content-length" in headers:
        return await reader.readexactly(int(headers[b"content-length"][0]))
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(pieces)


def _judge(answer: Answer, attack: Attack) -> Iterable[str]:
    """Say what is wrong with an answer."""
    if answer.status not in attack.allowed | BUSY:
        yield f"a {answer.status}: {answer.body[:300]!r}"
    identifiers = answer.headers.get(b"x-request-id", [])
    if len(identifiers) != 1 or not _SANE_ID.fullmatch(identifiers[0]):
        yield f"identifiers {identifiers}"
    if b"x-evil" in answer.headers or b"Traceback" in answer.body:
        yield "something that does not belong into an answer"
    if answer.status in BUSY and b"retry-after" not in answer.headers:
        yield "a 429 without Retry-After"
    if answer.status >= 400 and not attack.head:
        yield from _judge_error(answer, attack, identifiers)


def _judge_error(answer: Answer, attack: Attack, identifiers: list[bytes]) -> Iterable[str]:
    is_json = answer.headers.get(b"content-type") == [b"application/json"]
    if is_json and _TEI.match(attack.parts[0]):
        yield from _judge_tei_error(answer)
    elif is_json and attack.parts[0].partition(b" ")[2].startswith(b"/api/"):
        yield from _judge_ollama_error(answer)
    elif is_json and _INFERENCE.match(attack.parts[0]):
        yield from _judge_inference_error(answer)
    elif is_json and _OPENAI.match(attack.parts[0]):
        yield from _judge_openai_error(answer, identifiers)
    else:
        yield from _judge_problem(answer, identifiers)


def _judge_tei_error(answer: Answer) -> Iterable[str]:
    document = json.loads(answer.body)
    # For what is empty, the sentence is text-embeddings-inference's own, which has no full stop.
    whole = _TITLES if document.get("error_type") != "Empty" else _EMPTY
    if document.keys() != {"error", "error_type"} or not whole.search(document["error"]):
        yield f"not an error of text-embeddings-inference: {answer.body[:300]!r}"


def _judge_ollama_error(answer: Answer) -> Iterable[str]:
    document = json.loads(answer.body)
    if document.keys() != {"error"} or not document["error"]:
        yield f"not an error of Ollama: {answer.body[:300]!r}"


def _judge_inference_error(answer: Answer) -> Iterable[str]:
    document = json.loads(answer.body)
    if document.keys() != {"error"} or not _TITLES.search(document["error"]):
        yield f"not an error of the Open Inference Protocol: {answer.body[:300]!r}"


def _judge_openai_error(answer: Answer, identifiers: list[bytes]) -> Iterable[str]:
    document = json.loads(answer.body)
    if document.keys() != {"error", "detail", "message", "id"}:
        yield f"not an error of OpenAI: {answer.body[:300]!r}"
        return
    if document["id"].encode() not in identifiers:
        yield f"an error of another answer: {answer.body[:300]!r}"
    sentences = {document["error"]["message"], document["detail"], document["message"]}
    if len(sentences) > 1 or not _TITLES.search(*sentences):
        yield f"an error that says nothing: {answer.body[:300]!r}"


def _judge_problem(answer: Answer, identifiers: list[bytes]) -> Iterable[str]:
    if answer.headers.get(b"content-type") != [b"application/problem+json"]:
        yield f"a problem as {answer.headers.get(b'content-type')}"
        return
    document = json.loads(answer.body)
    if document["status"] != answer.status or document["request_id"].encode() not in identifiers:
        yield f"a document of another answer: {answer.body[:300]!r}"
    if not _TITLES.search(document["detail"]) or not document["type"].startswith("urn:headlight:"):
        yield f"a problem that says nothing: {answer.body[:300]!r}"
    if "smuggled" in document["instance"]:
        yield "a smuggled request was answered"


def _shown(attack: Attack) -> str:
    return repr(b" | ".join(part[:150] for part in attack.parts[:3]))[:350]
