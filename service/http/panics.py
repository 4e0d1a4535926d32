"""Panics of libraries in Rust: in Python they are no Exception, and pass by whatever handles those."""

import asyncio

_CONTROL = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)


class PanicError(Exception):
    """A library failed at an assertion of its own: what it was asked for has failed, and nothing else."""


def is_panic(error: BaseException) -> bool:
    """Tell a panic (`pyo3_runtime.PanicException`, which no module exports) from what ends a task."""
    return not isinstance(error, (Exception, *_CONTROL))
