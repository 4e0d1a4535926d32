"""Keeps what takes long to make in a folder of this checkout, for later runs and the tests beside these."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

_PLACE = Path(__file__).parents[2] / ".pytest_cache"


def keep(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file or folder of this name, which is made at the first call of any process.

    The name contains a checksum of everything that it is made of.
    """
    kept = _PLACE / name
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_name(f"{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with TemporaryDirectory(dir=kept.parent) as place:
                whole = Path(place) / "whole"
                make(whole)
                whole.rename(kept)
    return kept
