"""One packed batch in, and exactly what each sequence wanted out."""

from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.checkpoint import load_checkpoint
from model.encoder import Block
from model.errors import Unsupported
from model.source import resolve
from model.tokenizer import TextTokenizer
from model.torch_backend import TorchBackend, choose_device, choose_dtype
from model.types import (
    Aggregate,
    AttentionWant,
    Axis,
    Backend,
    Batch,
    Encoding,
    ModelInfo,
    Output,
    PoolingMode,
    SentenceWant,
    SummaryWant,
    Want,
)
from tests.reference import MINILM, distance, minilm, relative_distance, run, want_all, write_bert

TEXTS = [
    "The man beats the boy",
    "",
    "a",
    "Attention maps are open to be read, head by head.",
    "日本語 🙂 e\u0301",
    "word " * 60,
]
MODES: tuple[PoolingMode, ...] = ("cls", "mean", "max", "mean_sqrt_len", "weighted_mean", "last")


@cache
def small() -> tuple[TorchBackend, TextTokenizer]:
    """A BERT of three layers and four heads, of random weights, in float32."""
    with TemporaryDirectory() as folder:
        write_bert(Path(folder), num_hidden_layers=3)
        checkpoint = load_checkpoint(Path(folder))
    return TorchBackend(checkpoint, device="cpu", dtype="float32"), checkpoint.tokenizer


@cache
def minilm_tokenizer() -> TextTokenizer:
    return load_checkpoint(resolve(MINILM)).tokenizer


def encode(*texts: str | tuple[str, str]) -> list[Encoding]:
    return small()[1].encode(list(texts))


def whole(encoding: Encoding) -> Output:
    """Every hidden state and every map of one sequence, run alone."""
    return run(small()[0], [encoding], [want_all(small()[0])])[0]


# ----------------------------------------------------------------------------------------- maps


def test_maps_have_a_row_for_each_token_of_their_own_sequence() -> None:
    """Axes (layer, head, query, key); every row sums to 1; there is no padding to have any weight."""
    encodings = encode(*TEXTS)
    outputs = run(small()[0], encodings, [want_all(small()[0])] * len(TEXTS))
    for encoding, output in zip(encodings, outputs, strict=True):
        n = len(encoding)
        assert output.attention is not None
        assert output.tokens is not None
        assert output.attention.shape == (3, 4, n, n)
        assert output.tokens.shape == (4, n, 32)
        assert distance(output.attention.sum(-1), np.ones((3, 4, n))) < 1e-6
        assert (output.attention >= 0).all()
        for array in (output.attention, output.tokens):
            assert array.dtype == np.float32
            assert array.flags.c_contiguous


def naive(attention: Any, want: AttentionWant) -> Any:
    """Choose from the full maps (L, H, N, N), index by index."""
    everything = range(attention.shape[-1])
    queries = everything if want.queries is None else want.queries.positions
    keys = everything if want.keys is None else want.keys.positions
    chosen = np.array(
        [
            [[[attention[layer, head, q, k] for k in keys] for q in queries] for head in want.heads]
            for layer in want.layers
        ]
    )
    if want.aggregate == "none":
        return chosen
    return chosen.mean(1) if want.aggregate == "mean" else chosen.max(1)


@pytest.mark.parametrize("aggregate", ["none", "mean", "max"])
@pytest.mark.parametrize("keys", [None, (0,), (6, 1, 1, 3)])
@pytest.mark.parametrize("queries", [None, (5,), (2, 6, 2, 0)])
@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (3,), (2, 0, 2)])
@pytest.mark.parametrize("layers", [(0, 1, 2), (1,), (2, 0, 2)])
def test_every_choice_is_a_selection_from_the_full_maps(
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    queries: tuple[int, ...] | None,
    keys: tuple[int, ...] | None,
    aggregate: Aggregate,
) -> None:
    """Layers, heads, rows and columns come in the order asked, repeats included, then heads are merged."""
    encoding = encode("the man beats the boy")[0]
    rows, columns = (None if chosen is None else Axis(chosen) for chosen in (queries, keys))
    want = AttentionWant(layers, heads, aggregate=aggregate, queries=rows, keys=columns)
    output = run(small()[0], [encoding], [Want(attention=want)])[0]
    assert output.attention is not None
    assert output.attention.flags.c_contiguous
    assert distance(output.attention, naive(whole(encoding).attention, want)) < 1e-6


# ------------------------------------------------------------------------- states and sentences


def test_hidden_states_come_in_the_order_asked() -> None:
    """Layer 0 is the embedding output and i that of block i; repeats are given twice."""
    encoding = encode(TEXTS[0])[0]
    output = run(small()[0], [encoding], [Want(token_layers=(3, 0, 3))])[0]
    everything = whole(encoding).tokens
    assert everything is not None
    assert distance(output.tokens, everything[[3, 0, 3]]) < 1e-6
    assert (output.attention, output.sentence) == (None, None)


