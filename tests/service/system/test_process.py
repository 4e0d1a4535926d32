"""What libraries are told: only where nobody has said otherwise."""

import os
import subprocess
import sys

import pytest

_SET = """
import os
from service.system.process import set_environment
set_environment()
print(*(os.environ[name] for name in ("GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")))
"""
_FAULTS = """
import resource, sys
import numpy as np
from service.system.process import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    together = [np.ones(2**19) for _ in range(6)]  # 4 MiB each
for _ in range(3):
    work()
before = faults()
for _ in range(20):
    work()
print(faults() - before)
"""


def run(program: str, *arguments: str, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", program, *arguments]
    environment = kept | variables
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def test_the_environment_wins() -> None:
    """What whoever starts the process has set is left as it is."""
    assert run(_SET, GOMP_SPINCOUNT="7", ONEDNN_PRIMITIVE_CACHE_CAPACITY="8") == "7 8"


@pytest.mark.skipif(sys.platform != "linux", reason="what is told is told to glibc")
def test_freed_memory_is_kept_for_the_next_array() -> None:
    """Arrays of megabytes are made without new pages; an own setting of malloc is left alone."""
    kept, given_back = (int(run(_FAULTS, how)) for how in ("keep", "give back"))
    assert given_back > 20 * 1000
    assert kept < given_back / 10
    assert int(run(_FAULTS, "keep", MALLOC_MMAP_THRESHOLD_="131072")) > 20 * 1000
