"""Runs programs of client libraries, each in an environment of its own."""

import json
import os
import subprocess
from typing import Any

import pytest

from tests.support.serving import ROOT

ENVIRONMENTS = ROOT / "tests" / "clients" / "environments"


def needs(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a module whose programs run in the environment of this name."""
    missing = not (ROOT / ".venv-clients" / name / "bin" / "python").exists()
    reason = f"its environment is not installed: make test-clients, or make .venv-clients/{name}/.done"
    return [pytest.mark.clients, pytest.mark.thorough, pytest.mark.skipif(missing, reason=reason)]


def run(name: str, program: str, **given: object) -> str:
    """Run a program, which finds what is `given` in the variable GIVEN as JSON; its standard output."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "HOME", "TMPDIR")}
    quiet = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "ANONYMIZED_TELEMETRY": "False",
    }
    done = subprocess.run(
        [str(ROOT / ".venv-clients" / name / "bin" / "python"), "-c", program],
        env=kept | quiet | {"GIVEN": json.dumps(given), "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answers(name: str, program: str, **given: object) -> Any:
    """Run a program that prints JSON as its last line; what it printed."""
    head = "import json, os\ngiven = json.loads(os.environ['GIVEN'])\n"
    return json.loads(run(name, head + program, **given).splitlines()[-1])
