"""What libraries are told: only where nobody has said otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SET = """
import os
from service.process import set_environment
set_environment()
print(*(os.environ[name] for name in ("GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")))
"""
_FAULTS = """
import resource, sys
import numpy as np
from service.process import keep_freed_memory
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
_PAGES = """
import mmap, sys
from service.process import release_file_pages
def resident(kind):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(kind))
with open(sys.argv[1], "rb") as file:
    read = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    changed = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
assert read[:] == changed[:]
changed[5:9] = b"here"
before = resident("RssFile")
release_file_pages()
print(before - resident("RssFile"), read[5:9].decode(), changed[5:9].decode(), changed[9:13].decode())
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


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed as Linux does")
def test_pages_of_files_are_released_unless_they_were_changed(tmp_path: Path) -> None:
    """What was read from a file is mapped no longer, and is there again when it is read; changes are kept."""
    file = tmp_path / "weights"
    file.write_bytes(b"text" * 2**20)
    kilobytes, read, changed, after = run(_PAGES, str(file)).split()
    assert int(kilobytes) >= 4 * 2**10  # the mapping that was only read
    assert (read, changed, after) == ("extt", "here", "extt")
