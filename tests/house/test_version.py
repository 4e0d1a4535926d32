"""One place says the version, pyproject.toml, and every other that names it says the same."""

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

from service.lifecycle import VERSION
from tests.support.serving import ROOT
from tests.support.tracked import texts

IMAGE = re.compile(
    r"\bheadlight(?:-exporter)?:(?:([\w.]+)-)?(?:cpu|torch|gpu)\b|\bnewTag: (?:([\w.]+)-)?(?:cpu|torch|gpu)\b"
)
LABEL = re.compile(r'image\.version="([^"]*)"')
PACKED = re.compile(r"headlight-client-([\w.]+)\.tgz")
SHOWN = re.compile(r'"version":"([^"]*)","models"|build_info\{version="([^"]*)"\}')
_PACKAGE = ("client/js/package.json", "client/js/package-lock.json")
_TESTS = ("tests/", "benchmarks/", "CHANGELOG.md")


def stale(contents: Mapping[str, str], version: str) -> list[tuple[str, str]]:
    """Where an image, a label or an example has no version, or another one."""
    return [
        (name, match[0])
        for name, text in contents.items()
        if not name.startswith(_TESTS)
        for pattern in (IMAGE, LABEL, PACKED, SHOWN)
        for match in pattern.finditer(text)
        if version not in match.groups()
    ]


def test_the_installed_version_is_that_of_the_project() -> None:
    """What /info and the metrics tell is read from what is installed: `make` brings it up to date."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
    client = tomllib.loads((ROOT / "client" / "python" / "pyproject.toml").read_text(encoding="utf-8"))
    assert client["project"]["version"] == VERSION
    package, lock = (json.loads((ROOT / name).read_text(encoding="utf-8")) for name in _PACKAGE)
    assert (package["version"], lock["version"], lock["packages"][""]["version"]) == (VERSION,) * 3


def test_every_image_and_example_has_this_version() -> None:
    """A tag without a version would mean another image tomorrow, and roll out nothing."""
    contents = texts()
    assert stale(contents, VERSION) == []
    found = [name for name, text in contents.items() if not name.startswith(_TESTS) and IMAGE.search(text)]
    assert {"docker-compose.yml", "docs/containers.md", "deploy/kubernetes/base/deployment.yaml"} <= {*found}


def test_a_new_version_is_set_everywhere_at_once(tmp_path: Path) -> None:
    """`make version` leaves no place behind, and changes nothing else that has the same number."""
    before = {name: text for name, text in texts().items() if not name.startswith(_TESTS)}
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = ["make", "--silent", "version", "NEW=98.7.6"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=30)
    after = {name: (tmp_path / name).read_text(encoding="utf-8") for name in before}
    assert stale(after, "98.7.6") == []
    assert {name: text.replace("98.7.6", VERSION) for name, text in after.items()} == before
    assert tomllib.loads(after["pyproject.toml"])["project"]["version"] == "98.7.6"
    package, lock = (json.loads(after[name]) for name in _PACKAGE)
    assert (package["version"], lock["version"], lock["packages"][""]["version"]) == ("98.7.6",) * 3
