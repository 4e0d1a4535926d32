"""What a session keeps of the memory that its runs need."""

import subprocess
import sys
from pathlib import Path

from onnx import TensorProto, helper, save

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


def test_runs_that_need_more_and_more_reuse_what_the_ones_before_freed(tmp_path: Path) -> None:
    """Arrays of 1 to 32 MiB, one after the other, never take the 528 MiB that they have together."""
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    filled = helper.make_tensor_value_info("filled", TensorProto.FLOAT, [None])
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    node = helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=one)
    graph = helper.make_graph([node], "fill", [shape], [filled])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    save(model, tmp_path / "fill.onnx")
    command = [sys.executable, "-c", _RUNS, str(tmp_path / "fill.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 200
