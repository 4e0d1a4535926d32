"""What is PyTorch's own of a backend: devices, precisions, and blocks that are not run."""

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int, c_void_p
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import AttentionWant, Batch, Encoding, SentenceWant, SummaryWant, Want
from model.encoder.block import Block
from model.encoder.config import EncoderConfig
from model.errors import Unsupported
from model.pytorch.backend import TorchBackend, choose_device
from model.pytorch.kernels.instructions import KERNEL_SETS
from model.pytorch.kernels.library import Kernels, NoKernels
from model.pytorch.kernels.stack import NativeStack
from model.pytorch.precision import Precision
from model.tokenization.tokenizer import TextTokenizer
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance
from tests.support.backends import PLAIN, instructions, small
from tests.support.kernel import held_to_widening, needs_kernels, stand_ins, thread_number
from tests.support.product import minilm, run, want_all

AVX2 = "bfloat16 with AVX2"


def model() -> TorchBackend:
    """A BERT of three layers and four heads, of random weights, in float32."""
    return cast(TorchBackend, small("torch").backend)


@cache
def minilm_tokenizer() -> TextTokenizer:
    return load_checkpoint(resolve(MINILM)).tokenizer


def minilm_in(dtype: str) -> TorchBackend:
    return TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype=dtype)


def minilm_in_bfloat16(kind: str) -> TorchBackend:
    """The embedded model as this processor runs it in bfloat16, or as one without AVX-512 does."""
    if kind != AVX2:
        return minilm_in("bfloat16")
    with held_to_widening():
        return minilm_in("bfloat16")


def choose(
    dtype: str, device: str = "cpu", config: EncoderConfig | None = None, *, native: bool = True
) -> Precision:
    """Choose a precision for an encoder, by default that of the embedded model."""
    return Precision.choose(dtype, device, config or minilm().encoder.config, native=native)


def encode(*texts: str | tuple[str, str]) -> list[Encoding]:
    return small("torch").tokenizer.encode(list(texts))


