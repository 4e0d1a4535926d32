"""Opens a graph with ONNX Runtime for serving, on the requested processor and no other."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# The runtime reads this variable only once, when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from model.control_groups import group_files, read_lines
from model.errors import CheckpointError, OutOfMemory, Stopped, Unsupported
from model.progress import Progress

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
ERRORS_ONLY = 3
SLOWER = ["SkipLayerNormFusion", "BiasGeluFusion", "MatMulAddFusion"]
"""Fusions whose CPU kernels are slower than the operators they replace, by 2 to 6 % of a run."""
_LEAST_CONSTANT, _MOST_CONSTANT = 2**24, 2**30
_CONSTANT_SHARE = 4
"""How many times as large as all weights a constant may be to be computed when a graph is opened."""
_ARENA_SHARE = 3 / 4
"""How much the arena may take of the memory that this process may use."""
_SAID = 300
_DOUBLED = 0
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "is smaller than requested bytes")
# The prefix of the runtime's error messages: its code, the file, a place in its source.
_CODE, _FILE = r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", r"(Load model from .*? failed: ?)?"
_AROUND = re.compile(f"{_CODE}{_FILE}(.*onnxruntime::)?")

Array = NDArray[Any]


@dataclass(frozen=True)
class Processor:
    """Where a graph runs: the `device` as in the settings, and the execution provider that must run it."""

    device: str
    provider: str

    @property
    def index(self) -> int:
        """The index of the CUDA device."""
        return int(self.device.partition(":")[2] or 0)


def choose_processor(device: str) -> Processor:
    """Resolve "auto" to CUDA if this ONNX Runtime supports it; raises Unsupported for a missing provider."""
    available = ort.get_available_providers()
    if device == "auto":
        # A GPU build lists its providers on every machine; the driver's device file shows if there is a GPU.
        device = "cuda" if CUDA in available and Path("/dev/nvidia0").exists() else "cpu"
    if device == "cpu":
        return Processor(device, CPU)
    if CUDA not in available:
        raise Unsupported(
            f"device {device} needs {CUDA}, but this ONNX Runtime has {', '.join(available)}: install "
            "onnxruntime-gpu instead of onnxruntime.",
            field="device",
        )
    return Processor(device, CUDA)


class Graph:
    """A graph that several threads can run at the same time; each run uses `threads` threads.

    Raises CheckpointError for a file that cannot be opened, and Unsupported for a missing device.
    """

    def __init__(
        self,
        path: Path,
        processor: Processor,
        threads: int,
        *,
        spin: bool = False,
        prepacked: bool = False,
        packed: bool = True,
    ) -> None:
        """Open a graph; `prepacked` says that `prepack` wrote it, so that nothing is left to optimise.

        If `packed` is False, products read the mapped weights, and no memory is needed for packed ones.
        """
        self.path = path
        self._device = processor
        options = serving_options(threads, spin=spin)
        bound_constants(options, path)
        if not packed:
            options.add_session_config_entry("session.disable_prepacking", "1")
        if prepacked:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = _open(path, options, processor)
        self.inputs: dict[str, Any] = {x.name: x for x in self._session.get_inputs()}
        self.outputs: dict[str, Any] = {x.name: x for x in self._session.get_outputs()}
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map

    def run(
        self, feed: Mapping[str, Array], outputs: Sequence[str], progress: Progress | None = None
    ) -> dict[str, Array]:
        """Run once; raises OutOfMemory if a smaller batch might fit, and Stopped if `progress` is to stop."""
        progress, options = progress or Progress(), ort.RunOptions()

        def end() -> None:
            options.terminate = True  # the run fails before its next operator

        try:
            with progress.ended_by(end):
                if self._device.provider == CPU:
                    results = self._session.run(list(outputs), dict(feed), options)
                else:
                    results = self._run_bound(feed, outputs, options)
        except MemoryError as error:
            raise OutOfMemory(str(error)) from error
        except Exception as error:
            if progress.stopping:
                raise Stopped from error
            if any(words in str(error) for words in _OUT_OF_MEMORY):
                raise OutOfMemory(str(error)) from error
            raise
        return dict(zip(outputs, results, strict=True))

    def trim_memory(self, feed: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Run once on the CPU, then return the freed memory of all sessions, except the arena's first region.

        The runtime shrinks its arena only at the end of a run.
        """
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return dict(zip(outputs, self._session.run(list(outputs), dict(feed), options), strict=True))

    def _run_bound(
        self, feed: Mapping[str, Array], outputs: Sequence[str], options: ort.RunOptions
    ) -> list[Array]:
        """Run with inputs and outputs bound to the device, so that each is copied only once."""
        binding = self._session.io_binding()
        for name, array in feed.items():
            if array.size:
                value = ort.OrtValue.ortvalue_from_numpy(array, "cuda", self._device.index)
                binding.bind_ortvalue_input(name, value)
            else:
                binding.bind_cpu_input(name, array)
        for name in outputs:
            binding.bind_output(name, "cuda", self._device.index)
        self._session.run_with_iobinding(binding, options)
        return [np.asarray(array) for array in binding.copy_outputs_to_cpu()]


