"""A few bytes of a graph may describe gigabytes, or work without end: opening it begins neither."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from model.onnx import names as graph
from model.onnx.prepacking import prepack
from model.onnx.session import Graph, choose_processor
from tests.support.serving import ROOT

HIDDEN = 4


def save(path: Path, nodes: Sequence[NodeProto], **constants: np.ndarray) -> Path:
    """Write a graph that looks up tokens, and adds the number `more` that other nodes compute."""
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in (graph.INPUT_IDS, graph.ATTENTION_MASK)
    )
    output = helper.make_tensor_value_info(
        "last_hidden_state", TensorProto.FLOAT, ["batch", "length", HIDDEN]
    )
    arrays = {"table": np.zeros((92, HIDDEN), np.float32), **constants}
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    looked_up = helper.make_node("Gather", ["table", graph.INPUT_IDS], ["looked_up"])
    added = helper.make_node("Add", ["looked_up", "more"], ["last_hidden_state"])
    made = helper.make_graph([looked_up, *nodes, added], "hostile", [ids, mask], [output], initializers)
    operators = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(made, ir_version=10, opset_imports=operators), path)
    return path


def endless(path: Path) -> Path:
    """A loop of 10^12 turns over constants."""
    turn = [
        helper.make_tensor_value_info("turn", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [HIDDEN]),
    ]
    ends = [
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [HIDDEN]),
    ]
    steps = [helper.make_node("Identity", ["going"], ["goes_on"]), helper.make_node("Sin", ["x"], ["y"])]
    body = helper.make_graph(steps, "body", turn, ends)
    loop = helper.make_node("Loop", ["turns", "yes", "start"], ["more"], body=body)
    start = np.ones(HIDDEN, np.float32)
    return save(path, [loop], turns=np.array(10**12), yes=np.array(True), start=start)  # noqa: FBT003


def expanded(path: Path, count: int, size: int) -> Path:
    """So many matrices of ones, of which each row is looked up by the ids: they can be computed at once."""
    nodes: list[NodeProto] = []
    for i in range(count):
        nodes += [
            helper.make_node("Expand", ["one", "shape"], [f"ones_{i}"]),
            helper.make_node("Gather", [f"ones_{i}", graph.INPUT_IDS], [f"rows_{i}"]),
            helper.make_node("ReduceMax", [f"rows_{i}"], [f"max_{i}"], keepdims=0),
        ]
    nodes.append(helper.make_node("Sum", [f"max_{i}" for i in range(count)], ["more"]))
    return save(path, nodes, one=np.ones((1, 1), np.float32), shape=np.array([92, size]))


def test_a_loop_is_not_run_when_its_graph_is_opened(tmp_path: Path) -> None:
    """The runtime computes constants then, and nothing could stop it; a run of a loop can be stopped."""
    path = endless(tmp_path / "model.onnx")
    start = time.process_time()
    Graph(path, choose_processor("cpu"), 1)
    (tmp_path / "shared").mkdir()
    assert prepack(path, tmp_path / "shared") is not None
    assert time.process_time() - start < 5


def test_constants_that_are_far_larger_than_the_graph_are_not_computed_before_a_run(tmp_path: Path) -> None:
    """Else a kilobyte would take as many gigabytes of memory and of disk as it likes."""
    path = expanded(tmp_path / "model.onnx", count=4, size=100_000)
    (tmp_path / "shared").mkdir()
    shared = prepack(path, tmp_path / "shared")
    assert shared is not None
    assert sum(file.stat().st_size for file in shared.parent.iterdir()) < 10**6
    feed = {name: np.ones((1, 3), np.int64) for name in (graph.INPUT_IDS, graph.ATTENTION_MASK)}
    results = Graph(shared, choose_processor("cpu"), 1, prepacked=True).run(feed, ["last_hidden_state"])
    assert np.array_equal(results["last_hidden_state"], np.full((1, 3, HIDDEN), 4.0))


def test_constants_in_proportion_to_the_weights_are_still_computed_once(tmp_path: Path) -> None:
    """As for weights that are stored transposed: a run would compute them again and again."""
    path = expanded(tmp_path / "model.onnx", count=1, size=10_000)
    (tmp_path / "shared").mkdir()
    shared = prepack(path, tmp_path / "shared")
    assert shared is not None
    assert "Expand" not in {node.op_type for node in onnx.load(shared).graph.node}


RUN = """
import sys
from pathlib import Path
import numpy as np
from model.onnx import session
session._memory_limit = lambda: 2**26
opened = session.Graph(Path(sys.argv[1]), session.choose_processor("cpu"), 1)
ids = np.ones((1, 3), np.int64)
try:
    opened.run({"input_ids": ids, "attention_mask": ids}, ["last_hidden_state"])
except session.OutOfMemory:
    print("out of memory")
"""


@pytest.mark.parametrize(("size", "said"), [(200_000, "out of memory\n"), (10_000, "")])
def test_a_run_has_no_more_memory_than_the_process(size: int, said: str, tmp_path: Path) -> None:
    """It fails as if the system had refused it, so that the service goes on, or says why it cannot start."""
    path = expanded(tmp_path / "model.onnx", 1, size)
    done = subprocess.run(
        [sys.executable, "-c", RUN, path], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout == said
