"""Memory, time and files of a service's processes, added up."""

import json
import subprocess
import sys

from tests.support.serving import ROOT

_PROGRAM = """
import json, os, sys, time
from service.telemetry.processes import Processes

MB = 10**6
shared = bytearray(os.urandom(100 * MB))
ends = [os.pipe() for _ in range(4)]

def child(number):
    os.read(ends[number][0], 1)
    own = bytearray(os.urandom(40 * MB))
    os.write(ends[2 + number][1], b"x")
    time.sleep(60)

children = []
for number in range(2):
    if not (pid := os.fork()):
        child(number)
    children.append(pid)

def collect():
    return {metric.name: metric.samples[0].value for metric in metrics.collect()}

metrics = Processes(os.getpid())
found = [collect()]
for number in range(2):
    os.write(ends[number][1], b"x")
    os.read(ends[2 + number][0], 1)
    found.append(collect())
files = [open(os.devnull) for _ in range(50)]
found.append(collect())
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
found.append(collect())
print(json.dumps(found))
"""


def test_what_processes_share_counts_once() -> None:
    """100 MB that a process and its two children share, and 40 MB that each child has for itself."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    begin, one, both, files, alone = json.loads(done.stdout)
    memory = "process_resident_memory_bytes"
    assert 100e6 < begin[memory] < 190e6
    assert 35e6 < one[memory] - begin[memory] < 45e6
    assert 75e6 < both[memory] - begin[memory] < 85e6
    assert abs(alone[memory] - begin[memory]) < 20e6
    assert files["process_open_fds"] - both["process_open_fds"] == 50
    assert begin["process_max_fds"] == 3 * alone["process_max_fds"] > 0
    assert alone["process_cpu_seconds"] >= both["process_cpu_seconds"] > 0
