"""Writes requests and parses responses, without sending anything: bytes in, bytes out."""

import io
import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar

import numpy as np

from headlight_client.answers import AXES, Answer, AttentionMaps, Encoded, Json, attention_maps, encoded
from headlight_client.errors import HeadlightError, is_problem, unreadable
from headlight_client.inputs import Inputs, listed

Indices = Sequence[int]
Side = Literal["right", "left"]
Pooling = Literal["mean", "cls", "max", "mean_max", "mean_sqrt_len", "weighted_mean", "last"]
Outputs = Sequence[Literal["sentence", "tokens"]]
Statistic = Literal[
    "entropy",
    "confidence",
    "mean_distance",
    "self",
    "previous",
    "next",
    "special",
    "argmax_self",
    "argmax_previous",
    "argmax_next",
]

EncodeT = TypeVar("EncodeT")
AttentionT = TypeVar("AttentionT")
EncodeStreamT = TypeVar("EncodeStreamT")
AttentionStreamT = TypeVar("AttentionStreamT")
T = TypeVar("T", bound=Encoded | AttentionMaps)

# JSON is the fallback for a service without these formats: it is parsed too, only larger.
ACCEPT_WHOLE = "application/x-npz, application/json;q=0.5"
ACCEPT_LINES = "application/x-ndjson, application/json;q=0.5"
_BODY = b'{"inputs":%b%b}'
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
    alone: bool = False
    """Whether there is a single text, sent as a string and not as a list."""
    progress: bool = False

    @property
    def rows(self) -> range:
        """All inputs."""
        return range(len(self.inputs))

    @property
    def frame_bytes(self) -> int:
        """The size of a body without its inputs and the commas between them."""
        return len(_BODY) + len(self.options)

    def request(self, rows: range) -> Request:
        """Build the request for a range of the inputs, as arguments for httpx."""
        inputs = b",".join(self.inputs[rows.start : rows.stop])
        return {
            "method": "POST",
            "url": self.path,
            "content": _BODY % (inputs if self.alone else b"[" + inputs + b"]", self.options),
            "params": self.parameters,
            "headers": {"Accept": self.accept, "Content-Type": "application/json"},
        }

    def answer(self, rows: range, headers: Mapping[str, str], content: bytes) -> Answer[T]:
        """Parse the whole response to a range of the inputs, an archive or JSON.

        Raises HeadlightError if it is invalid or has the wrong number of items.
        """
        try:
            meta, arrays = _archive(content) if _is(headers, "x-npz") else (json.loads(content), {})
            axes, scale = meta.get("axes", self.axes), meta.get("scale", 1.0)
            items = [
                item | arrays.get(i, {}) | {"index": item["index"] + rows.start}
                for i, item in enumerate(meta["data"])
            ]
            _check_count(len(items), len(rows))
            return Answer(
                model=meta["model"],
                items=tuple(self.read(item, axes, scale) for item in items),
                usage=meta["usage"],
                max_error=meta.get("max_error"),
                request_ids=tuple(filter(None, [headers.get("x-request-id")])),
            )
        except _UNREADABLE as error:
            raise unreadable(200, headers, error) from error


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
                placed = document | {"index": document["index"] + self.rows.start}
                yield self.call.read(placed, self.call.axes, 1.0)
        except _UNREADABLE as error:
            raise unreadable(200, self.headers, error) from error


