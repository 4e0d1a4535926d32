"""Pages of files are released after loading, unless something would be lost."""

import gc
import mmap
import os
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from model import memory
from model.memory import unchanged_mappings
from service.system.file_pages import MappedFiles
from tests.support.kernel import needs_int8
from tests.support.serving import Service, serve

_PROGRAM = """
import mmap, sys
from model.memory import release_file_pages

def resident():
    kilobytes, ours = [], False
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            ours = line.rstrip().endswith(sys.argv[1])
        elif ours and words[0] == "Rss:":
            kilobytes.append(int(words[1]))
    return sorted(kilobytes)

with open(sys.argv[1], "rb") as file:
    ways = (mmap.ACCESS_READ, mmap.ACCESS_COPY, mmap.ACCESS_COPY)
    maps = [mmap.mmap(file.fileno(), 0, access=way) for way in ways]
contents = [each[:] for each in maps]
maps[2][5:9] = b"here"
print(*resident())
release_file_pages()
print(*resident())
print(*(each[5:13].decode() for each in maps))
"""
_LIBRARY = "7f00-7f10 r--p 00000000 fe:00 12 /usr/lib/some library.so"
_WEIGHTS = "7f00-7f10 rw-p 00000000 fe:00 12 /models/model.safetensors"


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed as Linux does")
def test_pages_are_released_unless_they_were_changed(tmp_path: Path) -> None:
    """What was only read is mapped no longer, and is there again when it is read; changes are kept."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"text" * mmap.PAGESIZE)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(file)], check=True, capture_output=True, text=True
    )
    before, after, contents = (line.split() for line in done.stdout.splitlines())
    assert [int(kilobytes) > 0 for kilobytes in before] == [True, True, True]
    assert [int(kilobytes) > 0 for kilobytes in after] == [False, False, True]
    assert contents == ["exttextt", "exttextt", "hereextt"]


@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed as Linux does")
def test_no_mapping_ends_while_pages_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is garbage keeps its file mapped until then: others may be given its addresses."""

    class Model:
        mapped: object

    gone: list[int] = []
    ended_while: list[int] = []

    def listed(smaps: str, **options: bool) -> Iterator[tuple[int, int]]:
        model = Model()
        model.mapped = model  # a cycle
        weakref.finalize(model, gone.append, 1)
        del model
        for _ in range(3):
            made = [[number] for number in range(10 * gc.get_threshold()[0])]  # enough for a collection
            ended_while.append(len(gone) if made else 0)
            yield 0, 0

    monkeypatch.setattr(memory, "unchanged_mappings", listed)
    memory.release_file_pages()
    assert ended_while == [0, 0, 0]
    assert gc.isenabled()
    gc.collect()
    assert gone == [1], "the test has seen a model end"


@pytest.mark.parametrize(
    ("head", "anonymous", "swap", "released"),
    [
        (_LIBRARY, 0, 0, True),
        (_LIBRARY, 4, 0, False),
        (_LIBRARY, 0, 4, False),  # relocations that are swapped out
        (_LIBRARY.replace("r--p", "rw-p"), 0, 0, False),  # variables that nothing has written yet
        (_LIBRARY.replace("/usr/lib/some library.so", "/dev/dri/card0"), 0, 0, False),
        (_LIBRARY.replace("/usr/lib/some library.so", "[vvar]"), 0, 0, False),
        (_LIBRARY.replace("/usr/lib/some library.so", ""), 0, 0, False),
        (_WEIGHTS, 0, 0, True),
        (_WEIGHTS, 4, 0, False),
        (_WEIGHTS.replace("models/model.safetensors", f"cache/blobs/{'0a' * 32}"), 0, 0, True),
        (f"{_WEIGHTS} (deleted)", 0, 0, True),  # replaced by another, which the next start reads
        (_WEIGHTS.replace(".safetensors", ".other"), 0, 0, False),
    ],
)
def test_mappings_whose_changes_would_be_lost_are_left_alone(
    head: str, anonymous: int, swap: int, released: bool
) -> None:
    """Those with pages of their own, those that may be written, and what is no file."""
    smaps = f"{head}\nRss: 64 kB\nAnonymous:  {anonymous} kB\nSwap:  {swap} kB\nVmFlags: rd mr\n"
    assert list(unchanged_mappings(smaps + smaps)) == 2 * released * [(0x7F00, 0x7F10)]


def test_of_weights_alone_no_other_file_is_released() -> None:
    """Threads that serve may map and unmap those."""
    smaps = "".join(f"{head}\nAnonymous: 0 kB\nSwap: 0 kB\n" for head in (_LIBRARY, _WEIGHTS))
    assert list(unchanged_mappings(smaps, only_weights=True)) == [(0x7F00, 0x7F10)]
    assert list(unchanged_mappings(smaps)) == 2 * [(0x7F00, 0x7F10)]


def kilobytes_of_weights(service: Service) -> int:
    """How much of the model's file is in memory, in a service of one process."""
    smaps = Path(f"/proc/{service.process.pid}/smaps").read_text(encoding="utf-8")
    (weights,) = re.findall(r"/model\.safetensors\n(?:\w+: .*\n)*?Rss: +(\d+) kB", smaps)
    return int(weights)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="mappings are listed as Linux does")
@pytest.mark.parametrize("dtype", ["float32", pytest.param("int8", marks=needs_int8)])
def test_original_weights_stay_out_of_memory(dtype: str) -> None:
    """What the kernels have laid out elsewhere, some 42 MB, is not mapped when the service is ready.

    In eight bits observed attention reads it, and a service at rest gives it back.
    """
    with serve(dtype=dtype, processes=1) as service:
        assert kilobytes_of_weights(service) < 10_000
        time.sleep(1)  # else memory of the start, which is freed by now, would hide what is read
        before = service.attention("How much is read?")
        assert (kilobytes_of_weights(service) > 30_000) == (dtype == "int8")
        until = time.monotonic() + 20
        while kilobytes_of_weights(service) > 10_000:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert service.attention("How much is read?") == before


def test_a_file_written_in_place_is_found_among_those_mapped(tmp_path: Path) -> None:
    """Shrunk, or written again as long as it was; not one that was replaced by another, nor a removed one."""
    names = ("shrunk", "written", "replaced", "removed", "kept")
    paths = {name: tmp_path / f"{name} weights" for name in names}
    for path in paths.values():
        path.write_bytes(bytes(10))
    noted = MappedFiles()
    with ExitStack() as stack:
        for path in paths.values():
            file = stack.enter_context(path.open("rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        noted.note()
    (tmp_path / "new").write_bytes(b"")
    (tmp_path / "new").rename(paths["replaced"])
    paths["removed"].unlink()
    assert noted.overwritten() is None
    os.utime(paths["written"], (1, 1))
    written = noted.overwritten()
    assert written is not None
    assert written.startswith(f"{paths['written']} was written while it was served: ")
    paths["shrunk"].write_bytes(bytes(9))
    shrunk = noted.overwritten()
    assert shrunk is not None
    assert shrunk.startswith(f"{paths['shrunk']} has shrunk from 10 to 9 bytes while it was served: ")
