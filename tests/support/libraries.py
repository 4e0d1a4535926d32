"""Runs programs of client libraries, each in an environment of its own."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.references.checkpoints import MINILM
from tests.support.serving import LONG, ROOT, Service, serve

ENVIRONMENTS = ROOT / ".venv-clients"
NODE = "node/"
"""How the names of environments with libraries for JavaScript start."""
KEY = "key-0123456789abcdef"
CROWD = [LONG] * 8
"""Texts that fill the queue of an overloaded service."""
AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
def at_once(call, times=6):
    together = Barrier(times)
    def one(_):
        together.wait(60)
        return call()
    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(one, range(times)))
def failure(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
"""
"""For programs: makes a call many times at once; the class and the text of a call's error, if it has one."""


@contextmanager
def overloaded(model: object = MINILM) -> Iterator[Service]:
    """Start a service whose queue holds the texts of one request of CROWD."""
    with serve(model=f"mini={model}", max_queue_tokens=256 * len(CROWD), threads=1) as started:
        yield started


def refusals(service: Service) -> int:
    """How many requests were refused with 429, whatever their routes."""
    return int(sum(count for name, count in service.metrics().items() if 'status="429"' in name))


def needs(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a module whose programs run in the environment of this name."""
    missing = not (ENVIRONMENTS / name / ".done").exists()
    reason = f"its environment is not installed: make test-libraries, or make .venv-clients/{name}/.done"
    return [pytest.mark.registry, pytest.mark.thorough, pytest.mark.skipif(missing, reason=reason)]


def run(name: str, program: str, **given: object) -> str:
    """Run a program of Python or, in an environment of NODE, of JavaScript; its standard output.

    It finds what is `given` in the variable GIVEN as JSON.
    """
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "HOME", "TMPDIR")}
    quiet = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "ANONYMIZED_TELEMETRY": "False",
    }
    where = ENVIRONMENTS / name
    python, node = (str(where / "bin" / "python"), "-c"), ("node", "--input-type=module", "--eval")
    done = subprocess.run(
        [*(node if name.startswith(NODE) else python), program],
        cwd=where,  # where Node looks for libraries
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
    if name.startswith(NODE):
        head = "const given = JSON.parse(process.env.GIVEN);\n"
    return json.loads(run(name, head + program, **given).splitlines()[-1])
