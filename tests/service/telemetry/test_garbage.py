"""Garbage collections of several processes, added up."""

import re
import subprocess
import sys

import pytest

from tests.support.serving import ROOT

_PROGRAM = """
import gc, os
from service.protocols.endpoints import ENDPOINTS
from service.sharing.metric_values import MetricValues
from service.telemetry.metrics import Metrics

gc.disable()
shared = MetricValues(3)
for _ in range(5):
    gc.collect()
for number in range(2):
    if not (pid := os.fork()):
        metrics = Metrics("0", ENDPOINTS, shared.part(number))
        for _ in range(3 + number):
            gc.collect()
            metrics.garbage.update()
        gc.collect(0)
        metrics.garbage.update()
        metrics.garbage.update()
        os._exit(0)
    os.waitpid(pid, 0)
print(Metrics("0", ENDPOINTS, shared.part(2)).exposition().decode())
"""


@pytest.mark.thorough
def test_collections_of_all_processes_count_once() -> None:
    """Two processes collect three and four times, and once the youngest; the parent is no part."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    found = dict(re.findall(r'^headlight_gc_collections_total{generation="(.)"} (.+)$', done.stdout, re.M))
    assert found == {"0": "2.0", "1": "0.0", "2": "7.0"}