def serving_options(threads: int, *, spin: bool) -> ort.SessionOptions:
    """Make the session options; `spin` lets the threads of a run wait for each other in a busy loop."""
    options = ort.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waking a thread takes longer than a small product, so threads may spin, but only within a run: between
    # runs the cores belong to other threads.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Memory patterns assume equal shapes, but lengths differ from run to run.
    options.enable_mem_pattern = False
    _share_arena()
    options.add_session_config_entry("session.use_env_allocators", "1")
    return options


def bound_constants(options: ort.SessionOptions, path: Path) -> None:
    """Have the runtime compute constants far larger than the weights only in a run, whose memory is bounded.

    It computes whatever depends on no input when it opens a graph: few bytes may describe gigabytes of ones.
    """
    weights = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
    limit = min(_MOST_CONSTANT, max(_LEAST_CONSTANT, _CONSTANT_SHARE * weights))
    options.add_session_config_entry("optimization.constant_folding_max_output_size_in_bytes", str(limit))


@cache
def _share_arena() -> None:
    """Make all sessions share one memory arena, which doubles when it is full.

    By default each session has its own arena. Without an arena, the kernel clears the pages of large arrays
    one by one: a fifth slower, and maps of all heads up to twice as slow. An arena that grew by the requested
    size would keep a region for each size: with texts in ascending length it took ten times the memory.

    It is bounded, so that a run that needs too much memory fails before the system ends the process.
    """
    settings = {"arena_extend_strategy": _DOUBLED, "max_mem": int(_ARENA_SHARE * _memory_limit())}
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(memory, ort.OrtArenaCfg(settings))


def _memory_limit() -> int:
    """Return how much memory this process may use, in bytes."""
    files = group_files(Path("/"), "memory", v2="memory.max", v1="memory.limit_in_bytes")
    limits = [int(line) for file in files for line in read_lines(file) if line.isdigit()]
    return min([*limits, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")])


def _open(path: Path, options: ort.SessionOptions, processor: Processor) -> ort.InferenceSession:
    try:
        session = ort.InferenceSession(
            path,
            options,
            providers=[CPU] if processor.provider == CPU else [(CUDA, {"device_id": processor.index}), CPU],
            disabled_optimizers=SLOWER if processor.provider == CPU else None,
        )
    except Exception as error:  # the runtime's errors have no common class
        raise CheckpointError(f"{path} {_reason(str(error))}.") from error
    # If a provider fails to start, the runtime silently falls back to the next one.
    running = session.get_providers()[0]
    if running != processor.provider:
        raise Unsupported(
            f"device is {processor.device}, but ONNX Runtime fell back to {running}: its log says what "
            f"{processor.provider} lacks, most often the CUDA or cuDNN libraries.",
            field="device",
        )
    return session


def _reason(error: str) -> str:
    """Say what is wrong with a file, without the error codes and source locations of the runtime."""
    if "IR version" in error or "under development" in error:
        return f"needs a newer ONNX Runtime than {ort.__version__}: upgrade it, or export the model again"
    if "xternal" in error:
        return "has its weights in a separate file, which is missing or damaged: export the model again"
    if "rotobuf" in error:
        return "is damaged or is not an ONNX file: export the model again"
    said = _AROUND.sub("", " ".join(error.split()))[:_SAID]
    return f"cannot be opened by ONNX Runtime {ort.__version__}, which says: {said.rstrip('.')}"
