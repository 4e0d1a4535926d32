"""How the kernels are built, found, told from those of another version, and run under sanitizers."""

import os
import platform
import re
import shutil
import subprocess
import sys
from ctypes import CDLL, Structure, sizeof
from pathlib import Path

import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import STATISTICS
from model.progress import Counters
from model.pytorch.backend import TorchBackend
from model.pytorch.kernels import library, structures
from model.pytorch.kernels.build import NotBuilt, build, find_compiler, find_machine
from model.pytorch.kernels.instructions import EIGHT_BITS, KERNEL_SETS
from model.pytorch.kernels.library import NoKernels, find_kernels
from model.pytorch.kernels.sources import FOLDER
from tests.references.checkpoints import MINILM
from tests.support.backends import instructions
from tests.support.kernel import capabilities, needs_kernels
from tests.support.serving import ROOT

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="these instructions are those of x86-64")
CROSS, QEMU = "aarch64-linux-gnu-g++", shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
needs_cross_compiler = pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"there is no {CROSS}")


@on_x86
@needs_kernels
@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm, of binutils")
def test_sums_of_products_stay_in_registers() -> None:
    """Every function that takes vectors by reference was inlined: sums in memory take twice the time.

    What a compiler inlines by itself depends on all else in the file. Names are those of GCC on x86-64.
    """
    command = ["nm", "--demangle", "--defined-only", str(library.FILE)]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert any("multiply_integers" in symbol for symbol in symbols), "the names of functions are there"
    assert [symbol for symbol in symbols if re.search(r"__vector\(\d+\) ?(\(&\)|&)", symbol)] == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "they were not built: install headlight again on a machine with a C++ compiler"),
        (b"no library", "the built library cannot be loaded"),
    ],
)
def test_without_a_library_there_are_no_kernels(
    content: bytes | None, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not built, or built for another machine: the plain path serves, and says why."""
    file = tmp_path / "lib.so"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(library, "FILE", file)
    library._library.cache_clear()
    try:
        with pytest.raises(NoKernels, match=re.escape(sentence)):
            find_kernels(torch.float32)
        backend = TorchBackend(load_checkpoint(resolve(MINILM)), dtype="float32")
    finally:
        library._library.cache_clear()
    assert backend.info.kernels is None
    assert backend.info.no_kernels is not None
    assert sentence in backend.info.no_kernels


@needs_kernels
def test_kernels_of_another_version_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of other sources is told by their checksum."""
    monkeypatch.setattr(library, "checksum", lambda: 0)
    library._library.cache_clear()
    try:
        with pytest.raises(NoKernels, match="they were built for another version"):
            find_kernels(torch.float32)
    finally:
        library._library.cache_clear()


@needs_kernels
def test_structures_lie_as_the_compiler_lays_them_out(tmp_path: Path) -> None:
    """Each field of each structure of interface.h, and no others."""
    declared: dict[str, type[Structure]] = {
        name: found
        for name, found in vars(structures).items()
        if isinstance(found, type) and issubclass(found, Structure)
    } | {"Progress": Counters}
    placed = {f"sizeof({name})": sizeof(structure) for name, structure in declared.items()} | {
        f"offsetof({name}, {field})": getattr(structure, field).offset
        for name, structure in declared.items()
        for field, *_ in structure._fields_
    }
    lines = ["#include <cstddef>", "#include <cstdio>", '#include "interface.h"', "int main() {"]
    lines += (f'std::printf("%zu\\n", {expression});' for expression in placed)
    source, program = tmp_path / "layout.cpp", tmp_path / "layout"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run([*find_compiler(), "-std=c++20", f"-I{FOLDER}", source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert dict(zip(placed, map(int, printed.split()), strict=True)) == placed
    assert set(declared) == set(re.findall(r"^struct (\w+) {", (FOLDER / "interface.h").read_text(), re.M))


def test_the_kernels_sum_the_statistics_of_the_contract() -> None:
    """By name, and in the same order."""
    (names,) = re.findall(r"enum Statistic \{(.*?)\};", (FOLDER / "statistics.h").read_text(), re.S)
    found = re.findall(r"^ +(\w+),", names, re.M)
    assert found == [*(name.upper() for name in STATISTICS), "STATISTICS"]


@needs_kernels
@pytest.mark.thorough
def test_a_new_build_leaves_those_that_run_alone(tmp_path: Path) -> None:
    """A process goes on with the library that it has opened; a build that fails leaves none behind."""
    target, quickly = tmp_path / "lib.so", ["-O0"]
    build(target, quickly)
    opened, before = CDLL(str(target)), target.stat().st_ino
    build(target, quickly)
    assert target.stat().st_ino != before
    assert opened.headlight_run_layers(None) == -2
    with pytest.raises(NotBuilt):
        build(target, ["-no-such-option"])
    assert not target.exists()


@needs_kernels
def test_instruction_sets_share_no_function() -> None:
    """The linker keeps one of the functions of a name: a processor might run what another set compiled."""
    listed = subprocess.run(
        ["nm", "--demangle", "--defined-only", str(library.FILE)], capture_output=True, text=True, check=True
    )
    names = [line.split(maxsplit=2)[2] for line in listed.stdout.splitlines()]
    ours = [name for name in names if "headlight::" in name]
    sets = {name.split("headlight::")[1].split("::")[0] for name in ours}
    compiled = [one.instructions for one in (*KERNEL_SETS, *EIGHT_BITS)]
    assert sets == {one.name for one in compiled if one.machine == platform.machine()}
    assert [name for name in names if "std::" in name and name not in ours] == []


@on_x86
@needs_kernels
def test_what_is_compiled_for_avx2_or_for_any_processor_needs_no_more() -> None:
    """No register that only AVX-512 or AMX has, nor masks."""
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", str(library.FILE)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    functions = re.findall(r"^[0-9a-f]+ <(.+)>:\n((?:.+\n)*)", listed, re.MULTILINE)
    wider = re.compile(r"%zmm|%k[0-7]|%tmm|%[xy]mm(?:1[6-9]|2[0-9]|3[01])\b")
    found = dict.fromkeys(("avx2", "avx_vnni", "avx512", "Widened"), 0)
    for name, code in functions:
        assert re.search("avx512|amx", name) or not wider.search(code), name
        for one in found:
            found[one] += (one in name) * code.count("\n")
        if "vpdpbusd" in code:
            assert "avx2::" not in name
            assert "{vex}" in code or "_vnni" in name or "amx_int8" in name
    assert min(found.values()) > 100, "they were found"


@needs_kernels
@pytest.mark.thorough
def test_the_compiler_has_nothing_to_warn_of(tmp_path: Path) -> None:
    """For users a new compiler's new warning is no reason to go without; here it is one to mend it."""
    build(tmp_path / "lib.so", ["-Werror"])
    assert CDLL(str(tmp_path / "lib.so")).headlight_is_intel() in {0, 1}


def exported(library_: Path) -> set[str]:
    """The functions and numbers of ours that a library for any processor has."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", library_], capture_output=True, text=True, check=True
    )
    return {line.split()[-1] for line in listed.stdout.splitlines() if "headlight_" in line}


@needs_cross_compiler
def test_a_library_has_the_kernels_of_the_processor_that_it_is_compiled_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a cross compiler those of another one, and no warning."""
    monkeypatch.setenv("CXX", CROSS)
    assert find_machine(find_compiler()) == "aarch64"
    build(tmp_path / "lib.so", ["-O0", "-Werror"])
    assert (tmp_path / "lib.so").read_bytes()[18:20] == b"\xb7\x00", "the machine in the header: ARM64"
    found = exported(tmp_path / "lib.so")
    ended = {
        re.sub(r".*_(float32|bfloat16)_", r"\1 ", name) for name in found if re.search("float(16|32)_", name)
    }
    compiled = [one for one in (*KERNEL_SETS, *EIGHT_BITS) if one.instructions.machine == "aarch64"]
    assert ended == {f"{one.precision} {one.instructions.name}" for one in compiled}
    assert {"headlight_attend_float32_neon", "headlight_run_layers", "headlight_sources"} <= found


@needs_cross_compiler
@pytest.mark.thorough
@pytest.mark.skipif(QEMU is None, reason="there is no qemu-aarch64")
@pytest.mark.parametrize(
    ("processor", "sets"),
    [
        ("max", ["neon", "neon_bf16", "neon_dotprod", "neon_i8mm"]),
        ("neoverse-n1", ["neon_dotprod"]),
        ("cortex-a72", ["neon"]),
    ],
)
def test_kernels_for_arm64_compute_what_naive_ones_do(
    processor: str, sets: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Emulated, as new as can be and as old as ARM64 is, watched for undefined behaviour."""
    monkeypatch.setenv("CXX", CROSS)
    program = compile_sanitized(tmp_path, ["-fsanitize=undefined"])
    command = [str(QEMU), "-cpu", processor, "-L", "/usr/aarch64-linux-gnu", str(program), "3", *sets]
    run_sanitized(command, timeout=900)  # an emulator is slow


def test_the_build_says_in_a_sentence_why_it_cannot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a compiler, with one that fails, and with one for another kind of processor."""
    elsewhere = tmp_path / "elsewhere-g++"
    elsewhere.write_text("#!/bin/sh\necho riscv64-linux-gnu\n")
    elsewhere.chmod(0o755)
    cases = (
        (
            "no-such-compiler -O2",
            "the C++ compiler no-such-compiler is not installed: install it, or set CXX.",
        ),
        ("false -x", "failed"),
        (str(elsewhere), "there are no kernels for riscv64-linux-gnu."),
    )
    for compiler, sentence in cases:
        monkeypatch.setenv("CXX", compiler)
        with pytest.raises(NotBuilt) as refused:
            build(tmp_path / "lib.so")
        assert sentence in str(refused.value)
        assert "\n" not in str(refused.value)
        assert not (tmp_path / "lib.so").exists()


def compile_sanitized(place: Path, sanitizers: list[str]) -> Path:
    """Compile `sanitized.cpp` and a library for it."""
    program, library_ = place / "sanitized", place / "libsanitized.so"
    sanitize = ["-O1", "-g", *sanitizers, "-fno-sanitize-recover=all"]
    build(library_, [*sanitize, "-DHEADLIGHT_EMULATE_TILES"])
    source = ROOT / "tests" / "model" / "sanitized.cpp"
    compiler = find_compiler()
    # The program itself runs on any processor that has kernels.
    own = ["-mf16c"] if find_machine(compiler) == "x86_64" else []
    compile_ = [*compiler, "-std=c++20", *sanitize, "-fopenmp", *own]
    subprocess.run([*compile_, source, library_, "-o", program], check=True, timeout=300)
    return program


def run_sanitized(command: list[str], timeout: int = 300) -> None:
    """Run what `compile_sanitized` has compiled."""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")]
)
def test_where_there_are_no_kernels_nobody_is_told_to_install_a_compiler(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is a compiler makes no difference there."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(NotBuilt, match=rf"^there are no kernels for {machine} on {system}\.$"):
        find_compiler()


@needs_kernels
@pytest.mark.thorough
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Random shapes, lengths and views, and arguments that do not fit, with every access watched."""
    program = compile_sanitized(tmp_path, ["-fsanitize=address,undefined"])
    can = capabilities()
    sets = ["neon"] if can.get("neon") else ["avx2"]
    sets += [f"neon_{one}" for one in ("bf16", "i8mm") if can.get("neon") and can.get(one)]
    sets += ["neon_dotprod"] if can.get("asimddp") else []
    sets += ["avx512"] if instructions(torch.float32) == "avx512" else []
    sets += ["avx512_bf16"] if can.get("avx512_bf16") else []
    sets += ["avx_vnni"] if can.get("avx_vnni") else []
    sets += ["avx512_vnni"] if can.get("avx512_vnni") else []
    sets += ["avx512_vnni_bf16", "amx_int8"] if can.get("avx512_vnni") and can.get("avx512_bf16") else []
    run_sanitized([str(program), "60", *sets])


_THREADS = """
import os
import numpy as np
import torch
from model.pytorch.kernels.library import find_kernels
from tests.support.kernel import attend

def count(call):
    call()
    return len(os.listdir("/proc/self/task"))

q = torch.randn(512, 8, 32)
output, starts = torch.empty_like(q), np.arange(0, 513, 64)
ours = lambda: attend(find_kernels(torch.float32), q, q, q, starts, output)
theirs = lambda: torch.ones(10**6).add_(1)
torch.set_num_threads(1)
print(count(ours), count(theirs))
torch.set_num_threads(3)
print(count(ours), count(theirs), count(ours))
"""


@pytest.mark.thorough
@needs_kernels
def test_threads_are_those_of_torch() -> None:
    """As many as PyTorch was told for the calling thread, and the very same ones: nobody starts more."""
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    alone, among = (list(map(int, line.split())) for line in done.stdout.splitlines())
    assert alone == [alone[0]] * 2
    assert among == [alone[0] + 2] * 3
