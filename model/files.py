"""Reads the small files of a model: only regular files of bounded size, and only unambiguous JSON.

A model folder is as untrusted as a request. Reading a FIFO would block forever, a device has no end, and a
few megabytes of brackets become gigabytes of lists.
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
"""The largest JSON file that is read, except tokenizer.json; real ones reach a few megabytes."""
_BRACKETS = 4_000_000
# Each makes an object of 64 bytes or more; the merges of the largest vocabularies are half a million lists.
_OBJECTS = 1_000_000
# Each takes microseconds to read; the largest published files have thousands.
_SAID = 200
_WHOLE = "fetch the model again, with all its files"

_repr = Repr()
_repr.maxstring = _repr.maxother = 80
_repr.maxlong = 40


def shown(value: object) -> str:
    """Format any value from a file for an error message: on one line, cut to a readable length."""
    return " ".join(_repr.repr(value).split())


def reason(error: object) -> str:
    """Format a library's error message as part of a sentence."""
    said = " ".join(str(error).split())
    return (f"{said[:_SAID]}…" if len(said) > _SAID else said).rstrip(".")


def present(path: Path) -> bool:
    """Return whether this name exists, dangling symlinks included; raises CheckpointError if unreadable."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
    return True


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a folder lies inside another one, wherever links lead.

    In the hub's cache folders are real; only files are links, which lead out of the folder.
    """
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # an invalid path, or a loop of links
        return False


@contextmanager
def open_regular(path: Path, most: int | None = None) -> Iterator[int]:
    """Open a regular file of at most `most` bytes as a descriptor; raises CheckpointError.

    A symlink to a regular file is accepted: the hub's cache and Kubernetes volumes consist of them.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        linked = "is a link to a missing file" if path.is_symlink() else "is missing"
        raise CheckpointError(f"{path} {linked}: {_WHOLE}.") from None
    except PermissionError as error:
        raise CheckpointError(
            f"{path} cannot be read: [Errno {error.errno}] {error.strerror}: run `chmod a+r {path}`."
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(
                f"{path} is {_kind(status.st_mode)}, not a regular file: replace it with the model's own "
                "file."
            )
        if most is not None and status.st_size > most:
            raise CheckpointError(
                f"{path} has {status.st_size} bytes; the limit for this file is {most}: replace it with the "
                "model's own file."
            )
        yield descriptor
    finally:
        os.close(descriptor)


def check_regular(path: Path, most: int | None = None) -> None:
    """Check that a file can be opened and is a regular file; raises CheckpointError."""
    with open_regular(path, most):
        pass


def read_bytes(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; raises CheckpointError."""
    with open_regular(path, most) as descriptor:
        try:
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most + 1)  # bounded even if the file grows meanwhile
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
    if len(content) > most:
        raise CheckpointError(f"{path} grew while it was being read: start again once it is complete.")
    return content


def read_json(path: Path, *, optional: bool = False, kind: type = dict, most: int = JSON_BYTES) -> Any:
    """Read a JSON file that holds a `kind`; empty if `optional` and missing. Raises CheckpointError."""
    if optional and not present(path):
        return kind()
    return parse_json(path, read_bytes(path, most), kind)


def parse_json(path: Path, text: bytes, kind: type = dict) -> Any:
    """Parse the content of a JSON file, which must be a `kind`; raises CheckpointError naming the file."""
    objects = text.count(b"{")
    for number, most, what in (
        (objects, _OBJECTS, "objects"),
        (text.count(b"[") + objects, _BRACKETS, "lists and objects"),
    ):
        if number > most:
            raise CheckpointError(
                f"{path} has more than {most} {what}: replace it with the model's own file."
            )
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_unambiguous)
    except RecursionError:
        raise CheckpointError(
            f"{path} cannot be read: its lists are nested too deeply; replace it with the model's own file."
        ) from None
    except ValueError as error:
        raise CheckpointError(
            f"{path} cannot be read: {reason(error)}; replace it with the model's own file."
        ) from error
    if not isinstance(content, kind):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a {kind.__name__}.")
    return content


def _unambiguous(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from an object's pairs; a duplicate field is allowed only with the same value."""
    made = dict(pairs)
    if len(made) != len(pairs):
        for name, value in pairs:
            if not _same(made[name], value):
                raise ValueError(f"the field {shown(name)} appears twice, with different values")
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
