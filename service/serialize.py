"""Output -> JSON, written in pieces, with a size that is bounded before anything is computed.

orjson holds the interpreter while it writes: no piece has more than PIECE_VALUES numbers, so that the
event loop gets its turn in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from model.types import AttentionWant, Encoding, FloatArray, Output, Want

PIECE_VALUES = 250_000

# The longest texts that orjson writes for a float32, and the comma after it: -1234567900000000.0 for any,
# 0.0000123456789 for a probability.
_FLOAT_BYTES = 20
_PROBABILITY_BYTES = 16
_SMALL_BYTES = 64 * 1024
# Token columns: id, word id, segment id, special, offsets, and the commas and brackets around them.
_TOKEN_BYTES = 64
_ITEM_BYTES = 320


def columns(index: int, encoding: Encoding) -> dict[str, Any]:
    """Collect the token columns of one item, ready for JSON."""
    return {
        "index": index,
        "tokens": encoding.tokens,
        "token_ids": encoding.token_ids,
        "offsets": encoding.offsets,
        "word_ids": encoding.word_ids,
        "segment_ids": encoding.segment_ids,
        "special": encoding.special,
        "truncated": encoding.truncated,
        "original_length": encoding.original_length,
    }


def encode_items(encodings: Sequence[Encoding], outputs: Sequence[Output]) -> Iterator[bytes]:
    """Write the items of `/encode`; floats are the shortest that give the float32 back."""
    for index, (encoding, output) in enumerate(zip(encodings, outputs, strict=True)):
        arrays = {"embedding": output.sentence, "token_embeddings": output.tokens}
        yield from _item(columns(index, encoding), arrays, first=index == 0)


def attention_items(
    encodings: Sequence[Encoding], wants: Sequence[Want], outputs: Sequence[Output], decimals: int
) -> Iterator[bytes]:
    """Write the items of `/attention`; numbers are rounded to `decimals`."""
    for index, (encoding, want, output) in enumerate(zip(encodings, wants, outputs, strict=True)):
        head = columns(index, encoding) | labels(want.attention, len(encoding))
        maps = None if output.attention is None else rounded(output.attention, decimals)
        yield from _item(head, {"attention": maps}, first=index == 0)


def labels(want: AttentionWant | None, tokens: int) -> dict[str, list[int]]:
    """Name what each index of an attention array is; a dropped axis has no list."""
    if want is None:
        return {}
    every = range(tokens)
    named = {
        "layers": list(want.layers),
        "heads": list(want.heads),
        "queries": list(every if want.queries is None else want.queries),
        "keys": list(every if want.keys is None else want.keys),
    }
    if want.aggregate != "none":
        del named["heads"]
    return named


def rounded(array: FloatArray, decimals: int) -> FloatArray:
    """Round to decimals, such that the shortest text of each float32 has no more of them."""
    if decimals <= 6:  # value × 10⁶ is exact enough in float32's 24 bits
        return np.round(array, decimals)
    return np.round(array.astype(np.float64), decimals).astype(np.float32)


def answer(
    items: Iterator[bytes], *, model: str, tokens: int, axes: Sequence[str] | None = None
) -> Iterator[bytes]:
    """Write a whole answer around its items."""
    head: dict[str, Any] = {"model": model}
    if axes is not None:
        head["axes"] = axes
    yield orjson.dumps(head)[:-1] + b',"data":['
    yield from items
    yield b'],"usage":' + orjson.dumps({"input_tokens": tokens}) + b"}"


def gather(pieces: Iterator[bytes]) -> list[bytes]:
    """Join small neighbours, so that a short answer is one write; large pieces are not copied."""
    gathered: list[bytes] = []
    small: list[bytes] = []
    size = 0
    for piece in pieces:
        if len(piece) < _SMALL_BYTES:
            small.append(piece)
            size += len(piece)
        if small and (size >= _SMALL_BYTES or len(piece) >= _SMALL_BYTES):
            gathered.append(b"".join(small))
            small, size = [], 0
        if len(piece) >= _SMALL_BYTES:
            gathered.append(piece)
    return [*gathered, b"".join(small)] if small else gathered


def _item(
    head: Mapping[str, Any], arrays: Mapping[str, FloatArray | None], *, first: bool
) -> Iterator[bytes]:
    yield (b"" if first else b",") + orjson.dumps(head)[:-1]
    for name, array in arrays.items():
        if array is not None:
            yield b',"' + name.encode() + b'":'
            yield from _nested(array)
    yield b"}"


def _nested(array: FloatArray) -> Iterator[bytes]:
    """Write an array as nested lists, in pieces along its first axes."""
    if array.size <= PIECE_VALUES or array.ndim == 1:
        yield orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
        return
    for i, part in enumerate(array):
        yield b"," if i else b"["
        yield from _nested(part)
    yield b"]"


def _columns_bound(encodings: Sequence[Encoding]) -> int:
    """Bound the bytes of the token columns: a character of a token takes at most six of them."""
    return sum(
        _ITEM_BYTES + len(e) * _TOKEN_BYTES + 6 * sum(len(token) for token in e.tokens) for e in encodings
    )


def encode_bound(encodings: Sequence[Encoding], *, sentence_size: int, layers: int, hidden_size: int) -> int:
    """Bound the bytes of an answer of `/encode` from above, before anything is computed."""
    vectors = sum(sentence_size + layers * len(e) * hidden_size for e in encodings)
    rows = sum(2 + layers * (len(e) + 1) for e in encodings)
    return _columns_bound(encodings) + vectors * _FLOAT_BYTES + rows * 3


def attention_bound(encodings: Sequence[Encoding], wants: Sequence[Want], decimals: int) -> int:
    """Bound the bytes of an answer of `/attention` from above, before anything is computed."""
    number = decimals + 3 if decimals <= 6 else _PROBABILITY_BYTES
    total = _columns_bound(encodings)
    for encoding, want in zip(encodings, wants, strict=True):
        if (maps := want.attention) is None:
            continue
        queries = len(encoding) if maps.queries is None else len(maps.queries)
        keys = len(encoding) if maps.keys is None else len(maps.keys)
        grids = len(maps.layers) * (len(maps.heads) if maps.aggregate == "none" else 1)
        rows = grids * (queries + 1) + len(maps.layers) + 1
        total += grids * queries * keys * number + rows * 3
        total += 8 * (len(maps.layers) + len(maps.heads) + queries + keys)
    return total
