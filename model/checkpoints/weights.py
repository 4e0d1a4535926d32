"""Reads the safetensors of a checkpoint: first the headers, and the tensors once the headers are checked."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.checkpoints.conversion import no_weights
from model.contract import FloatArray
from model.errors import CheckpointError
from model.files import JSON_BYTES, open_regular, present, read_json, reason, shown
from model.memory import release_file_pages

FLOATS = ("F64", "F32", "F16", "BF16")
"""The supported dtypes, under safetensors' names."""
_SHARDS = 1000
# How many numbers of a file are checked before its pages are released.
_HELD = 2**25
_CACHED = 2**18
"""How many numbers are widened at a time, so that they stay in the cache."""
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Stored:
    """A tensor as a header describes it."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]


def list_tensors(folder: Path) -> list[Stored]:
    """Read the headers of a folder's weights; raises CheckpointError."""
    tensors: dict[str, Stored] = {}
    for file in weight_files(folder):
        for stored in read_header(file):
            if (other := tensors.setdefault(stored.name, stored)) is not stored:
                raise CheckpointError(
                    f"{file} has the tensor {shown(stored.name)}, and so does {other.file.name}: save the "
                    "checkpoint again."
                )
    return list(tensors.values())


def weight_files(folder: Path) -> list[Path]:
    """List model.safetensors, or else the shards of its index; raises CheckpointError.

    As in transformers, shards beside model.safetensors are taken for leftovers of an earlier save.
    """
    single, index = folder / "model.safetensors", folder / _INDEX
    if present(single):
        return [single]
    if not present(index):
        raise CheckpointError(no_weights(folder))
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{index} has no weight_map: save the checkpoint again.")
    names = {name: None for name in shards.values() if isinstance(name, str)}
    odd = [name for name in shards.values() if not isinstance(name, str) or not _plain(name)]
    if odd:
        raise CheckpointError(
            f"{index}: weight_map names the file {shown(odd[0])}, which is not a file name: save the "
            "checkpoint again."
        )
    if len(names) > _SHARDS:
        raise CheckpointError(
            f"{index}: weight_map names {len(names)} files; the limit is {_SHARDS}: save the checkpoint in "
            "larger shards."
        )
    return [folder / name for name in sorted(names)]


def _plain(name: str) -> bool:
    """Return whether this is the name of a file, not a path."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _check_header(path: Path) -> None:
    """Raise CheckpointError for a header that takes long to read; the first eight bytes are its size."""
    with open_regular(path) as descriptor:
        size = int.from_bytes(os.pread(descriptor, 8, 0), "little")
        if JSON_BYTES < size < os.fstat(descriptor).st_size:
            raise CheckpointError(
                f"{path} has a header of {size} bytes; the limit is {JSON_BYTES}: save the checkpoint again, "
                "in more shards."
            )


def read_header(path: Path) -> list[Stored]:
    """Read the header of a file of safetensors; raises CheckpointError."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return [Stored(path, n, s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()]
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}; fetch it again.") from error


def read_tensors(wanted: Sequence[Stored]) -> dict[str, Tensor]:
    """Read tensors in their own dtypes without copying: their memory is mapped from the files.

    Raises CheckpointError for a file that cannot be read, and for a tensor with a NaN or an infinity.
    """
    by_file: dict[Path, list[Stored]] = {}
    for stored in wanted:
        by_file.setdefault(stored.file, []).append(stored)
    tensors: dict[str, Tensor] = {}
    for path, listed in by_file.items():
        try:
            # Opened twice: closing the first one releases the pages that the check has mapped.
            with safe_open(path, framework="pt") as file:
                _check_finite(path, file, listed)
            with safe_open(path, framework="pt") as file:
                tensors.update({stored.name: file.get_tensor(stored.name) for stored in listed})
        except (SafetensorError, OSError, RuntimeError) as error:
            raise CheckpointError(f"{path} cannot be read: {reason(error)}; fetch it again.") from error
    return tensors


def read_rows(stored: Stored, numbers: Sequence[int]) -> FloatArray:
    """Read only these rows of a matrix, as float32 (rows, columns).

    Raises CheckpointError for another shape or dtype, and for a NaN or an infinity.
    """
    if len(stored.shape) != 2 or stored.dtype not in FLOATS:
        raise CheckpointError(
            f"{stored.file}: the tensor {stored.name} is {stored.dtype} {stored.shape}; it must be a matrix "
            f"with one of the dtypes {', '.join(FLOATS)}: use files from the same checkpoint."
        )
    try:
        with safe_open(stored.file, framework="pt") as file:
            matrix = file.get_slice(stored.name)
            rows: FloatArray = np.concatenate([matrix[n : n + 1].float().numpy() for n in numbers])
    except (SafetensorError, OSError, RuntimeError) as error:
        raise CheckpointError(f"{stored.file} cannot be read: {reason(error)}; fetch it again.") from error
    if not np.isfinite(rows).all():
        raise CheckpointError(
            f"{stored.file}: the tensor {stored.name} has a NaN or an infinity: fetch the file again, or "
            "train from a sound checkpoint."
        )
    return rows


def _check_finite(path: Path, file: Any, listed: Sequence[Stored]) -> None:
    read = 0
    for stored in listed:
        if not is_finite(file.get_tensor(stored.name)):
            raise CheckpointError(
                f"{path}: the tensor {stored.name} has a NaN or an infinity: fetch the file again, or train "
                "from a sound checkpoint."
            )
        read += math.prod(stored.shape)
        if read > _HELD:
            read = 0
            release_file_pages(only_weights=True)


def is_finite(tensor: Tensor) -> bool:
    """Return whether every number of a tensor is finite, at the cost of one sum in almost all cases."""
    # Parts stay in the cache while 16-bit numbers are widened.
    return all(_is_finite(part.float().numpy()) for part in torch.split(tensor.detach().reshape(-1), _CACHED))


def _is_finite(array: FloatArray) -> bool:
    # A NaN or an infinity makes the sum non-finite; a sum of large numbers may also overflow without one.
    # numpy uses one thread, which suits a machine that is busy while the service starts.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(array)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())
