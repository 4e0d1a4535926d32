"""Reads input tensors, from JSON or from the bytes after it, as texts or token ids."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.tokenization.tokenizer import Text
from service.http.request_schema import check_count
from service.protocols.fields import MAX_IDS, first_other
from service.protocols.oip.errors import invalid
from service.protocols.oip.schemas import InputTensor
from service.settings import Settings

OUTPUT = "embedding"


class Known(NamedTuple):
    """An input that a request may send; -1 stands for any length."""

    datatype: str
    shape: list[int]


INPUTS = {
    "text": Known("BYTES", [-1]),
    "text_pair": Known("BYTES", [-1]),
    "input_ids": Known("INT64", [-1, -1]),
    "attention_mask": Known("INT64", [-1, -1]),
}
"""The inputs that a request may send, in one of `_COMBINATIONS`."""

_COMBINATIONS = (
    {"text"},
    {"text", "text_pair"},
    {"input_ids"},
    {"input_ids", "attention_mask"},
)
_ITEM_BYTES = 8  # of an INT64
_LENGTH = struct.Struct("<I")  # stands before each element of BYTES

Ids = list[int]


@dataclass(frozen=True, slots=True)
class Sent:
    """An input, and its bytes if it was sent as bytes."""

    tensor: InputTensor
    octets: memoryview | None

    @property
    def name(self) -> str:
        """The name of the input, for errors."""
        return self.tensor.name


def read_inputs(
    tensors: Sequence[InputTensor], octets: memoryview, settings: Settings
) -> list[Text] | list[Ids]:
    """Read a request's texts, pairs or token ids; `octets` are the bytes that follow its JSON.

    Raises Problem.
    """
    by_name = {sent.name: sent for sent in _with_octets(tensors, octets)}
    _check_names(tensors, by_name)
    for sent in by_name.values():
        _check_shape(sent.tensor)
        check_count(sent.tensor.shape[0], settings.max_inputs, sent.name)
    if "text" in by_name:
        return _read_texts(by_name)
    return _read_ids(by_name)


def text_of(octets: memoryview) -> str:
    """Read a body that is one text."""
    return _decoded(octets, "text")


def _check_names(tensors: Sequence[InputTensor], by_name: Mapping[str, Sent]) -> None:
    for i, tensor in enumerate(tensors):
        if tensor.name not in INPUTS:
            raise invalid(
                f"inputs.{i}.name",
                f'inputs.{i}.name is "{tensor.name}": choose from {", ".join(INPUTS)}.',
            )
    if len(by_name) < len(tensors) or set(by_name) not in _COMBINATIONS:
        sent = ", ".join(tensor.name for tensor in tensors)
        raise invalid(
            "inputs",
            f"The inputs are {sent}: send text, alone or with text_pair, or input_ids, alone or with "
            "attention_mask.",
        )


def _check_shape(tensor: InputTensor) -> None:
    known = INPUTS[tensor.name]
    if tensor.datatype != known.datatype:
        raise invalid(
            tensor.name,
            f'The datatype of {tensor.name} is "{tensor.datatype}": send it as {known.datatype}.',
        )
    if len(tensor.shape) != len(known.shape) or 0 in tensor.shape:
        form = "[n]" if len(known.shape) == 1 else "[n, tokens]"
        raise invalid(
            tensor.name,
            f"The shape of {tensor.name} is {tensor.shape}: send {form}, with at least one element.",
        )


def _with_octets(tensors: Sequence[InputTensor], octets: memoryview) -> list[Sent]:
    """Give each input its bytes, which follow each other in the order of the inputs."""
    sent, place = list[Sent](), 0
    for tensor in tensors:
        if tensor.parameters.shared_memory_region is not None:
            raise invalid(
                tensor.name, f"{tensor.name} is in shared memory, which is not supported: send its data."
            )
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            has = "both data and" if tensor.data is not None else "neither data nor"
            raise invalid(
                tensor.name,
                f"{tensor.name} has {has} the parameter binary_data_size: send one of them.",
            )
        if size is not None and size > len(octets) - place:
            raise invalid(
                tensor.name,
                f"binary_data_size of {tensor.name} is {size} bytes, but only {len(octets) - place} are left "
                "after the JSON. The header Inference-Header-Content-Length must be the size of the JSON.",
            )
        sent.append(Sent(tensor, None if size is None else octets[place : place + size]))
        place += size or 0
    if place < len(octets):
        raise invalid(
            "body",
            f"The body has {len(octets)} bytes after the JSON, but the binary_data_size of all inputs adds "
            f"up to {place}: send exactly that many bytes.",
        )
    return sent


def _read_texts(by_name: Mapping[str, Sent]) -> list[Text]:
    texts = _strings(by_name["text"])
    if "text_pair" not in by_name:
        return list(texts)
    pairs = _strings(by_name["text_pair"])
    if len(pairs) != len(texts):
        raise invalid(
            "text_pair",
            f"text has {len(texts)} elements and text_pair {len(pairs)}: send a second text for each.",
        )
    return list(zip(texts, pairs, strict=True))


def _strings(sent: Sent) -> list[str]:
    (count,) = sent.tensor.shape
    if sent.octets is not None:
        return _split(sent.octets, count, sent.name)
    values: list[Any] = sent.tensor.data or []
    if len(values) != count:
        raise _wrong_number(sent.name, count, len(values))
    if (wrong := first_other(values, str)) is not None:
        raise invalid(f"{sent.name}.{wrong}", f"{sent.name}.{wrong} must be a string.")
    return values


def _split(octets: memoryview, count: int, name: str) -> list[str]:
    """Read elements, each with its length before it."""
    texts, place = list[str](), 0
    for i in range(count):
        start = place + _LENGTH.size
        size = _LENGTH.unpack_from(octets, place)[0] if start <= len(octets) else 0
        place = start + size
        if place > len(octets):
            raise invalid(
                f"{name}.{i}",
                f"{name}.{i} ends after the {len(octets)} bytes of {name}: send each text as its size in "
                "bytes (four bytes, little-endian), followed by its UTF-8.",
            )
        texts.append(_decoded(octets[start:place], f"{name}.{i}"))
    if place < len(octets):
        raise invalid(
            name,
            f"The {count} elements of {name} end after {place} bytes, but its binary_data_size is "
            f"{len(octets)}: send as many elements as its shape says.",
        )
    return texts


def _decoded(octets: memoryview, place: str) -> str:
    try:
        return str(octets, "utf-8")
    except UnicodeDecodeError as error:
        raise invalid(
            place, f"{place} is not valid UTF-8 at byte {error.start}: send texts in UTF-8."
        ) from None


def _read_ids(by_name: Mapping[str, Sent]) -> list[Ids]:
    """Read the ids of each text, without padding."""
    ids = _integers(by_name["input_ids"])
    if "attention_mask" not in by_name:
        rows: list[Ids] = ids.tolist()
        return rows
    mask = _integers(by_name["attention_mask"])
    if mask.shape != ids.shape:
        raise invalid(
            "attention_mask",
            f"The shape of attention_mask is {[*mask.shape]} and the shape of input_ids is {[*ids.shape]}: "
            "send a 1 for each token, and a 0 for each padding token.",
        )
    begun = np.diff(mask != 0, axis=1, prepend=False) & (mask != 0)  # where runs of nonzero numbers begin
    wrong = np.flatnonzero(((mask != 0) & (mask != 1)).any(axis=1) | (np.count_nonzero(begun, axis=1) != 1))
    if len(wrong):
        row = int(wrong[0])
        raise invalid(
            f"attention_mask.{row}",
            f"attention_mask.{row} must have a 1 for each token, at least one and without gaps, and a 0 for "
            "each padding token before or after them.",
        )
    firsts, counts = mask.argmax(axis=1).tolist(), mask.sum(axis=1).tolist()
    return [row[first : first + n].tolist() for row, first, n in zip(ids, firsts, counts, strict=True)]


def _integers(sent: Sent) -> NDArray[np.int64]:
    rows, columns = sent.tensor.shape
    count = rows * columns
    if sent.octets is None:
        if count > MAX_IDS:
            raise invalid(
                sent.name,
                f"{sent.name} has {count} ids in JSON and the limit is {MAX_IDS}: send them as bytes after "
                "the JSON, or fewer texts in a request.",
            )
        return np.array(_listed(sent, rows, columns), np.int64).reshape(rows, columns)
    if len(sent.octets) != _ITEM_BYTES * count:
        raise invalid(
            sent.name,
            f"binary_data_size of {sent.name} is {len(sent.octets)} bytes, but its shape {sent.tensor.shape} "
            f"needs {_ITEM_BYTES * count}: send 8 bytes for each INT64.",
        )
    return np.frombuffer(sent.octets, "<i8").reshape(rows, columns)


def _listed(sent: Sent, rows: int, columns: int) -> list[Any]:
    """Return the values of `data`, which is flat or a list of rows."""
    values: list[Any] = sent.tensor.data or []
    if set(map(type, values)) == {list}:
        if len(values) != rows:
            raise _wrong_number(sent.name, rows, len(values))
        wrong = next((i for i, row in enumerate(values) if len(row) != columns), None)
        if wrong is not None:
            raise _wrong_number(f"{sent.name}.{wrong}", columns, len(values[wrong]))
        values = list(chain.from_iterable(values))
    if len(values) != rows * columns:
        raise _wrong_number(sent.name, rows * columns, len(values))
    numbers = values[: first_other(values, int)]
    if len(numbers) < len(values) or max(numbers) >= 2**63:
        at = next((i for i, one in enumerate(numbers) if one >= 2**63), len(numbers))
        place = f"{sent.name}.{at // columns}.{at % columns}"
        raise invalid(place, f"{place} must be a 64-bit integer, without a fraction.")
    return values


def _wrong_number(place: str, expected: int, actual: int) -> Exception:
    return invalid(
        place, f"The data of {place} has {actual} elements, but its shape needs {expected}: send as many."
    )