@pytest.mark.parametrize("kind", ["torch", PLAIN])
@pytest.mark.parametrize(
    ("want", "blocks"),
    [
        (Want(attention=AttentionWant((0,), (0,))), 0),
        (Want(attention=AttentionWant((2, 1), (0,))), 2),
        (Want(token_layers=(0,)), 0),
        (Want(token_layers=(1,), attention=AttentionWant((0,), (3,))), 1),
        (Want(sentence=SentenceWant(layers=(3,))), 3),
        (Want(), 0),
    ],
)
def test_a_batch_runs_no_deeper_than_its_deepest_want(
    want: Want, blocks: int, kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The maps of layer 0 run no block at all; a shallow neighbour costs nothing more."""
    norms: list[object] = []
    encoder = cast(TorchBackend, small(kind).backend).encoder
    if encoder.executor is None:
        for block in encoder.blocks:
            for norm in (cast(Block, block).attention_norm, cast(Block, block).feed_forward_norm):
                request.addfinalizer(norm.register_forward_hook(lambda *_: norms.append(_)).remove)
    else:
        native = cast(NativeStack, encoder.executor)
        of = native.kernels.add_norm

        def add_norm(arguments: int) -> int:
            if not thread_number():  # each thread takes a share
                norms.append(arguments)
            return int(of(c_void_p(arguments)))

        told = native.kernels._replace(add_norm=CFUNCTYPE(c_int, c_void_p)(add_norm))
        monkeypatch.setattr(native, "_unobserved", native._prepare(told, native._unobserved.dtype))
    run(small(kind).backend, encode("the man", "boy", "a"), [Want(token_layers=(0,)), want, Want()])
    assert len(norms) == 2 * blocks


@pytest.mark.parametrize("kind", ["torch", PLAIN])
def test_an_empty_sequence_is_answered(kind: str) -> None:
    """Nobody sends one, and nobody falls over it."""
    nothing, starts = np.zeros(0, np.int64), np.zeros(2, np.int64)
    (output,) = small(kind).backend.run(Batch(nothing, nothing, starts, (Want(token_layers=(2,)),)))
    assert output.tokens is not None
    assert output.tokens.shape == (1, 0, 64)


def test_packed_tokens_cost_the_rows_of_their_products() -> None:
    """Only the whole batch is rounded up, by little, and only where PyTorch computes the products."""
    batches: tuple[list[int], ...] = ([], [16], [3, 9, 1], [500, 20, 3])
    plain = TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype="float32", native=False)
    assert [plain.cost(lengths) for lengths in batches] == [0, 16, 16, 544]
    if instructions(torch.float32):
        assert [minilm().cost(lengths) for lengths in batches] == [0, 16, 13, 523]


@pytest.mark.parametrize("kind", ["float32", "bfloat16", AVX2])
def test_a_text_has_the_same_bits_in_every_batch(kind: str) -> None:
    """Hidden states, vectors and maps, alone and beside texts of other lengths."""
    backend = minilm_in("float32") if kind == "float32" else minilm_in_bfloat16(kind)
    if backend.info.kernels is None:
        pytest.skip("oneDNN's products depend on the batch")
    lengths = (3, 4, 4, 17, 40, 200, 511)
    encodings = minilm_tokenizer().encode(["word " * words for words in lengths])
    summary = SummaryWant(tuple(range(6)), tuple(range(12)), special=(0,))
    want = replace(want_all(backend), sentence=SentenceWant(layers=(6,), normalize=True), summary=summary)
    together = run(backend, encodings, [want] * len(encodings))
    for encoding, beside in zip(encodings, together, strict=True):
        (alone,) = run(backend, [encoding], [want])
        for part in ("sentence", "tokens", "attention"):
            assert np.array_equal(getattr(alone, part), getattr(beside, part)), part
            assert getattr(alone, part) is not None
        assert alone.summary is not None
        assert beside.summary is not None
        for name, values in alone.summary.items():
            assert np.array_equal(values, beside.summary[name]), name


def test_a_batch_is_laid_end_to_end() -> None:
    """Batch.pack keeps the order, and says where each sequence starts."""
    encodings = encode("the man", "", ("a", "boy"))
    batch = Batch.pack(encodings, [Want()] * 3)
    assert batch.cu_seqlens.tolist() == [0, 4, 6, 11]
    assert batch.input_ids.tolist() == [i for encoding in encodings for i in encoding.token_ids]
    assert batch.segment_ids.tolist() == [0] * 9 + [1] * 2
    assert batch.input_ids.dtype == np.dtype(np.int64)
    assert len(batch) == 3


def test_a_device_that_is_not_there_is_refused() -> None:
    """The CPU is always there; a CUDA device only as often as PyTorch sees it."""
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    count = torch.cuda.device_count()
    with pytest.raises(Unsupported, match=f"device cuda:{count} does not exist: PyTorch sees {count}"):
        choose_device(f"cuda:{count}")


def test_float16_needs_a_gpu() -> None:
    """On a CPU the choices are float32 and bfloat16; what is asked for by name is taken as it is."""
    with pytest.raises(Unsupported, match="float16 runs only on CUDA"):
        choose("float16")
    with pytest.raises(Unsupported, match="PyTorch runs models in float32, bfloat16, float16 or int8"):
        choose("float8")
    assert choose("float16", "cuda").name == "float16"
    assert choose("float32").name == "float32"
    assert choose("bfloat16").name == "bfloat16"
    assert choose("auto").name in ("float32", "bfloat16")


@pytest.mark.parametrize(
    ("instructions", "chosen"),
    [("amx", "bfloat16"), ("avx512_bf16", "bfloat16"), ("avx512", "float32"), ("avx2", "bfloat16")],
)
def test_auto_is_bfloat16_only_where_kernels_are_faster_in_it(
    instructions: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU PyTorch's own kernels never run in bfloat16 unasked; turned off, ours are not looked for."""
    asked: list[torch.dtype] = []
    kernels = next(one for one in KERNEL_SETS if one.name == f"bfloat16_{instructions}")

    def find(dtype: torch.dtype) -> Kernels:
        asked.append(dtype)
        found = stand_ins()
        products = found.products._replace(widens=kernels.widens)
        return found._replace(multiplies_pairs=kernels.multiplies_pairs, products=products)

    find_in_all_places(find, monkeypatch)
    assert choose("auto", native=False).name == "float32"
    assert asked == []
    precision = choose("auto")
    assert precision.name == chosen
    assert set(asked) == {torch.bfloat16}
    assert (precision.kernels is not None) == kernels.widens


@needs_kernels
@pytest.mark.parametrize(
    "options",
    [{"qk_norm": "layer"}, {"norm": "sandwich"}, {"num_heads": 24}],
    ids=["norms of queries", "sandwich norms", "heads of 16"],
)
def test_auto_is_float32_where_kernels_with_avx2_cannot_run_a_model(options: dict[str, Any]) -> None:
    """PyTorch would run it in bfloat16 without instructions for that; by name it is taken as it is."""
    config = replace(minilm().encoder.config, **options)
    runs = "qk_norm" not in options
    with held_to_widening():
        assert choose("auto", config=config).name == ("bfloat16" if runs else "float32")
        assert choose("auto", config=config, native=False) == choose("float32", config=config, native=False)
        named = choose("bfloat16", config=config)
        assert named.name == "bfloat16"
        assert named.dtype == (torch.float32 if runs else torch.bfloat16)
        assert choose("float32", config=config).kernels is None


def test_auto_is_float32_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that they do not support."""

    def find_none(_: torch.dtype) -> None:
        raise NoKernels("there are none")

    find_in_all_places(find_none, monkeypatch)
    assert choose("auto").name == "float32"


def find_in_all_places(find: Callable[[torch.dtype], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels found by another function."""
    monkeypatch.setattr("model.pytorch.precision.find_kernels", find)
    monkeypatch.setattr("model.pytorch.kernels.library.find_kernels", find)


@pytest.mark.parametrize("kind", ["bfloat16", AVX2])
def test_bfloat16_keeps_the_direction_of_sentence_vectors(kind: str) -> None:
    """In reduced precision the cosine to float32 stays at 0.9999 or more, and maps are still rows of 1."""
    if kind != AVX2 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bfloat16 products in oneDNN")
    texts = [
        "The quick brown fox jumps over the lazy dog.",
        "Attention is all you need.",
        "Der Hund schläft, während die Katze spielt.",
        "Transformers map sequences to sequences; encoders map them to vectors. " * 12,
        "",
        "42",
        "x = [1,2,3]",
    ]
    encodings = minilm_tokenizer().encode(texts)
    half = minilm_in_bfloat16(kind)
    assert half.info.dtype == "bfloat16"
    want = Want(SentenceWant(layers=(6,), normalize=True), attention=AttentionWant((5,), (0, 11)))
    exact, reduced = run(minilm(), encodings, [want] * 7), run(half, encodings, [want] * 7)
    for a, b in zip(exact, reduced, strict=True):
        assert a.sentence is not None
        assert b.sentence is not None
        assert b.attention is not None
        assert b.sentence.dtype == np.float32
        assert float(a.sentence @ b.sentence) >= 0.9999
        assert distance(b.attention.sum(-1), np.ones(b.attention.shape[:-1])) < 1e-5
    assert any(distance(a.sentence, b.sentence) > 1e-5 for a, b in zip(exact, reduced, strict=True))
