"""A folder that appears whole or not at all."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from export.errors import ExportError


def check_place(target: Path, source: Path, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be written or that would take something away, before any work is done.

    Raises ExportError. `source` is the folder that is read.
    """
    target, source = target.resolve(), source.resolve()
    if not target.parent.is_dir():
        raise ExportError(f"{target.parent} is not a folder: make it first, or write to another one.")
    if source.is_relative_to(target):
        raise ExportError(f"{target} holds the model itself: write to another folder.")
    if target.is_relative_to(source) and target.is_dir() and any(target.iterdir()):
        raise ExportError(f"{target} is a part of the model itself: write to another folder.")
    if target.is_mount():
        raise ExportError(f"{target} is a mount point, which cannot be replaced: write to a folder in it.")
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target} is a file: write to another folder.")
    if target.exists() and any(target.iterdir()) and not overwrite:
        raise ExportError(f"{target} is not empty: write to another folder, or replace it with --overwrite.")
    if not os.access(target.parent, os.W_OK):
        raise ExportError(f"{target.parent} cannot be written: choose another folder.")


def clear_remains(target: Path) -> None:
    """Take away what exports to `target` left that were killed, and put back what one had set aside.

    Whoever writes a folder holds a lock on it, which the system lets go of with the process, however that
    ends: a folder that is locked belongs to an export that still runs, and is left alone.
    """
    target = target.resolve()
    ours = re.compile(rf"\.{re.escape(target.name)}\.\w+\.(new|old)")
    try:
        remains = sorted(path for path in target.parent.iterdir() if ours.fullmatch(path.name))
    except OSError:
        return  # which `check_place` then says
    for path in remains:
        with _locked(path) as owned:
            if not owned:
                continue
            if path.suffix == ".old" and not target.exists():
                path.rename(target)  # killed between two renames: it is the only one there is
            else:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target`, which takes its place when the block ends without an error.

    What stood there is taken away then, and only then. After an error, or Ctrl-C, nothing new is left; what
    a killed process leaves, `clear_remains` takes away.
    """
    target = target.resolve()
    token = secrets.token_hex(4)  # not the process's number, which containers share
    new, old = (target.with_name(f".{target.name}.{os.getpid()}_{token}.{what}") for what in ("new", "old"))
    new.mkdir()
    with _locked(new):
        try:
            yield new
            with _locked(target):  # under its other name it is not taken for one that was left
                _replace(target, new, old)
                shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock, by whatever name it goes meanwhile; False where another process has it.

    Also where there are no locks, or there is no such folder: then nothing is known of its owner.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        owned = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owned = False
        yield owned
    finally:
        os.close(descriptor)


def _replace(target: Path, new: Path, old: Path) -> None:
    """Put `new` where `target` is; when that fails, `target` is as it was."""
    if not target.exists():
        new.rename(target)
        return
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise
