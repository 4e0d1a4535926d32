"""Opens a graph with ONNX Runtime, for serving, on the processor that is asked for and no other."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# Its telemetry looks at the environment when it is imported, and never again.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from model.errors import CheckpointError, OutOfMemory, Unsupported

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
_ERRORS_ONLY = 3
_SLOWER = ["SkipLayerNormFusion", "BiasGeluFusion", "MatMulAddFusion"]
"""Optimisations whose kernels for CPUs are slower than what they replace, by 2 to 6 % of a run."""
_SAID = 300
_DOUBLED = 0
# What stands before the reason in an error of the runtime: its code, the file, a place in its source.
_CODE, _FILE = r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", r"(Load model from .*? failed: ?)?"
_AROUND = re.compile(f"{_CODE}{_FILE}(.*onnxruntime::)?")

Array = NDArray[Any]


@dataclass(frozen=True)
class Processor:
    """Where a graph runs: `device` as settings call it, and the provider that must run it."""

    device: str
    provider: str

    @property
    def index(self) -> int:
        """Which of the CUDA devices."""
        return int(self.device.partition(":")[2] or 0)


def choose_processor(device: str, *, tensorrt: bool = False) -> Processor:
    """Resolve "auto" to CUDA where this ONNX Runtime has it; refuse what it has not."""
    available = ort.get_available_providers()
    if device == "auto":
        # A build for GPUs lists its providers on every machine: whether there is a GPU, its driver knows.
        device = "cuda" if CUDA in available and Path("/dev/nvidia0").exists() else "cpu"
    if device == "cpu":
        if tensorrt:
            raise Unsupported("TensorRT runs on CUDA devices, and the device is cpu.", field="tensorrt")
        return Processor(device, CPU)
    provider = TENSORRT if tensorrt else CUDA
    if provider not in available:
        raise Unsupported(
            f"device {device} needs {provider}, and this ONNX Runtime has {', '.join(available)}: install "
            "onnxruntime-gpu in the place of onnxruntime.",
            field="device",
        )
    return Processor(device, provider)


class Graph:
    """A graph that can be run from several threads at a time; `threads` is how many one run uses.

    Raises CheckpointError for a file that cannot be opened, and Unsupported for a device that is not there.
    """

    def __init__(self, path: Path, processor: Processor, threads: int, *, spin: bool = False) -> None:
        self.path = path
        self._device = processor
        self._session = _open(path, serving_options(threads, spin=spin), processor)
        self.inputs: dict[str, Any] = {x.name: x for x in self._session.get_inputs()}
        self.outputs: dict[str, Any] = {x.name: x for x in self._session.get_outputs()}
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map

    def run(self, feed: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Run once; raises OutOfMemory when a smaller batch may do."""
        try:
            if self._device.provider == CPU:
                results = self._session.run(list(outputs), dict(feed))
            else:
                results = self._run_bound(feed, outputs)
        except MemoryError as error:
            raise OutOfMemory(str(error)) from error
        except Exception as error:
            if any(words in str(error) for words in ("allocate memory", "out of memory", "bad_alloc")):
                raise OutOfMemory(str(error)) from error
            raise
        return dict(zip(outputs, results, strict=True))

    def give_back(self, feed: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Run once, on the CPU, and then give back what all sessions keep of freed memory, but for the first.

        The runtime does it at the end of a run alone.
        """
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        return dict(zip(outputs, self._session.run(list(outputs), dict(feed), options), strict=True))

    def _run_bound(self, feed: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Run with inputs and outputs bound to the device, so that each crosses the bus once."""
        binding = self._session.io_binding()
        for name, array in feed.items():
            if array.size:
                value = ort.OrtValue.ortvalue_from_numpy(array, "cuda", self._device.index)
                binding.bind_ortvalue_input(name, value)
            else:
                binding.bind_cpu_input(name, array)
        for name in outputs:
            binding.bind_output(name, "cuda", self._device.index)
        self._session.run_with_iobinding(binding)
        return [np.asarray(array) for array in binding.copy_outputs_to_cpu()]


def serving_options(threads: int, *, spin: bool) -> ort.SessionOptions:
    """Say how a session uses the machine; `spin` lets its threads wait for each other in a loop."""
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waking a thread takes longer than a small product, so they may wait in a loop, but only within a run:
    # between runs the cores are for others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Lengths differ from run to run: what one needed says nothing of the next.
    options.enable_mem_pattern = False
    _share_arena()
    options.add_session_config_entry("session.use_env_allocators", "1")
    return options


@cache
def _share_arena() -> None:
    """Have all sessions keep freed memory in one place, which doubles when it is full.

    By default each session has an arena of its own. Without any, large arrays come as pages that are cleared
    one by one: a fifth slower, and maps of all heads up to twice as slow. One that grew by what is asked for
    would keep a region for each size: texts that come shorter ones first took ten times the memory.
    """
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, ort.OrtArenaCfg({"arena_extend_strategy": _DOUBLED}))


def _open(path: Path, options: ort.SessionOptions, processor: Processor) -> ort.InferenceSession:
    try:
        session = ort.InferenceSession(
            path,
            options,
            providers=_providers(processor, path.parent),
            disabled_optimizers=_SLOWER if processor.provider == CPU else None,
        )
    except Exception as error:  # the runtime's errors have no class in common
        raise CheckpointError(f"{path} {_reason(str(error))}.") from error
    # Where a provider fails to start, the runtime goes on with the next one in silence.
    running = session.get_providers()[0]
    if running != processor.provider:
        raise Unsupported(
            f"device {processor.device} was asked for and ONNX Runtime runs on {running}: its log says what "
            f"{processor.provider} lacks, most often the CUDA or cuDNN libraries.",
            field="device",
        )
    return session


def _providers(processor: Processor, folder: Path) -> list[Any]:
    index = {"device_id": processor.index}
    if processor.provider == CPU:
        return [CPU]
    cuda = (CUDA, index)
    if processor.provider == CUDA:
        return [cuda, CPU]
    # Engines take minutes to build: they are kept beside the graph that they are of.
    kept = {"trt_engine_cache_enable": True, "trt_engine_cache_path": str(folder / "tensorrt")}
    return [(TENSORRT, index | kept), cuda, CPU]


def _reason(error: str) -> str:
    """Say what is wrong with a file; what the runtime says has places in its source and codes around it."""
    if "IR version" in error or "under development" in error:
        return f"needs a newer ONNX Runtime than this one, {ort.__version__}: upgrade it, or export again"
    if "xternal" in error:
        return "has weights in a file of their own, which is missing or damaged: export the model again"
    if "rotobuf" in error:
        return "is damaged or is no ONNX file: export the model again"
    said = _AROUND.sub("", " ".join(error.split()))[:_SAID]
    return f"cannot be opened by ONNX Runtime {ort.__version__}, which says: {said.rstrip('.')}"
