"""A graph runs on the processor that was asked for, or not at all."""

import warnings
from pathlib import Path

import onnxruntime
import pytest

from model.checkpoints.folder import read_folder
from model.contract import AttentionWant, SentenceWant, SummaryWant, Want
from model.errors import ModelError, Unsupported
from model.onnx.backend import OnnxBackend
from model.onnx.file import find_graph
from model.onnx.session import CPU, CUDA, Graph, Processor, choose_processor
from tests.references.checkpoints import write_bert
from tests.references.comparing import relative_distance
from tests.support.backends import export_folder, small
from tests.support.product import run, want_all
from tests.support.serving import free_port, run_command

pytestmark = pytest.mark.thorough

HAS_CUDA = CUDA in onnxruntime.get_available_providers() and Path("/dev/nvidia0").exists()
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="needs onnxruntime-gpu and an NVIDIA GPU")
needs_cpu_build = pytest.mark.skipif(
    CUDA in onnxruntime.get_available_providers(), reason="onnxruntime-gpu has what is refused here"
)
TEXTS = ["the man beats the boy", "", "a", "hello world. " * 12, "boy " * 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model of `tests.support.backends.small`, exported."""
    place = tmp_path_factory.mktemp("exported")
    write_bert(place / "source", num_hidden_layers=3)
    return export_folder(place / "source", place / "graph")


def load(folder: Path, **options: str | bool) -> OnnxBackend:
    file = find_graph(folder)
    assert file is not None
    return OnnxBackend(read_folder(folder), file, **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ what is chosen


def test_the_cpu_is_always_there() -> None:
    """By its name, and by itself where there is no GPU."""
    assert choose_processor("cpu") == Processor("cpu", CPU)
    assert choose_processor("auto").device == ("cuda" if HAS_CUDA else "cpu")


@needs_cpu_build
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_device_that_the_runtime_has_not_is_refused(device: str) -> None:
    """With the package that has it."""
    with pytest.raises(Unsupported) as caught:
        choose_processor(device)
    sentence = str(caught.value)
    assert sentence.startswith(f"device {device} needs {CUDA}, but this ONNX Runtime has ")
    assert CPU in sentence
    assert sentence.endswith(": install onnxruntime-gpu instead of onnxruntime.")
    assert caught.value.field == "device"


def test_a_build_for_gpus_says_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists its providers everywhere: "auto" needs the device as well, and what is named is taken."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    assert choose_processor("cuda:1") == Processor("cuda:1", CUDA)
    assert choose_processor("cuda:1").index == 1
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(Path, "exists", lambda path, there=there: there)
        assert choose_processor("auto").device == device


@needs_cpu_build
def test_a_provider_that_does_not_start_is_told(folder: Path) -> None:
    """The runtime would go on with the CPU in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does warn of a provider that it was not built with
        with pytest.raises(Unsupported) as caught:
            Graph(folder / "model.onnx", Processor("cuda", CUDA), 1)
    assert str(caught.value).startswith(f"device is cuda, but ONNX Runtime fell back to {CPU}: its log says")
    assert caught.value.field == "device"


@needs_cpu_build
def test_the_command_line_refuses_it_too(folder: Path) -> None:
    """Exit code 1, and the sentence as the last line."""
    code, _, err = run_command("--model", str(folder), port=free_port(), device="cuda")
    assert code == 1
    assert err.splitlines()[-1].startswith(f"headlight: device cuda needs {CUDA}, but this ONNX Runtime has ")
    assert "Traceback" not in err


# ------------------------------------------------------------------------------------------ on CUDA


@needs_cuda
@pytest.mark.parametrize("together", [True, False])
def test_cuda_computes_what_the_cpu_does(folder: Path, *, together: bool) -> None:
    """Every state and map, scores, rollouts, statistics and vectors, within 1e-3."""
    cuda = load(folder, device="cuda")
    assert (cuda.info.device, cuda.info.provider, cuda.lanes) == ("cuda", CUDA, 1)
    cpu = small("onnx")
    encodings = cpu.tokenizer.encode(TEXTS)
    every = (0, 1, 2), (0, 1, 2, 3)
    wants = [
        want_all(cuda),
        Want(SentenceWant(layers=(3,)), attention=AttentionWant(*every, "score")),
        Want(attention=AttentionWant(*every, "value_norm"), summary=SummaryWant(*every, (0,))),
        Want(attention=AttentionWant(*every, aggregate="rollout")),
        Want(),
    ]
    for want in wants:
        batches = [encodings] if together else [[encoding] for encoding in encodings]
        for batch in batches:
            ours, theirs = (run(backend, batch, [want] * len(batch)) for backend in (cuda, cpu.backend))
            for one, other in zip(ours, theirs, strict=True):
                for name in ("sentence", "tokens", "attention"):
                    if getattr(other, name) is not None:
                        assert relative_distance(getattr(one, name), getattr(other, name)) <= 1e-3
                for name, values in (other.summary or {}).items():
                    assert relative_distance((one.summary or {})[name], values) <= 1e-3


@needs_cuda
def test_lengths_are_padded_to_few_sizes_on_cuda(folder: Path) -> None:
    """Each new shape is planned anew: they are multiples of 32, and the cost says so."""
    cuda = load(folder, device="cuda")
    assert [cuda.cost(lengths) for lengths in ([], [1], [32], [33], [5, 20])] == [0, 32, 32, 64, 64]


@needs_cuda
def test_a_device_beyond_the_last_is_refused(folder: Path) -> None:
    """In a sentence, as what cannot be served is."""
    with pytest.raises(ModelError) as caught:
        load(folder, device="cuda:99")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
