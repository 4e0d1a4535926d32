"""What libraries are told so that they suit a server; whoever starts the process may say otherwise."""

import ctypes
import os

# Between the products of one pass the threads of PyTorch should spin, since waking them takes longer than a
# small product; between passes they should sleep, and leave the cores to others. So many turns are some
# microseconds (`benchmarks/README.md` has the measurement that chose them).
_SPINS = "2000"
# Code for more shapes of products than there are of one model's; each costs some kilobytes.
_PRIMITIVES = "4096"

# Of glibc's malloc.h: parameters of mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 * 2**20
_LARGE_BYTES = 16 * 2**20


def set_environment() -> None:
    """Set what libraries read when they are loaded; to be called before PyTorch is."""
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _PRIMITIVES)
    # The cores have batches to run: texts are tokenized by the one thread that was given them. Measured: a
    # third less time for a short text, as much for 32 texts, which two threads tokenize no faster.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MB that was freed for the next pass; a no-op elsewhere.

    The arrays of a pass are of megabytes. Given back to the system, they come back as pages that are cleared
    one by one: the first row of all maps costs 1.05 instead of 1.14 passes without that
    (`benchmarks/attention.py`). What has more than 16 MB is given back at once.
    """
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in own):
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
