"""Writes requests and parses responses, without sending anything: bytes in, bytes out."""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar

import numpy as np

from headlight_client.answers import AXES, Answer, Json, joined
from headlight_client.errors import HeadlightError, InputsError, is_problem, unreadable
from headlight_client.inputs import listed

T = TypeVar("T")

# JSON is the fallback for a service without these formats: it is parsed too, only larger.
ACCEPT_WHOLE = "application/x-npz, application/json;q=0.5"
ACCEPT_JSON = "application/json"
ACCEPT_LINES = "application/x-ndjson, application/json;q=0.5"
_BODY = b'{"%b":%b%b}'
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, EOFError, OSError, zipfile.BadZipFile)


class Request(TypedDict):
    """The arguments of httpx's `build_request`."""

    method: str
    url: str
    content: bytes
    params: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call: its route, inputs and options, and how to parse the items of its response.

    `inputs` are the rows as JSON. A call with many inputs takes several requests, each with a range of them.
    """

    path: str
    inputs: Sequence[bytes]
    options: bytes
    """The other members of the body: `,"name":value` each."""
    accept: str
    parameters: Mapping[str, str]
    model: str | None
    axes: tuple[str, ...]
    read: Callable[[Json, Sequence[str], float], T]
    listed: str = "inputs"
    """The field that has the inputs."""
    called: str | None = None
    """What the caller calls this field, if that is another name."""
    complete: bool = True
    """Whether the answer has an item for each input."""
    merge: Callable[[Sequence[Answer[T]]], Answer[T]] = joined
    """Joins the answers to the parts of the call."""
    precision: str = "float32"
    """Of vectors."""
    each: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    """Members of the body that list something for each input, as JSON: a request has those of its range."""
    alone: bool = False
    """Whether there is a single text, sent as a string and not as a list."""
    progress: bool = False

    @property
    def rows(self) -> range:
        """All inputs."""
        return range(len(self.inputs))

    @property
    def sizes(self) -> list[int]:
        """How many bytes of a body each input takes, with what else is listed for it."""
        columns = (self.inputs, *self.each.values())
        return [sum(map(len, row)) for row in zip(*columns, strict=True)]

    @property
    def frame_bytes(self) -> int:
        """The size of a body without its inputs and the commas between them."""
        return len(_BODY) + len(self.listed) + len(self.options) + sum(len(name) + 6 for name in self.each)

    def in_parts(self, info: Mapping[str, Any]) -> "Call[Any]":  # noqa: ARG002 (for calls that need it)
        """Return the call that is sent if it takes several requests; `info` is the document of `/info`."""
        return self

    def request(self, rows: range) -> Request:
        """Build the request for a range of the inputs, as arguments for httpx."""
        part = slice(rows.start, rows.stop)
        inputs = b",".join(self.inputs[part])
        value = inputs if self.alone else b"[" + inputs + b"]"
        each = [b',"%b":[%b]' % (name.encode(), b",".join(lists[part])) for name, lists in self.each.items()]
        return {
            "method": "POST",
            "url": self.path,
            "content": _BODY % (self.listed.encode(), value, self.options + b"".join(each)),
            "params": self.parameters,
            "headers": {"Accept": self.accept, "Content-Type": "application/json"},
        }

    def placed(self, item: Json, rows: range) -> Json:
        """Count an item's index over all inputs of the call, and note the precision of its vectors."""
        return {**item, "index": item["index"] + rows.start, "precision": self.precision}

    def answer(self, rows: range, headers: Mapping[str, str], content: bytes) -> Answer[T]:
        """Parse the whole response to a range of the inputs, an archive or JSON.

        Raises HeadlightError if it is invalid or has the wrong number of items.
        """
        with readable(headers):
            meta, named = unpack(headers, content)
            arrays = _by_item(named)
            axes, scale = meta.get("axes", self.axes), meta.get("scale", 1.0)
            items = [
                self.placed(_whole(item, arrays.get(i, {})), rows) for i, item in enumerate(meta["data"])
            ]
            if self.complete:
                check_count(len(items), len(rows))
            return Answer(
                model=meta["model"],
                items=tuple(self.read(item, axes, scale) for item in items),
                usage=meta["usage"],
                max_error=meta.get("max_error"),
                request_ids=tuple(filter(None, [headers.get("x-request-id")])),
                method=meta.get("method"),
            )


