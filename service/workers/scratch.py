"""Folders for what the processes of a service share, which do not outlive it."""

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

# A folder has the first name until it is locked, so that a folder of the second name without a lock is always
# one that a killed service left.
_UNFINISHED, _FINISHED, _LOCK = "making-headlight-", "headlight-", "lock"
# Making a folder takes a millisecond: a service that began one this long ago, in seconds, was killed.
_LONG_S = 60.0


@contextmanager
def temporary_folder() -> Iterator[Path | None]:
    """Make a private folder where the system keeps temporary files; None if none of them can be written."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder(Path(tempfile.gettempdir())))
        except OSError as error:
            log.debug("no temporary folder: %s", error)
            folder = None
        yield folder


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a private folder in `parent` for the `with` block, and remove those that killed services left.

    It is locked by this process and those forked from it, so that others know that it is in use.
    """
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=parent))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = folder.rename(parent / (_FINISHED + folder.name.removeprefix(_UNFINISHED)))
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_UNFINISHED}*"):
        with suppress(OSError):
            if _is_ours(folder) and time.time() - folder.lstat().st_mtime > _LONG_S:
                shutil.rmtree(folder, ignore_errors=True)
    for lock in parent.glob(f"{_FINISHED}*/{_LOCK}"):
        with suppress(OSError):  # in use, or just removed by its own process
            if _is_ours(lock.parent):
                with lock.open("r+") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock.parent, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    return folder.lstat().st_uid == os.geteuid()
