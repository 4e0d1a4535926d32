"""Writes a folder atomically: it appears complete or not at all."""

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
    """Check before any work that `target` can be written and that writing it destroys nothing.

    Raises ExportError. `source` is the model's folder.
    """
    target, source = target.resolve(), source.resolve()
    if not target.parent.is_dir():
        raise ExportError(f"{target.parent} is not a folder: create it, or write to another folder.")
    if source.is_relative_to(target):
        raise ExportError(f"{target} contains the model itself: write to another folder.")
    if target.is_relative_to(source) and target.is_dir() and any(target.iterdir()):
        raise ExportError(f"{target} is part of the model itself: write to another folder.")
    if target.is_mount():
        raise ExportError(
            f"{target} is a mount point, which cannot be replaced: write to a folder inside it."
        )
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target} is a file: write to another folder.")
    if target.exists() and any(target.iterdir()) and not overwrite:
        raise ExportError(f"{target} is not empty: write to another folder, or replace it with --overwrite.")
    if not os.access(target.parent, os.W_OK):
        raise ExportError(f"{target.parent} is not writable: write to another folder.")


def clear_remains(target: Path) -> None:
    """Clean up after killed exports to `target`: delete partial folders, restore a folder set aside.

    An export holds a lock on the folder that it writes. The system releases the lock when the process ends,
    however it ends. So a locked folder belongs to a running export, and is not touched.
    """
    target = target.resolve()
    ours = re.compile(rf"\.{re.escape(target.name)}\.\w+\.(new|old)")
    try:
        remains = sorted(path for path in target.parent.iterdir() if ours.fullmatch(path.name))
    except OSError:
        return  # `check_place` then reports the error
    for path in remains:
        with _locked(path) as owned:
            if not owned:
                continue
            if path.suffix == ".old" and not target.exists():
                path.rename(target)  # killed between two renames: this is the only copy
            else:
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that replaces it when the block ends without an error.

    The old folder is deleted only then. After an error, or Ctrl-C, the new folder is deleted; what a killed
    process leaves is deleted by `clear_remains`.
    """
    target = target.resolve()
    token = secrets.token_hex(4)  # the process id alone is not unique: containers share ids
    new, old = (target.with_name(f".{target.name}.{os.getpid()}_{token}.{what}") for what in ("new", "old"))
    new.mkdir()
    with _locked(new):
        try:
            yield new
            with _locked(target):  # so that another export does not clean it up after it is renamed
                _replace(target, new, old)
                shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock, which stays with it when it is renamed; yields False if another process has it.

    Also False if the folder does not exist or its file system has no locks: then its owner is unknown.
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
    """Replace `target` by `new`; after a failure, `target` is unchanged."""
    if not target.exists():
        new.rename(target)
        return
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise
