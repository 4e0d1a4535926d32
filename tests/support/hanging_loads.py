"""`python -m tests.support.hanging_loads` is the service with models whose loading keeps the interpreter."""

import ctypes
import sys
from typing import Any

from service import loading
from service.command_line import run


def hang(*arguments: object, **options: object) -> Any:
    """Sleep in native code without giving up the interpreter's lock, which `CDLL` would."""
    ctypes.PyDLL(None).sleep(60)


if __name__ == "__main__":
    loading.load_model = loading.prepare_model = hang  # type: ignore[attr-defined]
    sys.exit(run(sys.argv[1:]))