class Routes(ABC, Generic[EncodeT, AttentionT, EncodeStreamT, AttentionStreamT]):
    """The routes of the service. Options left out, or None, have the service's defaults.

    `inputs` is a text, or any number of texts or pairs of texts: a list, an array, a column of a data frame,
    a generator. Inputs that exceed the limits of one request are sent in several, `concurrency` at a time;
    items are in the order of the inputs, and `item.index` counts over all of them. The first request that
    fails cancels the others, and `error.rows` has its inputs.

    All raise HeadlightError: HeadlightConnectionError if the connection fails, HeadlightTimeout if it is too
    slow; and InputsError, before anything is sent, if an input is not a text.
    """

    @abstractmethod
    def _fetch(self, call: Call[Any]) -> Any:
        """Send a call and parse the whole response."""

    @abstractmethod
    def _stream(self, call: Call[Any]) -> Any:
        """Send a call and parse the items as they arrive."""

    def encode(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        outputs: Outputs | None = None,
        pooling: Pooling | None = None,
        pooling_layers: Indices | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        layers: Indices | None = None,
        dtype: Literal["float32", "float16"] | None = None,
        progress: bool = False,
    ) -> EncodeT:
        """`POST /encode`: sentence vectors, or with `outputs` token vectors.

        `dtype` is the type used for transfer; arrays are always float32 here. `progress` draws a bar (tqdm).

            answer = client.encode(frame["text"], normalize=True, progress=True)
            answer.embeddings  # (texts, dimensions), float32
        """
        return self._fetch(_call("/encode", ACCEPT_WHOLE, encoded, locals()))

    def stream_encode(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        outputs: Outputs | None = None,
        pooling: Pooling | None = None,
        pooling_layers: Indices | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        layers: Indices | None = None,
    ) -> EncodeStreamT:
        """Like `encode`, but yields each item as soon as it is ready, in any order: see `item.index`.

        Results are not kept in memory; one request is in flight at a time. The first is sent when the first
        item is requested; closing the iterator cancels the current one.
        """
        return self._stream(_call("/encode", ACCEPT_LINES, encoded, locals()))

    def attention(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        layers: Literal["all"] | Indices | None = None,
        heads: Literal["all"] | Indices | None = None,
        weights: Literal["probability", "score", "value_norm"] | None = None,
        aggregate: Literal["none", "mean", "max", "rollout"] | None = None,
        special_tokens: Literal["keep", "drop"] | None = None,
        level: Literal["token", "word"] | None = None,
        queries: Literal["all"] | Indices | None = None,
        keys: Literal["all"] | Indices | None = None,
        renormalize: bool | None = None,
        top_k: int | None = None,
        summary: bool | None = None,
        statistics: Sequence[Statistic] | None = None,
        maps: bool | None = None,
        outputs: Outputs | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        dtype: Literal["float32", "float16", "uint8"] | None = None,
        progress: bool = False,
    ) -> AttentionT:
        """`POST /attention`: maps, (layer, head, query, key) by default.

        `dtype` is the type used to transfer maps; arrays are always float32 here, and the answer's
        `max_error` bounds the error. `progress` draws a bar (tqdm).

            for item in client.attention(texts, layers=[3], heads=[1]):
                item.attention  # (1, 1, tokens, tokens), float32
        """
        return self._fetch(_call("/attention", ACCEPT_WHOLE, attention_maps, locals()))

    def stream_attention(
        self,
        inputs: Inputs,
        *,
        model: str | None = None,
        truncate: bool | None = None,
        truncation_side: Side | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        task: str | None = None,
        layers: Literal["all"] | Indices | None = None,
        heads: Literal["all"] | Indices | None = None,
        weights: Literal["probability", "score", "value_norm"] | None = None,
        aggregate: Literal["none", "mean", "max", "rollout"] | None = None,
        special_tokens: Literal["keep", "drop"] | None = None,
        level: Literal["token", "word"] | None = None,
        queries: Literal["all"] | Indices | None = None,
        keys: Literal["all"] | Indices | None = None,
        renormalize: bool | None = None,
        top_k: int | None = None,
        summary: bool | None = None,
        statistics: Sequence[Statistic] | None = None,
        maps: bool | None = None,
        outputs: Outputs | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        decimals: int | None = None,
    ) -> AttentionStreamT:
        """Like `attention`, but yields each item as soon as it is ready, in any order: see `item.index`.

        Numbers are rounded to `decimals`, 6 by default. One request is in flight at a time: the first is sent
        when the first item is requested; closing the iterator cancels the current one.
        """
        return self._stream(_call("/attention", ACCEPT_LINES, attention_maps, locals()))


def _call(
    path: str, accept: str, read: Callable[[Json, Sequence[str], float], T], arguments: Mapping[str, Any]
) -> Call[T]:
    """Build a call from the arguments that were given; raises InputsError."""
    given = {name: value for name, value in arguments.items() if value is not None and name != "self"}
    inputs, dtype = arguments["inputs"], given.pop("dtype", None)
    progress = given.pop("progress", False)
    fields = {name: value for name, value in given.items() if name != "inputs"}
    axes = {"mean": AXES[:1] + AXES[2:], "max": AXES[:1] + AXES[2:], "rollout": AXES[2:]}
    return Call(
        path=path,
        inputs=[_json(row) for row in listed(inputs)],
        options=b"".join(b",%b:%b" % (_json(name), _json(value)) for name, value in fields.items()),
        accept=accept,
        parameters={} if dtype is None else {"dtype": dtype},
        model=fields.get("model"),
        axes=AXES[:2] if fields.get("maps") is False else axes.get(fields.get("aggregate", "none"), AXES),
        read=read,
        alone=isinstance(inputs, str),
        progress=progress,
    )


def _check_count(items: int, inputs: int) -> None:
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


def _archive(content: bytes) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Unpack an archive; returns the rest of the response, and the arrays of each item by name."""
    arrays: dict[int, dict[str, Any]] = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        meta = json.loads(archive["meta"].tobytes())
        for member in archive.files:
            index, _, name = member.partition(".")
            if index.isdigit():
                arrays.setdefault(int(index), {})[name] = archive[member]
    return meta, arrays


def _is(headers: Mapping[str, str], subtype: str) -> bool:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == f"application/{subtype}"