@dataclass
class Lines(Generic[T]):
    """Parses the items of a streamed response to a range of the inputs.

    Lines end only at a line feed: texts may contain U+2028.
    """

    call: Call[T]
    headers: Mapping[str, str]
    rows: range
    ended: bool = False
    _parts: list[bytes] = field(default_factory=list)

    def feed(self, piece: bytes) -> Iterator[T]:
        """Parse the lines that a piece completes; raises HeadlightError if the service reports a failure."""
        first, *more = piece.split(b"\n")
        self._parts.append(first)
        for line in more:
            yield from self._line(b"".join(self._parts))
            self._parts = [line]

    def finish(self) -> Iterator[T]:
        """Parse the rest; raises HeadlightError if the response is incomplete."""
        rest = b"".join(self._parts)
        if not _is(self.headers, "x-ndjson"):
            yield from self.call.answer(self.rows, self.headers, rest)
            return
        yield from self._line(rest)
        if not self.ended:
            raise unreadable(200, self.headers, "it ends without the last line, which has the usage")

    def _line(self, line: bytes) -> Iterator[T]:
        if not line.strip():
            return
        try:
            document = json.loads(line)
            if is_problem(document):
                raise HeadlightError(document["status"], document)
            if "usage" in document:
                self.ended = True
            else:
                yield self.call.read(self.call.placed(document, self.rows), self.call.axes, 1.0)
        except _UNREADABLE as error:
            raise unreadable(200, self.headers, error) from error


def call_of(
    path: str,
    accept: str,
    read: Callable[[Json, Sequence[str], float], T],
    arguments: Mapping[str, Any],
    field: str = "inputs",
    rows: Callable[[Any, str], Sequence[Any]] = listed,
) -> Call[T]:
    """Build a call from the arguments that were given; raises InputsError.

    `field` has the inputs, which `rows` checks and lists.
    """
    given = {name: value for name, value in arguments.items() if value is not None and name != "self"}
    inputs, dtype = given.pop(field), given.pop("dtype", None)
    progress = given.pop("progress", False)
    axes, listed = _axes(given.get("attention", given)), rows(inputs, field)
    each = {"edges": edges} if (edges := _edges(given, len(listed))) else {}
    return Call(
        path=path,
        inputs=[_json(row) for row in listed],
        options=b"".join(b",%b:%b" % (_json(name), _json(value)) for name, value in given.items()),
        accept=accept,
        parameters={} if dtype is None else {"dtype": dtype},
        model=given.get("model"),
        axes=axes,
        read=read,
        listed=field,
        each=each,
        precision=given.get("precision", "float32"),
        alone=isinstance(inputs, str),
        progress=progress,
    )


def _edges(given: dict[str, Any], inputs: int) -> list[bytes]:
    """Take the lists of edges out of the options; a single input's stay there, with or without a list around.

    Raises InputsError unless there is a list for each input.
    """
    if "edges" not in given or inputs == 1:
        return []
    lists = list(given.pop("edges"))
    if len(lists) != inputs or any(isinstance(place, int) for edges in lists for place in edges):
        raise InputsError(
            f"edges has {len(lists)} items, and there are {inputs} inputs: pass a list of edges for each.",
            "edges",
        )
    return [*map(_json, lists)]


def _axes(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the axes of the maps that options ask for."""
    if options.get("maps") is False:
        return AXES[:2]
    last = AXES[2:] if options.get("edges") is None else ("edge",)
    first = {"mean": AXES[:1], "max": AXES[:1], "rollout": ()}.get(options.get("aggregate", "none"), AXES[:2])
    return (*first, *last)


def check_count(items: int, inputs: int) -> None:
    """Raise ValueError if a response does not have one item, or row, for each input."""
    if items != inputs:
        raise ValueError(f"it has {items} items, not {inputs}")


def _json(value: object) -> bytes:
    """Encode a value. Lone surrogates are sent unchanged: the service reports which text has one."""
    return _encode(value).encode("utf-8", "surrogatepass")


def _listed(value: Any) -> Any:
    """Convert ranges, and numpy's arrays and scalars, to values that JSON has."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{value!r} cannot be sent: pass strings, numbers, or sequences of them.")


_encode = json.JSONEncoder(default=_listed, ensure_ascii=False, allow_nan=False).encode


@contextmanager
def readable(headers: Mapping[str, str]) -> Iterator[None]:
    """Raise HeadlightError if the block, which parses a response, finds it invalid."""
    try:
        yield
    except _UNREADABLE as error:
        raise unreadable(200, headers, error) from error


def unpack(headers: Mapping[str, str], content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse an archive or JSON; returns the document, and the arrays of an archive by their names in it."""
    if not _is(headers, "x-npz"):
        return json.loads(content), {}
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("meta").tobytes()), arrays


def _whole(item: Json, arrays: Mapping[str, Any]) -> Json:
    """Add its arrays to an item; those of chunks go to the rest of what it says of them."""
    if "chunks" not in arrays:
        return {**item, **arrays}
    return {**item, **arrays, "chunks": {**item["chunks"], "embeddings": arrays["chunks"]}}


def _by_item(arrays: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Group arrays by the item that they belong to, whose place their names begin with."""
    grouped: dict[int, dict[str, Any]] = {}
    for member, array in arrays.items():
        index, _, name = member.partition(".")
        grouped.setdefault(int(index), {})[name] = array
    return grouped


def _is(headers: Mapping[str, str], subtype: str) -> bool:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == f"application/{subtype}"
