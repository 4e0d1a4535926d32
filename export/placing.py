"""A folder that appears whole or not at all."""

import os
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


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target`, which takes its place when the block ends without an error.

    What stood there is taken away then, and only then. After an error, or Ctrl-C, nothing new is left.
    """
    target = target.resolve()
    new, old = (target.with_name(f".{target.name}.{os.getpid()}.{what}") for what in ("new", "old"))
    new.mkdir()
    try:
        yield new
        _replace(target, new, old)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


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
