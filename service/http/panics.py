"""Panics of Rust libraries: in Python they are not Exceptions, so ordinary handlers do not catch them."""

import asyncio

_CONTROL = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)


class PanicError(Exception):
    """A Rust library panicked; only the current operation has failed."""


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic (`pyo3_runtime.PanicException`, not exported), not the end of a task."""
    return not isinstance(error, (Exception, *_CONTROL))
