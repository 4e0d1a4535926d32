"""What the kernels are compiled from, so that a library of other sources is told from ours."""

import zlib
from pathlib import Path

FOLDER = Path(__file__).parent / "cpp"
"""Where the C++ is."""


def checksum() -> int:
    """Sum up all sources, and what they are called by: unsigned, 32 bits."""
    total = 0
    for path in [*sorted([*FOLDER.glob("*.h"), *FOLDER.glob("*.cpp")]), FOLDER.parent / "structures.py"]:
        total = zlib.crc32(path.read_bytes(), total)
    return total
