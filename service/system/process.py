"""Process-wide tuning of libraries for a server; variables set by the operator take precedence."""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from pathlib import Path

from threadpoolctl import threadpool_limits

from model.memory import trim_memory

# Between the products of one pass PyTorch's threads should spin, since waking them takes longer than a small
# product; between passes they should sleep and leave the cores to others. This many spins take a few
# microseconds (chosen by measurement: `benchmarks/service/throughput.md`).
_SPINS = "2000"
# Enough for every shape of one model's products, about 500 with batches of 1,024 tokens; a larger cache is no
# faster (measured).
_PRIMITIVES = "1024"

# How long, in seconds, a computing thread may keep the interpreter while the event loop waits for it. With
# Python's default of 5 ms, one long text to tokenize held everybody up for 7 to 10 ms; with 1 ms, short texts
# under load take a thirtieth longer.
_SWITCH_S = 0.003

# The youngest generation is collected as usual, the oldest a hundred times less often.
_GC_THRESHOLDS = (700, 10, 1000)

# From Linux's prctl.h.
_PR_SET_PDEATHSIG = 1
# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 128 * 2**20
# The most that glibc allows.
_LARGE_BYTES = 32 * 2**20
# Each arena keeps freed memory of its own, and few threads allocate at a time: a second one is no faster.
_ARENAS = 1


def set_up_process() -> None:
    """Tune the process before PyTorch is imported."""
    set_environment()
    allow_connections()
    sys.setswitchinterval(_SWITCH_S)
    limit_products()
    keep_freed_memory()


def set_environment() -> None:
    """Set the variables that libraries read when loaded; call before importing PyTorch."""
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _PRIMITIVES)
    # The cores are needed for batches, so texts are tokenized by one thread. Measured: a third less time for
    # a short text, and the same time for 32 texts, which two threads tokenize no faster.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def allow_connections() -> None:
    """Raise the soft limit of open files to the hard limit.

    Each connection needs one, and many systems start with 1024.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # If the hard limit is infinite, macOS rejects values above its own maximum.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit_products() -> None:
    """Have numpy multiply on the calling thread only; call after importing numpy.

    Its products are small, and there is already a thread per core: four times as fast for the queries and
    keys of twelve heads.
    """
    threadpool_limits(limits=1, user_api="blas")


def keep_freed_memory(processes: int = 1) -> None:
    """Have glibc keep freed memory for the next pass; a no-op with other C libraries.

    The arrays of a pass take megabytes. If returned to the system, their pages have to be faulted in and
    zeroed again: a pass with the first row of all maps takes 1.06 times as long as one without maps, and 1.14
    times without this (`benchmarks/passes/attention.py`); one of 4,096 tokens in ModernBERT-base's sizes
    takes 0.88 times as long as if blocks above 8 MB were returned. This costs about 150 MB under load, and
    240 MB with a model of that size; several processes divide that between them. An idle service returns
    the memory.
    """
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in own):
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES // processes)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def freeze() -> None:
    """Exclude everything loaded so far from garbage collection: it lives as long as the process.

    A full collection traverses everything in the queue and stops the service for tens of milliseconds.
    Requests leave no reference cycles behind, so it may be rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def settle() -> None:
    """Freeze what the start has loaded, and return what only the start needed to the system."""
    freeze()
    trim_memory()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; a no-op where the system is not Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has died already
        os._exit(1)


def resident_bytes() -> int:
    """Return the resident size of the process in bytes; 0 if the system is not Linux."""
    return _resident()[0]


def proportional_bytes(process: int) -> int:
    """Return the resident size of a process, counting 1/n of memory that n processes share; 0 if unknown."""
    try:
        lines = Path("/proc", str(process), "smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended, or the system is not Linux
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def own_bytes() -> int:
    """Return the resident size without shared memory and pages of files, which the system can take back."""
    whole, shared = _resident()
    return whole - shared


def _resident() -> tuple[int, int]:
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 (a third of the time)
            _, whole, shared, *_ = file.read(100).split()
    except OSError:
        return 0, 0
    return int(whole) * resource.getpagesize(), int(shared) * resource.getpagesize()
