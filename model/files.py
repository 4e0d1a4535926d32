"""Reads the small files of a model: regular ones alone, of a bounded size, and JSON that says one thing.

What a folder holds is as foreign as what a request holds. A FIFO would never be read to its end, a device
has none, and a few megabytes of brackets become gigabytes of lists.
"""

import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr
from typing import Any

from model.errors import CheckpointError

JSON_BYTES = 16 * 2**20
"""The most that a JSON file has, but for tokenizer.json; the largest seen are of some megabytes."""
_BRACKETS = 4_000_000
# Each becomes an object of 64 bytes or more; the merges of the largest vocabularies are half a million lists.
_SAID = 200
_WHOLE = "fetch the model again, with all its files"

_repr = Repr()
_repr.maxstring = _repr.maxother = 80
_repr.maxlong = 40


def shown(value: object) -> str:
    """Write a value of a file as a refusal repeats it: whatever it is, on one line of readable length."""
    return " ".join(_repr.repr(value).split())


def reason(error: object) -> str:
    """Write what a library says of a fault as a part of a sentence."""
    said = " ".join(str(error).split())
    return (f"{said[:_SAID]}…" if len(said) > _SAID else said).rstrip(".")


def present(path: Path) -> bool:
    """Say whether there is anything of this name, a link to nothing included; raises CheckpointError."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
    return True


@contextmanager
def open_regular(path: Path, most: int | None = None) -> Iterator[int]:
    """Open a regular file of at most so many bytes, as a descriptor; raises CheckpointError.

    A link to a regular file is one, too: that is how the hub's cache and Kubernetes lay files out.
    """
    try:
        # Without O_NONBLOCK to open a FIFO waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        linked = "is a link to a file that is not there" if path.is_symlink() else "is missing"
        raise CheckpointError(f"{path} {linked}: {_WHOLE}.") from None
    except PermissionError as error:
        raise CheckpointError(
            f"{path} cannot be read: [Errno {error.errno}] {error.strerror}: `chmod a+r {path}` allows it."
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(
                f"{path} is {_kind(status.st_mode)} and no regular file: put the model's own file in its "
                "place."
            )
        if most is not None and status.st_size > most:
            raise CheckpointError(
                f"{path} has {status.st_size} bytes, and at most {most} are read of such a file: put the "
                "model's own file in its place."
            )
        yield descriptor
    finally:
        os.close(descriptor)


def check_regular(path: Path, most: int | None = None) -> None:
    """Check that a file can be opened and is a regular one; raises CheckpointError."""
    with open_regular(path, most):
        pass


def read_bytes(path: Path, most: int) -> bytes:
    """Read a regular file of at most so many bytes; raises CheckpointError."""
    with open_regular(path, most) as descriptor:
        try:
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most + 1)  # no more, also of a file that grows meanwhile
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
    if len(content) > most:
        raise CheckpointError(f"{path} grew while it was read: start again when it is whole.")
    return content


def read_json(path: Path, *, optional: bool = False, kind: type = dict, most: int = JSON_BYTES) -> Any:
    """Read a JSON file that holds a `kind`, empty when `optional` and missing. Raises CheckpointError."""
    if optional and not present(path):
        return kind()
    return parse_json(path, read_bytes(path, most), kind)


def parse_json(path: Path, text: bytes, kind: type = dict) -> Any:
    """Parse what a JSON file holds, which must be a `kind`; raises CheckpointError, which names the file."""
    if text.count(b"[") + text.count(b"{") > _BRACKETS:
        raise CheckpointError(
            f"{path} has more than {_BRACKETS} lists and objects: put the model's own file in its place."
        )
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_unambiguous)
    except RecursionError:
        raise CheckpointError(
            f"{path} cannot be read: its lists are nested too deeply; put the model's own file in its place."
        ) from None
    except ValueError as error:
        raise CheckpointError(
            f"{path} cannot be read: {reason(error)}; put the model's own file in its place."
        ) from error
    if not isinstance(content, kind):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a {kind.__name__}.")
    return content


def _unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the pairs of an object: a field may stand there twice only with the same value."""
    made = dict(pairs)
    if len(made) != len(pairs):
        for name, value in pairs:
            if not _same(made[name], value):
                raise ValueError(f"the field {shown(name)} is there twice, with different values")
    return made


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