@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("modes", [("mean",), ("max", "mean"), ("cls",), ("last", "weighted_mean")])
def test_a_sentence_vector_pools_the_layers_asked_for(modes: tuple[PoolingMode, ...], skip: int) -> None:
    """Each layer is pooled in every mode, layers side by side, then cut, then of unit length."""
    encoding = encode(TEXTS[0])[0]
    states = whole(encoding).tokens
    assert states is not None
    kept = states[:, skip:].astype(np.float64)
    weights = np.arange(skip + 1, len(encoding) + 1)
    pooled = {
        "mean": kept.mean(1),
        "max": kept.max(1),
        "cls": kept[:, 0],
        "last": kept[:, -1],
        "weighted_mean": (kept * weights[:, None]).sum(1) / weights.sum(),
    }
    expected = np.concatenate([pooled[mode][layer] for layer in (3, 1) for mode in modes])[:40]
    want = SentenceWant(modes, layers=(3, 1), normalize=True, dimensions=40, skip=skip)
    output = run(small()[0], [encoding], [Want(sentence=want)])[0]
    assert distance(output.sentence, expected / np.linalg.norm(expected)) < 1e-6


def test_a_prompt_can_be_left_out_of_the_pooling() -> None:
    """include_prompt: false is the mean over the tokens after the prompt, each text after its own."""
    encodings = [
        *small()[1].encode(["the boy"], None, "hello: "),
        *small()[1].encode(["a man", "beats"], None, "the "),
    ]
    wants = [
        Want(sentence=SentenceWant(layers=(3,), skip=encoding.prompt_length), token_layers=(3,))
        for encoding in encodings
    ]
    assert [encoding.prompt_length for encoding in encodings] == [3, 2, 2]
    for encoding, output in zip(encodings, run(small()[0], encodings, wants), strict=True):
        assert output.tokens is not None
        assert distance(output.sentence, output.tokens[0, encoding.prompt_length :].mean(0)) < 1e-6


def test_each_sequence_gets_what_it_wanted_and_nothing_else() -> None:
    """Requests of all kinds share one batch; outputs stand in the order of the sequences."""
    encodings = encode("the man", "boy", "the man beats the boy", "a", "the boy")
    wants = [
        Want(attention=AttentionWant((1,), (0,))),
        Want(sentence=SentenceWant(layers=(3,))),
        Want(),
        Want(token_layers=(2,), attention=AttentionWant((0,), (1, 2), aggregate="max")),
        Want(sentence=SentenceWant(("cls",), layers=(1,)), token_layers=(0,)),
    ]
    outputs = run(small()[0], encodings, wants)
    present = [(o.sentence is not None, o.tokens is not None, o.attention is not None) for o in outputs]
    assert present == [
        (False, False, True),
        (True, False, False),
        (False, False, False),
        (False, True, True),
        (True, True, False),
    ]
    for encoding, want, output in zip(encodings, wants, outputs, strict=True):
        alone = run(small()[0], [encoding], [want])[0]
        for name in ("sentence", "tokens", "attention"):
            if (expected := getattr(alone, name)) is not None:
                assert distance(getattr(output, name), expected) < 2e-6


# ------------------------------------------------------------------------------ alone and in a batch


def some(top: int) -> st.SearchStrategy[tuple[int, ...]]:
    """One to three indices below `top`, in any order, repeats included."""
    return st.lists(st.integers(0, top - 1), min_size=1, max_size=3).map(tuple)


def any_want(encoding: Encoding, info: ModelInfo) -> st.SearchStrategy[Want]:
    """Any want that is legal for a sequence."""
    n, states = len(encoding), some(info.layers + 1)
    modes = st.lists(st.sampled_from(MODES), min_size=1, max_size=2, unique=True).map(tuple)
    sentence = st.builds(
        SentenceWant, modes=modes, layers=states, normalize=st.booleans(), skip=st.integers(0, n - 1)
    )
    attention = st.builds(
        AttentionWant,
        layers=some(info.layers),
        heads=some(info.heads),
        weights=st.sampled_from(["probability", "score", "value_norm"]),
        aggregate=st.sampled_from(["none", "mean", "max", "rollout"]),
        queries=st.none() | any_axis(n),
        keys=st.none() | any_axis(n),
        top_k=st.none() | st.integers(1, 4),
    )
    summary = st.builds(SummaryWant, some(info.layers), some(info.heads), st.sampled_from([(), (0, n - 1)]))
    return st.builds(
        Want, st.none() | sentence, states | st.just(()), st.none() | attention, st.none() | summary
    )


