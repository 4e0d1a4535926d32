"""Programs that the tests of the deployment run, where `install.sh` puts them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headlight-deploy"
FACTS: list[str] = []
"""What was measured; told at the end."""
_PLACES = os.pathsep.join(
    [
        *(str(CACHE / place) for place in ("bin", "python/bin", "notebook/bin")),
        *(os.environ["PATH"], "/usr/sbin"),
    ]
)


def tool(name: str) -> str:
    """Find a program; a test that needs one that is missing fails, and says what to do."""
    found = shutil.which(name, path=_PLACES)
    if found is None:
        pytest.fail(
            f"{name} is not installed: run tests/deploy/install.sh, or make test-deploy.", pytrace=False
        )
    return found


def run(*command: str | Path, timeout: float = 120, check: bool = True, **options: object) -> str:
    """Run a program to its end; returns standard output, and shows all of it where it failed."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    if check and done.returncode != 0:
        shown = " ".join(str(part) for part in command)
        raise AssertionError(
            f"{shown} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        )
    return str(done.stdout)
