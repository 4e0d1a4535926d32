"""A table of token vectors, as model2vec and sentence-transformers' StaticEmbedding save it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize, safe_open

from model.checkpoints.conversion import no_weights
from model.contract import FloatArray
from model.errors import CheckpointError
from model.files import JSON_BYTES, open_regular, present, read_bytes, reason, shown

MODEL2VEC, SENTENCE_TRANSFORMERS = "embeddings", "embedding.weight"
"""What each library calls the table."""
_FLOATS = ("F32", "F16", "BF16", "F64")
_WHOLE_NUMBERS = ("I64", "I32", "I16", "I8", "U8")
_MOST_BYTES = 2**36
_CHECKED = 2**20
"""How many numbers are checked at a time, so that they stay in a core's cache."""


@dataclass(frozen=True)
class TokenTable:
    """The vectors of all tokens.

    `rows` (R, C) are float32, float16 or int8, as they are stored. The vector of token i is row `mapping[i]`,
    or row i without a `mapping` (V,), times `weights[i]` if there are `weights` (V,), float32.
    """

    name: str
    rows: NDArray[Any]
    mapping: NDArray[np.int64] | None = None
    weights: FloatArray | None = None

    @property
    def size(self) -> int:
        """C, the components of a vector."""
        return int(self.rows.shape[1])

    @property
    def tokens(self) -> int:
        """V, how many tokens have a vector."""
        return len(self.rows) if self.mapping is None else len(self.mapping)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(one.nbytes for one in (self.rows, self.mapping, self.weights) if one is not None)

    def vectors(self, ids: NDArray[np.int64]) -> FloatArray:
        """Return a copy of the vectors of tokens (N,), float32 (N, C)."""
        found = self.rows.take(ids if self.mapping is None else self.mapping.take(ids), axis=0)
        found = found.astype(np.float32, copy=False)
        if self.weights is not None:
            found *= self.weights.take(ids)[:, None]
        return found


def read_table(folder: Path, vocabulary: int) -> TokenTable:
    """Read the table of a folder, for a tokenizer of `vocabulary` tokens; raises CheckpointError."""
    file = folder / "model.safetensors"
    if not present(file):
        raise CheckpointError(no_weights(folder))
    tensors = _read(file)
    name = SENTENCE_TRANSFORMERS if SENTENCE_TRANSFORMERS in tensors else MODEL2VEC
    further = ("mapping", "weights") if name == MODEL2VEC else ()
    unknown = sorted(tensors.keys() - {name, *further})
    if name not in tensors or unknown:
        raise CheckpointError(
            f"{file} has the tensors {shown(sorted(tensors))}; a table of token vectors has {MODEL2VEC} "
            f"and, optionally, mapping and weights, or has only {SENTENCE_TRANSFORMERS}: use the file that "
            "model2vec or sentence-transformers has saved."
        )
    rows, mapping, weights = tensors[name], tensors.get("mapping"), tensors.get("weights")
    _check(file, name, rows, 2, ("f", "i"))
    if mapping is not None:
        _check(file, "mapping", mapping, 1, ("i", "u"))
        mapping = mapping.astype(np.int64, copy=False)
        if len(mapping) and not 0 <= mapping.min() <= mapping.max() < len(rows):
            raise CheckpointError(
                f"{file}: mapping names the rows {mapping.min()} to {mapping.max()}, but {name} has "
                f"{len(rows)} rows: use the file that model2vec has saved."
            )
    if weights is not None:
        _check(file, "weights", weights, 1, ("f",))
        weights = weights.astype(np.float32, copy=False)
    table = TokenTable(name, rows, mapping, weights)
    counts = {table.tokens, *(() if weights is None else (len(weights),))}
    if counts != {vocabulary} and not (name == SENTENCE_TRANSFORMERS and table.tokens > vocabulary):
        raise CheckpointError(
            f"{file} has vectors or weights for {' and '.join(map(str, sorted(counts)))} tokens, but the "
            f"tokenizer has {vocabulary} tokens: use the tokenizer and the weights of the same model."
        )
    return table


def _check(file: Path, name: str, tensor: NDArray[Any], axes: int, kinds: tuple[str, ...]) -> None:
    """Raise CheckpointError for the wrong shape or kind of numbers, and for a NaN or an infinity."""
    if tensor.ndim != axes or tensor.dtype.kind not in kinds or not tensor.size:
        raise CheckpointError(
            f"{file}: the tensor {name} is {tensor.dtype} {tensor.shape}; it must have {axes} axes, and "
            f"{'whole numbers' if kinds == ('i', 'u') else 'floating-point numbers, or int8'}: use the file "
            "that model2vec or sentence-transformers has saved."
        )
    flat = tensor.reshape(-1)
    parts = (flat[start : start + _CHECKED] for start in range(0, len(flat), _CHECKED))
    if tensor.dtype.kind == "f" and not all(np.isfinite(part).all() for part in parts):
        raise CheckpointError(
            f"{file}: the tensor {name} has a NaN or an infinity: fetch the file again, or train from a "
            "sound checkpoint."
        )


def _read(file: Path) -> Mapping[str, NDArray[Any]]:
    """Read all tensors, in their own types where numpy has them; raises CheckpointError."""
    with open_regular(file, _MOST_BYTES) as descriptor, open(descriptor, "rb", closefd=False) as opened:
        header = int.from_bytes(opened.read(8), "little")
    if header > JSON_BYTES:
        raise CheckpointError(
            f"{file} has a header of {header} bytes; the limit is {JSON_BYTES}: fetch it again, whole."
        )
    try:
        with safe_open(file, framework="np") as tensors:
            names = list(tensors.keys())
            types = {tensors.get_slice(name).get_dtype() for name in names}
            if unlike := types - {*_FLOATS, *_WHOLE_NUMBERS}:
                raise CheckpointError(
                    f"{file} has a tensor of {', '.join(sorted(unlike))}, which is not one of "
                    f"{', '.join((*_FLOATS, *_WHOLE_NUMBERS))}: save the table in float32."
                )
            if "BF16" not in types:
                return {name: _narrowed(tensors.get_tensor(name)) for name in names}
        parts: list[tuple[str, Any]] = deserialize(read_bytes(file, _MOST_BYTES))  # type: ignore[no-untyped-call]
        return {name: _widened(**part) for name, part in parts}
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {reason(error)}; fetch it again.") from error


def _narrowed(tensor: NDArray[Any]) -> NDArray[Any]:
    """Convert float64 to float32, because results are float32, too."""
    return tensor.astype(np.float32) if tensor.dtype == np.float64 else tensor


_NUMPY = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
}


def _widened(dtype: str, shape: list[int], data: bytes) -> NDArray[Any]:
    """Make an array of a stored tensor; numpy lacks bfloat16, which is the upper half of a float32."""
    if dtype == "BF16":
        halves = np.frombuffer(data, "<u2").reshape(shape)
        return (halves.astype(np.uint32) << 16).view(np.float32)
    return _narrowed(np.frombuffer(data, _NUMPY[dtype]).reshape(shape))
