"""What libraries are told so that they suit a server; whoever starts the process may say otherwise."""

import contextlib
import ctypes
import os
import resource

from threadpoolctl import threadpool_limits

# Between the products of one pass the threads of PyTorch should spin, since waking them takes longer than a
# small product; between passes they should sleep, and leave the cores to others. So many turns are some
# microseconds (`benchmarks/README.md` has the measurement that chose them).
_SPINS = "2000"
# Enough for every shape of one model's products, some 500 with batches of 1,024 tokens; a larger cache is no
# faster (`benchmarks/README.md`).
_PRIMITIVES = "1024"

# Of glibc's malloc.h: parameters of mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 32 * 2**20
_LARGE_BYTES = 8 * 2**20
# Each keeps memory of its own, and few threads ask for any at a time: a second one is no faster.
_ARENAS = 1


def set_environment() -> None:
    """Set what libraries read when they are loaded; to be called before PyTorch is."""
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _PRIMITIVES)
    # The cores have batches to run: texts are tokenized by the one thread that was given them. Measured: a
    # third less time for a short text, as much for 32 texts, which two threads tokenize no faster.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def allow_connections() -> None:
    """Raise the number of files that the process may have open, as far as it may by itself.

    Each connection is one, and many systems begin at 1024.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where there is no bound at all, macOS takes none beyond its own.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit_products() -> None:
    """Have numpy multiply on the calling thread alone; to be called when numpy is loaded.

    Its products are small, and come from as many threads as there are cores already: four times as fast for
    the queries and keys of twelve heads.
    """
    threadpool_limits(limits=1, user_api="blas")


def keep_freed_memory() -> None:
    """Have glibc keep memory that was freed for the next pass; a no-op elsewhere.

    The arrays of a pass are of megabytes. Given back to the system, they come back as pages that are cleared
    one by one: a pass with the first row of all maps takes 1.06 times as long as one without, and 1.14 times
    without this (`benchmarks/attention.py`). What has more than 8 MB is given back at once. It takes some 150
    MB under load.
    """
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in own):
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def resident_bytes() -> int:
    """Say how much memory the process has; 0 where the system is not Linux."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123 (a third of the time)
            pages = file.read(100).split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def trim_memory() -> None:
    """Have glibc give back to the system all that was freed; a no-op elsewhere.

    Where something large lived among small things that stay, what was freed would be kept for ever. It takes
    some ten milliseconds for each hundred megabytes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
