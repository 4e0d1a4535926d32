"""The sources of the kernels, and their checksum, which detects a library built from other sources."""

import zlib
from pathlib import Path

FOLDER = Path(__file__).parent / "cpp"
"""The folder of the C++ sources."""


def checksum() -> int:
    """Compute the CRC-32 of all C++ sources and of the table of what they are compiled for."""
    total = 0
    for path in [*sorted([*FOLDER.rglob("*.h"), *FOLDER.rglob("*.cpp")]), FOLDER.parent / "instructions.py"]:
        total = zlib.crc32(path.read_bytes(), total)
    return total
