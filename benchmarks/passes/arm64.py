"""How near the inner loops of the kernels for ARM64 come to the limit of a processor's ports, in a model.

Compiles the kernels with a cross compiler, finds the loops that multiply whole blocks in the library, and has
llvm-mca run each of them. The limit is the time in which the processor's pipes for vectors do the products of
a loop and nothing else. Needs Debian's g++-aarch64-linux-gnu, and LLVM 19: older ones have no model of
Neoverse V1 and V2.

    python -m benchmarks.passes.arm64 [--mca llvm-mca-19]
"""

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.kit import tables
from benchmarks.kit.command_line import parser_for
from model.pytorch.kernels.build import build

_TOOLS = "aarch64-linux-gnu-"
_PIPES = {"neoverse-n1": 2, "neoverse-v1": 4, "neoverse-v2": 4}
"""The processors, and how many products of vectors each begins in a cycle."""
_PER_ROW = {"fmla": 16, "sdot": 16, "bfmmla": 4, "smmla": 4}
"""Products of a row in a loop: four words by four vectors of columns, or half of eight pairs of columns."""
_LEAST_ROWS = 4
"""Fewer rows wait for the sums before, not for pipes."""
_WIDENING = "shll"
"""Makes float32 of bfloat16."""
_LACKING = {("neoverse-n1", "bfmmla"), ("neoverse-n1", "smmla")}
_TURNS = 300


class Loop(NamedTuple):
    """The instructions of a loop, ending with the branch to its label."""

    instructions: tuple[str, ...]

    def count(self, name: str) -> int:
        """Count the instructions whose names begin like that."""
        return sum(one.startswith(name) for one in self.instructions)

    @property
    def kind(self) -> str | None:
        """The instruction that multiplies in it, if it is one that multiplies whole blocks."""
        for name, each in _PER_ROW.items():
            products = self.count(f"{name} ")
            if products >= _LEAST_ROWS * each and products % each == 0:
                return name
        return None

    @property
    def rows(self) -> int:
        """Those of a block that it multiplies."""
        return self.count(f"{self.kind} ") // _PER_ROW[str(self.kind)]

    @property
    def spills(self) -> bool:
        """Whether sums leave their registers."""
        return bool(self.count("st"))


def main() -> None:
    """Compile, simulate and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--mca", default="llvm-mca-19")
    mca = parser.parse_args().mca
    kinds: dict[tuple[str, bool, int], set[Loop]] = defaultdict(set)
    for loop in _loops(_disassembled()):
        if loop.kind:
            kinds[loop.kind, bool(loop.count(_WIDENING)), -loop.rows].add(loop)
    rows = []
    for (kind, widens, size), loops in sorted(kinds.items()):
        loads = max(loop.count("ld") for loop in loops)
        shares = [
            "" if (name, kind) in _LACKING else f"{min(_share(mca, name, loop) for loop in loops):.3f}"
            for name in _PIPES
        ]
        products = -size * _PER_ROW[kind]
        spilling = sum(loop.spills for loop in loops)
        name = f"{kind}, widening" if widens else kind
        rows.append([name, str(-size), str(len(loops)), str(products), str(loads), str(spilling), *shares])
    version = subprocess.run([mca, "--version"], capture_output=True, text=True, check=True).stdout
    tables.print_facts("Tools", [("llvm-mca", version.split("version ")[1].split()[0])])
    columns = ["products", "rows of a block", "loops", "in one", "loads", "spilling", *_PIPES]
    tables.print_table("Limit of the ports / cycles, the lowest of all loops for so many rows", columns, rows)


def _disassembled() -> str:
    os.environ["CXX"] = f"{_TOOLS}g++"
    with TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        build(library)
        command = [f"{_TOOLS}objdump", "--disassemble", "--no-show-raw-insn", str(library)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _loops(listing: str) -> Iterator[Loop]:
    """Find the innermost loops: a branch back, with no other branch since its target."""
    run: list[tuple[int, str]] = []
    for line in listing.splitlines():
        found = re.match(r" +([0-9a-f]+):\t(.*?)\s*(?://.*)?$", line)
        if not found:
            continue
        place, instruction = int(found[1], 16), found[2].replace("\t", " ")
        branch = re.match(r"(b\.\w+|cbn?z \w+,|tbn?z \w+, #\d+,) ([0-9a-f]+) <", instruction)
        if branch and run and run[0][0] <= int(branch[2], 16) <= place:
            body = [text for at, text in run if at >= int(branch[2], 16)]
            yield Loop((*body, f"{branch[1]} start"))
        if re.match(r"b\b|b\.|bl|br\b|cb|tb|ret", instruction):
            run = []
        else:
            run.append((place, instruction))


def _share(mca: str, processor: str, loop: Loop) -> float:
    command = [mca, "-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={_TURNS}"]
    text = "\n".join(["start:", *loop.instructions])
    printed = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    cycles = int(re.findall(r"Total Cycles: +(\d+)", printed)[0])
    return _TURNS * loop.count(f"{loop.kind} ") / _PIPES[processor] / cycles


if __name__ == "__main__":
    main()
