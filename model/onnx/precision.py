"""What a graph computes in, read from its file: ONNX Runtime tells nothing of weights and operators.

An ONNX file is a protocol buffer of fields that have a number and a type. Only fields on the way to operators
and weights are read here (onnx.proto: ModelProto.graph = 7, GraphProto.node = 1 and .initializer = 5,
NodeProto.op_type = 4, TensorProto.dims = 1, .data_type = 2 and .raw_data = 9). Others are skipped, and the
numbers of weights are read only if these are signed eight-bit integers.
"""

import math
import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.errors import CheckpointError
from model.files import open_regular, reason
from model.onnx.names import DTYPE_KEY, PROCESSORS_KEY

INT8 = "int8"
_GRAPH, _NODE, _INITIALIZER, _OPERATOR, _DIMS, _TYPE, _RAW = 7, 1, 5, 4, 1, 2, 9
_FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
_SIGNED = 3
_EIGHT_BITS = frozenset(
    ("MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QLinearMatMul", "QAttention")
) | {"QuantizeLinear"}
_FOUR_BITS = frozenset(("MatMulNBits", "MatMulBnb4"))
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_LEAST = 1024
"""How many numbers a weight has at least: smaller tensors are constants."""
SEVEN_BITS, EIGHT_BITS = 64, 127
"""The largest weights whose sums never saturate, and the largest of eight bits; both are symmetric."""
_VNNI, _ARM = "x86 processors with VNNI", "ARM"
_PROCESSORS: dict[str | None, str] = {
    "any": "any processor (weights of seven bits)",
    "vnni": f"{_VNNI}, and {_ARM} (weights of eight bits)",
    "arm64": f"{_ARM}, and {_VNNI} (weights of eight bits)",
    None: f"{_VNNI}, and {_ARM} (an older export, which does not say it: weights of eight bits)",
}
_OTHERS = {
    True: f"{_VNNI}, and {_ARM} (signed weights of eight bits)",
    False: "any processor (weights of seven bits, or unsigned)",
}


@dataclass(frozen=True, slots=True)
class Precision:
    """What most products of a graph are computed in: float32, float16, bfloat16, int8 or int4.

    `saturates` says that sums of eight-bit products are exact only with VNNI: weights are signed, and larger
    than seven bits, or lie in another file. `processors` says in words what a graph in eight bits is for.
    """

    name: str
    saturates: bool = False
    processors: str | None = None


def told_precision(metadata: Mapping[str, str]) -> Precision | None:
    """Return the precision that an exported graph has in its metadata; None if it has none."""
    told = metadata.get(DTYPE_KEY)
    if told != INT8:
        return None if told is None else Precision(told)
    processors = metadata.get(PROCESSORS_KEY)
    return Precision(INT8, processors != "any", _PROCESSORS.get(processors, _PROCESSORS[None]))


def read_precision(path: Path) -> Precision:
    """Read the precision of a graph; raises CheckpointError for a file that cannot be read."""
    operators: set[str] = set()
    numbers: Counter[str] = Counter()
    saturates = False
    with open_regular(path) as descriptor:
        try:
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
                for number, start, end in _parts(content):
                    if number == _NODE:
                        operators.update(_operator(content, start, end))
                    elif number == _INITIALIZER:
                        kind, shape, raw = _tensor(content, start, end)
                        if (size := math.prod(shape)) >= _LEAST and kind in _FLOATS:
                            numbers[_FLOATS[kind]] += size
                        elif len(shape) > 1 and kind == _SIGNED and not saturates:  # others are zero points
                            saturates = raw is None or _is_large(content, raw)
        except (ValueError, IndexError, OSError) as error:
            raise CheckpointError(f"{path} is damaged or is not an ONNX file: {reason(error)}.") from error
    if operators & _FOUR_BITS:
        return Precision("int4")
    if operators & _EIGHT_BITS:
        return Precision(INT8, saturates, _OTHERS[saturates])
    return Precision(numbers.most_common(1)[0][0] if numbers else "float32")


def _parts(content: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the graph."""
    for number, start, end in _fields(content, 0, len(content)):
        if number == _GRAPH:
            yield from _fields(content, start, end)


def _operator(content: mmap.mmap, start: int, end: int) -> Iterator[str]:
    yield from (content[a:b].decode() for number, a, b in _fields(content, start, end) if number == _OPERATOR)


def _tensor(content: mmap.mmap, start: int, end: int) -> tuple[int, list[int], tuple[int, int] | None]:
    """Return the type of a tensor, its shape, and where its numbers are; None if they are elsewhere."""
    kind, dims, raw = 0, [], None
    for number, first, last in _fields(content, start, end):
        if number == _TYPE:
            kind, _ = _varint(content, first)
        elif number == _RAW:
            raw = first, last
        elif number == _DIMS:
            offset = first
            while offset < last:  # one number, or several that are packed
                size, offset = _varint(content, offset)
                dims.append(size)
    return kind, dims, raw


def _is_large(content: mmap.mmap, raw: tuple[int, int]) -> bool:
    weights = np.frombuffer(content[slice(*raw)], np.int8)
    return bool((weights < -SEVEN_BITS).any() or (weights > SEVEN_BITS).any())


def _fields(content: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message: number, and where its value begins and ends; raises ValueError."""
    offset = start
    while offset < end:
        tag, offset = _varint(content, offset)
        number, kind = tag >> 3, tag & 7
        first = offset
        if kind == _VARINT:
            _, offset = _varint(content, offset)
        elif kind == _BYTES:
            size, first = _varint(content, offset)
            offset = first + size
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            offset += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field of the type {kind}")
        if offset > end:
            raise ValueError("a field that is longer than the file")
        yield number, first, offset


def _varint(content: mmap.mmap, offset: int) -> tuple[int, int]:
    """Read an integer of seven bits a byte; returns it, and where it ends."""
    value = shift = 0
    while True:
        byte = content[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")
