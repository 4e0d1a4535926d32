"""A start that hangs is ended, also where nothing of Python runs any more."""

import subprocess
import sys

import pytest

from tests.support.serving import environment

_PROGRAM = """
import ctypes, os, sys, threading, time
from service.system.stages import tell_stage
from service.workers.start_limit import StartLimit

limit = StartLimit(1.5)
tell_stage("loading mini from /models/mini")
# Unlike `CDLL`, this keeps the interpreter's lock.
hang = lambda: ctypes.PyDLL(None).sleep(60)
if sys.argv[1] == "main":
    hang()
elif sys.argv[1] == "thread":
    threading.Thread(target=hang, daemon=True).start()
    time.sleep(60)
limit.end()
if os.fork() == 0:
    os._exit(0)
os.wait()
time.sleep(2.5)
print("alive")
"""


Ended = tuple[int, str, str]


@pytest.fixture(scope="module")
def ended() -> dict[str, Ended]:
    """How each program ended: all run at the same time, since most of it they wait."""
    begun = {
        how: subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for how in ("main", "thread", "in time")
    }
    written = {how: process.communicate(timeout=50) for how, process in begun.items()}
    return {how: (process.returncode, *written[how]) for how, process in begun.items()}


@pytest.mark.parametrize("how", ["main", "thread"])
def test_native_code_that_keeps_the_interpreter_is_ended(how: str, ended: dict[str, Ended]) -> None:
    """Exit code 1, and one sentence that says what it was doing, how long it had, and what to do."""
    code, out, err = ended[how]
    assert (code, out) == (1, "")
    assert err == (
        "headlight: the start took longer than HEADLIGHT_START_TIMEOUT_S=1.5 seconds and was stopped while "
        "loading mini from /models/mini: raise the limit if this step is only slow; otherwise it hangs.\n"
    )


def test_a_start_that_is_over_in_time_has_no_limit_any_more(ended: dict[str, Ended]) -> None:
    """The process lives on, has no other one beside it, and forks as before."""
    assert ended["in time"] == (0, "alive\n", "")
