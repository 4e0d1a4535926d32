"""What a start needs and does not get ends it, in one sentence, with one process and with several."""

import re
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.contract.test_processes import is_listening, wait_until
from tests.references.checkpoints import write_bert
from tests.support.serving import ROOT, environment, read_answer, request_bytes, run_command, serve

pytestmark = pytest.mark.thorough

both = pytest.mark.parametrize("processes", [1, 2])
MIB = 2**20


def write_endless(folder: Path) -> None:
    """Save a small BERT, and beside it a graph whose loop never ends."""
    hidden = write_bert(folder).config.hidden_size
    (folder / "onnx").mkdir()
    table = np.zeros((1000, hidden), np.float32)
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Identity", ["old"], ["new"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("old", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("new", TensorProto.FLOAT, None),
        ],
    )
    ids = [
        helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "n"])
        for n in ("input_ids", "attention_mask")
    ]
    states = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "n", hidden])
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
            helper.make_node("Loop", ["", "yes", "embedded"], ["last_hidden_state"], body=body),
        ],
        "endless",
        ids,
        [states],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.ones((), bool), "yes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "onnx" / "model.onnx")


@both
def test_a_model_that_never_ends_its_first_pass_ends_the_start(tmp_path: Path, processes: int) -> None:
    """A loop in native code: the sentence names the model and how long it had, and the exit code is 1."""
    write_endless(tmp_path / "endless")
    model = tmp_path / "endless"
    code, _, err = run_command(
        port=0, model=f"endless={model}", backend="onnx", processes=processes, start_timeout_s=8
    )
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("headlight: the start took longer than HEADLIGHT_START_TIMEOUT_S=8 seconds")
    assert f"loading endless from {model}" in last
    assert "Traceback" not in err


@both
def test_a_model_that_keeps_the_interpreter_while_it_loads_ends_the_start(processes: int) -> None:
    """Where nothing of Python runs any more, the end is the same, and nothing of the service is left."""
    with serve(
        module="tests.support.hanging_loads", wait=False, exit_code=1, processes=processes, start_timeout_s=6
    ) as service:
        assert service.wait() == 1
        last = service.log.splitlines()[-1]
        assert last.startswith("headlight: the start took longer than HEADLIGHT_START_TIMEOUT_S=6 seconds")
        assert "loading all-MiniLM-L6-v2 from all-MiniLM-L6-v2" in last
        wait_until(lambda: not is_listening(service.port), service)


@both
def test_a_start_in_time_is_not_ended_later(processes: int) -> None:
    """The limit is one of the start alone, and no process that watched it is left."""
    limit_s = 15
    start = time.monotonic()
    with serve(processes=processes, start_timeout_s=limit_s) as service:
        time.sleep(max(0.0, start + limit_s + 1.5 - time.monotonic()))
        service.encode("It serves.")
        children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
        assert len(children.read_text(encoding="ascii").split()) == (2 if processes > 1 else 0)


@both
def test_memory_below_what_the_models_take_is_refused(processes: int) -> None:
    """Rather than a service that lives beyond its limit from the start: the sentence has both sizes."""
    code, _, err = run_command(port=0, processes=processes, memory_bytes=150 * MIB)
    assert code == 1
    last = err.splitlines()[-1]
    both_sizes = r"^headlight: .* takes (\d+) bytes .*HEADLIGHT_MEMORY_BYTES is 157286400 \(150 MiB\)"
    said = re.search(both_sizes, last)
    assert said is not None, err
    assert 150 * MIB < int(said[1]) < 1024 * MIB
    assert "Traceback" not in err


@both
def test_too_few_open_files_are_refused(processes: int) -> None:
    """The sentence has the limit, what is needed, and how to raise it."""
    code, err = run_with_files(40, processes)
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith("headlight: the limit of open files is 40, but ")
    assert "ulimit -n" in err


@both
def test_with_the_open_files_that_it_asks_for_it_serves(processes: int) -> None:
    """And as many connections as the sentence says, at the same time."""
    _, err = run_with_files(40, processes)
    said = re.search(r"need at least (\d+) each, (\d+) of them for connections", err)
    assert said is not None
    needed, connections = map(int, said.groups())
    with serve(processes=processes, wait=False) as service, ExitStack() as stack:
        service.wait_until_listening()
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (needed, needed))
        service.wait_until_ready()
        service.http.close()
        opened = [stack.enter_context(service.connect()) for _ in range(connections)]
        for connection in opened:
            connection.sendall(request_bytes("/livez", method="GET"))
        assert [read_answer(connection, "GET").status_code for connection in opened] == [200] * connections
        assert "too many open files" not in service.log
        assert "Traceback" not in service.log


def run_with_files(limit: int, processes: int) -> tuple[int, str]:
    """Run the command with a limit of open files to its end; returns the exit code and standard error."""
    ended = subprocess.run(
        ["prlimit", f"--nofile={limit}:{limit}", sys.executable, "-m", "service"],
        cwd=ROOT,
        env=environment(port=0, processes=processes),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stderr
