"""The built page in the repository is what its sources make, and is small; no Node is needed to see it."""

import gzip
import hashlib
from pathlib import Path

from service.explorer.page import FOLDER
from tests.support.serving import ROOT

SOURCES = ROOT / "explorer"
FILES = ("package.json", "package-lock.json", "build.mjs", "tsconfig.json", "index.html")
LIMIT = 75_000


def sources(root: Path) -> list[Path]:
    """Every file that decides what the page is, sorted by the bytes of its path."""
    listed = [path for folder in ("explorer/src", "client/js/src") for path in (root / folder).rglob("*")]
    files = [*(root / "explorer" / name for name in FILES), *(path for path in listed if path.is_file())]
    return sorted(files, key=lambda path: path.relative_to(root).as_posix().encode())


def checksum(root: Path) -> str:
    """64 bits of the SHA-256 of path, NUL, bytes and NUL of each source, as in `explorer/build.mjs`."""
    total = hashlib.sha256()
    for path in sources(root):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def test_the_bundle_is_built_of_the_sources_beside_it() -> None:
    """Its first line has their checksum: after a change, `npm run build` in `explorer/` renews it."""
    first = (FOLDER / "explorer.js").read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"/* sources sha256:{checksum(ROOT)} */", "run `npm ci && npm run build` in explorer/"
    assert (FOLDER / "index.html").read_bytes() == (SOURCES / "index.html").read_bytes()


def test_a_changed_source_has_another_checksum(tmp_path: Path) -> None:
    """Names count as much as contents, and none can be mistaken for the other."""
    for folder in ("explorer/src", "client/js/src"):
        (tmp_path / folder).mkdir(parents=True)
    for name in FILES:
        (tmp_path / "explorer" / name).write_text(name, encoding="utf-8")
    found = {checksum(tmp_path)}
    (tmp_path / "explorer" / "src" / "a.ts").write_text("1", encoding="utf-8")
    found.add(checksum(tmp_path))
    (tmp_path / "explorer" / "src" / "a.ts").rename(tmp_path / "client" / "js" / "src" / "a.ts")
    found.add(checksum(tmp_path))
    assert len(found) == 3


def test_the_page_is_small() -> None:
    """At most 75 kB on the way, compressed with gzip, all files together."""
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= LIMIT
