"""What a session keeps of the memory that its runs need, and how a run is ended."""

import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, save

from model.errors import Stopped
from model.onnx.session import Graph, choose_processor
from model.progress import Progress

PRODUCTS = 400

_RUNS = """
import resource, sys
from pathlib import Path
import numpy as np
from model.onnx.session import Graph, choose_processor
graph = Graph(Path(sys.argv[1]), choose_processor("cpu"), threads=1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
for mebibytes in range(1, 33):
    graph.run({"shape": np.array([mebibytes * 2**18])}, ["filled"])
print(peak() - before)
"""


def write(path: Path, nodes: list[NodeProto], given: ValueInfoProto, returned: ValueInfoProto) -> None:
    """Write a graph."""
    graph = helper.make_graph(nodes, "graph", [given], [returned])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def test_runs_that_need_more_and_more_reuse_what_the_ones_before_freed(tmp_path: Path) -> None:
    """Arrays of 1 to 32 MiB, one after the other, never take the 528 MiB that they have together."""
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    filled = helper.make_tensor_value_info("filled", TensorProto.FLOAT, [None])
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    node = helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=one)
    write(tmp_path / "fill.onnx", [node], shape, filled)
    command = [sys.executable, "-c", _RUNS, str(tmp_path / "fill.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 200


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A graph whose run takes seconds in `PRODUCTS` operators."""
    path = tmp_path_factory.mktemp("slow") / "slow.onnx"
    names = [f"x{i}" for i in range(PRODUCTS + 1)]
    nodes = [helper.make_node("MatMul", [a, "x0"], [b]) for a, b in pairwise(names)]
    given, returned = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in (names[0], names[-1])
    )
    write(path, nodes, given, returned)
    return Graph(path, choose_processor("cpu"), threads=1)


def products(slow: Graph, size: int, progress: Progress) -> float:
    """Multiply the unit matrix with itself; returns its first number."""
    return float(
        slow.run({"x0": np.eye(size, dtype=np.float32)}, [f"x{PRODUCTS}"], progress)[f"x{PRODUCTS}"][0, 0]
    )


def test_a_run_is_ended_in_its_middle_by_those_who_watch_it(slow: Graph) -> None:
    """It fails with Stopped between two operators; another run of the session beside it goes on."""
    progress, beside = Progress(), list[float]()

    def stop() -> None:
        beside.append(products(slow, 8, Progress()))
        while progress._end is None:
            time.sleep(0.001)
        time.sleep(0.02)
        progress.stop()
        beside.append(products(slow, 8, Progress()))

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Stopped) as stopped:
        products(slow, 512, progress)
    thread.join()
    assert "terminate" in str(stopped.value.__cause__)
    assert beside == [1, 1]
    assert products(slow, 8, Progress()) == 1


def test_a_run_that_was_stopped_before_does_not_begin(slow: Graph) -> None:
    """A request to end comes between two runs as well; one that comes after a run changes nothing."""
    finished, progress = Progress(), Progress()
    assert products(slow, 8, finished) == 1
    for one in (finished, progress):
        one.stop()
        with pytest.raises(Stopped):
            products(slow, 8, one)


def test_other_failures_of_a_run_stay_what_they_are(slow: Graph) -> None:
    """Nobody stopped it."""
    with pytest.raises(Exception, match="MatMul") as failed:
        slow.run({"x0": np.zeros((2, 3), np.float32)}, [f"x{PRODUCTS}"], Progress())
    assert not isinstance(failed.value, Stopped)