def any_axis(n: int) -> st.SearchStrategy[Axis]:
    """Some tokens of a sequence, or some words of one to three pieces."""
    words = [tuple(range(start, min(start + 1 + start // 3 % 3, n))) for start in range(0, n, 3)]

    def of_words(chosen: tuple[int, ...]) -> Axis:
        distinct = sorted(set(chosen))
        starts = [0, *accumulate(len(words[i]) for i in distinct)]
        return Axis(chosen, tuple(t for i in distinct for t in words[i]), tuple(starts[:-1]))

    return some(n).map(Axis) | some(len(words)).map(of_words)


def assert_alone_is_in_a_batch(backend: TorchBackend, encodings: list[Encoding], wants: list[Want]) -> None:
    for output, encoding, want in zip(run(backend, encodings, wants), encodings, wants, strict=True):
        alone = run(backend, [encoding], [want])[0]
        if want.sentence is not None:
            close = distance if want.sentence.normalize else relative_distance
            assert close(output.sentence, alone.sentence) <= 2e-6
        if want.token_layers:
            assert relative_distance(output.tokens, alone.tokens) <= 2e-6
        if want.attention is not None and want.attention.top_k is None:
            close = distance if want.attention.weights == "probability" else relative_distance
            assert close(output.attention, alone.attention) <= 2e-6
        if output.top is not None and alone.top is not None:
            assert relative_distance(output.top.weights, alone.top.weights) <= 2e-6
            assert relative_distance(output.top.residual, alone.top.residual) <= 2e-6
        for name in output.summary or ():
            assert relative_distance((output.summary or {})[name], (alone.summary or {})[name]) <= 2e-6
        assert (output.top is None, output.summary is None) == (alone.top is None, alone.summary is None)


VOCABULARY = ["the", "man", "beats", "a", "boy", "日", "🙂", "hello", "xyz."]
WORDS = st.lists(st.sampled_from(VOCABULARY), max_size=40).map(" ".join)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS, min_size=1, max_size=8), st.data())
def test_alone_is_in_a_batch(texts: list[str], data: st.DataObject) -> None:
    """A text alone and the same text in any batch, of any lengths and wants, give the same answer."""
    encodings = encode(*texts)
    wants = [data.draw(any_want(e, small()[0].info)) for e in encodings]
    assert_alone_is_in_a_batch(small()[0], encodings, wants)


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS, min_size=2, max_size=5), st.data())
def test_alone_is_in_a_batch_with_the_embedded_model(texts: list[str], data: st.DataObject) -> None:
    """The same of all-MiniLM-L6-v2, whose sentence vectors have unit length."""
    encodings = minilm_tokenizer().encode(texts)
    wants = [data.draw(any_want(e, minilm().info)) for e in encodings]
    sentence = SentenceWant(layers=(6,), normalize=True)
    assert_alone_is_in_a_batch(minilm(), encodings, [replace(want, sentence=sentence) for want in wants])


# ---------------------------------------------------------------------------- no more than is wanted


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
def test_a_batch_runs_no_deeper_than_its_deepest_want(want: Want, blocks: int) -> None:
    """The maps of layer 0 run no block at all; a shallow neighbour costs nothing more."""
    ran: list[object] = []
    backend = small()[0]
    hooks = [block.register_forward_hook(lambda *_: ran.append(_)) for block in backend.encoder.blocks]
    assert all(isinstance(block, Block) for block in backend.encoder.blocks)
    try:
        run(backend, encode("the man", "boy", "a"), [Want(token_layers=(0,)), want, Want()])
    finally:
        for hook in hooks:
            hook.remove()
    assert len(ran) == blocks


# ----------------------------------------------------------------------------------- where it runs


def test_packed_tokens_cost_the_rows_of_their_products() -> None:
    """Only the whole batch is rounded up, by little. The backend says what it serves."""
    backend: Backend = small()[0]
    assert [backend.cost(lengths) for lengths in ([], [16], [3, 9, 1], [500, 20, 3])] == [0, 16, 16, 544]
    info = backend.info
    assert (info.backend, info.device, info.dtype, info.layers) == ("torch", "cpu", "float32", 3)


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
    with pytest.raises(Unsupported, match=f"device cuda:{count} is not there: PyTorch sees {count}"):
        choose_device(f"cuda:{count}")


def test_float16_needs_a_gpu() -> None:
    """On a CPU the choices are float32 and bfloat16; what is asked for by name is taken as it is."""
    with pytest.raises(Unsupported, match="float16 runs on CUDA"):
        choose_dtype("float16", "cpu")
    assert choose_dtype("float16", "cuda") == "float16"
    assert choose_dtype("float32", "cpu") == "float32"
    assert choose_dtype("auto", "cpu") in ("float32", "bfloat16")


def test_bfloat16_keeps_the_direction_of_sentence_vectors() -> None:
    """In reduced precision the cosine to float32 stays at 0.9999 or more, and maps are still rows of 1."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
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
    half = TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype="bfloat16")
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
