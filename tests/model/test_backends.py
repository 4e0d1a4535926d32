"""One packed batch in, and exactly what each sequence wanted out, whatever runs it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.checkpoints.source import resolve
from model.choices import Axis
from model.contract import (
    Aggregate,
    AttentionWant,
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
from model.tokenization.tokenizer import TextTokenizer
from tests.references.checkpoints import MINILM
from tests.references.comparing import distance, relative_distance
from tests.support.backends import Kept, Small, both_backends, instructions, load, small
from tests.support.product import run, want_all

pytestmark = both_backends

TEXTS = [
    "The man beats the boy",
    "",
    "a",
    "Attention maps are open to be read, head by head.",
    "日本語 🙂 e\u0301",
    "word " * 60,
]
MODES: tuple[PoolingMode, ...] = ("cls", "mean", "max", "mean_sqrt_len", "weighted_mean", "last")


@pytest.fixture(scope="module")
def model(backend: str) -> Small:
    """A BERT of three layers and four heads, of random weights, in float32."""
    return small(backend)


@pytest.fixture(scope="module")
def embedded(backend: str, kept: Kept) -> tuple[TextTokenizer, Backend]:
    """The embedded model in float32."""
    return load(kept.folder(resolve(MINILM), backend), backend)


def whole(model: Small, encoding: Encoding) -> Output:
    """Every hidden state and every map of one sequence, run alone."""
    return run(model.backend, [encoding], [want_all(model.backend)])[0]


# ----------------------------------------------------------------------------------------- maps


def test_maps_have_a_row_for_each_token_of_their_own_sequence(model: Small) -> None:
    """Axes (layer, head, query, key); every row sums to 1; there is no padding to have any weight."""
    encodings = model.tokenizer.encode(TEXTS)
    outputs = run(model.backend, encodings, [want_all(model.backend)] * len(TEXTS))
    for encoding, output in zip(encodings, outputs, strict=True):
        n = len(encoding)
        assert output.attention is not None
        assert output.tokens is not None
        assert output.attention.shape == (3, 4, n, n)
        assert output.tokens.shape == (4, n, 64)
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


@pytest.mark.in_turns
@pytest.mark.parametrize("aggregate", ["none", "mean", "max"])
@pytest.mark.parametrize("keys", [None, (0,), (6, 1, 1, 3)])
@pytest.mark.parametrize("queries", [None, (5,), (2, 6, 2, 0)])
@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (3,), (2, 0, 2)])
@pytest.mark.parametrize("layers", [(0, 1, 2), (1,), (2, 0, 2)])
def test_every_choice_is_a_selection_from_the_full_maps(
    model: Small,
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    queries: tuple[int, ...] | None,
    keys: tuple[int, ...] | None,
    aggregate: Aggregate,
) -> None:
    """Layers, heads, rows and columns come in the order asked, repeats included, then heads are merged."""
    encoding = model.tokenizer.encode(["the man beats the boy"])[0]
    rows, columns = (None if chosen is None else Axis(chosen) for chosen in (queries, keys))
    want = AttentionWant(layers, heads, aggregate=aggregate, queries=rows, keys=columns)
    output = run(model.backend, [encoding], [Want(attention=want)])[0]
    assert output.attention is not None
    assert output.attention.flags.c_contiguous
    assert distance(output.attention, naive(whole(model, encoding).attention, want)) < 1e-6


# ------------------------------------------------------------------------- states and sentences


def test_hidden_states_come_in_the_order_asked(model: Small) -> None:
    """Layer 0 is the embedding output and i that of block i; repeats are given twice."""
    encoding = model.tokenizer.encode([TEXTS[0]])[0]
    output = run(model.backend, [encoding], [Want(token_layers=(3, 0, 3))])[0]
    everything = whole(model, encoding).tokens
    assert everything is not None
    assert distance(output.tokens, everything[[3, 0, 3]]) < 1e-6
    assert (output.attention, output.sentence) == (None, None)


@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("modes", [("mean",), ("max", "mean"), ("cls",), ("last", "weighted_mean")])
def test_a_sentence_vector_pools_the_layers_asked_for(
    model: Small, modes: tuple[PoolingMode, ...], skip: int
) -> None:
    """Each layer is pooled in every mode, layers side by side, then cut, then of unit length."""
    encoding = model.tokenizer.encode([TEXTS[0]])[0]
    states = whole(model, encoding).tokens
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
    output = run(model.backend, [encoding], [Want(sentence=want)])[0]
    assert distance(output.sentence, expected / np.linalg.norm(expected)) < 1e-6


def test_a_prompt_can_be_left_out_of_the_pooling(model: Small) -> None:
    """include_prompt: false is the mean over the tokens after the prompt, each text after its own."""
    encodings = [
        *model.tokenizer.encode(["the boy"], None, "hello: "),
        *model.tokenizer.encode(["a man", "beats"], None, "the "),
    ]
    wants = [
        Want(sentence=SentenceWant(layers=(3,), skip=encoding.prompt_length), token_layers=(3,))
        for encoding in encodings
    ]
    assert [encoding.prompt_length for encoding in encodings] == [3, 2, 2]
    for encoding, output in zip(encodings, run(model.backend, encodings, wants), strict=True):
        assert output.tokens is not None
        assert distance(output.sentence, output.tokens[0, encoding.prompt_length :].mean(0)) < 1e-6


def test_each_sequence_gets_what_it_wanted_and_nothing_else(model: Small) -> None:
    """Requests of all kinds share one batch; outputs stand in the order of the sequences."""
    encodings = model.tokenizer.encode(["the man", "boy", "the man beats the boy", "a", "the boy"])
    wants = [
        Want(attention=AttentionWant((1,), (0,))),
        Want(sentence=SentenceWant(layers=(3,))),
        Want(),
        Want(token_layers=(2,), attention=AttentionWant((0,), (1, 2), aggregate="max")),
        Want(sentence=SentenceWant(("cls",), layers=(1,)), token_layers=(0,)),
    ]
    outputs = run(model.backend, encodings, wants)
    present = [(o.sentence is not None, o.tokens is not None, o.attention is not None) for o in outputs]
    assert present == [
        (False, False, True),
        (True, False, False),
        (False, False, False),
        (False, True, True),
        (True, True, False),
    ]
    for encoding, want, output in zip(encodings, wants, outputs, strict=True):
        alone = run(model.backend, [encoding], [want])[0]
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
        thumbnail=st.none(),
    )
    thumbnails = st.builds(replace, attention, top_k=st.none(), thumbnail=st.integers(1, 9))
    summary = st.builds(SummaryWant, some(info.layers), some(info.heads), st.sampled_from([(), (0, n - 1)]))
    return st.builds(
        Want,
        st.none() | sentence,
        states | st.just(()),
        st.none() | attention | thumbnails,
        st.none() | summary,
    )


def any_axis(n: int) -> st.SearchStrategy[Axis]:
    """Some tokens of a sequence, or some words of one to three pieces."""
    words = [tuple(range(start, min(start + 1 + start // 3 % 3, n))) for start in range(0, n, 3)]

    def of_words(chosen: tuple[int, ...]) -> Axis:
        distinct = sorted(set(chosen))
        starts = [0, *accumulate(len(words[i]) for i in distinct)]
        return Axis(chosen, tuple(t for i in distinct for t in words[i]), tuple(starts[:-1]))

    return some(n).map(Axis) | some(len(words)).map(of_words)


def assert_alone_is_in_a_batch(backend: Backend, encodings: list[Encoding], wants: list[Want]) -> None:
    for output, encoding, want in zip(run(backend, encodings, wants), encodings, wants, strict=True):
        alone = run(backend, [encoding], [want])[0]
        if want.sentence is not None:
            close = distance if want.sentence.normalize else relative_distance
            assert close(output.sentence, alone.sentence) <= 2e-6
        if want.token_layers:
            assert relative_distance(output.tokens, alone.tokens) <= 2e-6
        if want.attention is not None and want.attention.top_k is None:
            close = distance if want.attention.weights == "probability" else relative_distance
            name = "attention" if want.attention.thumbnail is None else "thumbnails"
            assert close(getattr(output, name), getattr(alone, name)) <= 2e-6
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
def test_alone_is_in_a_batch(model: Small, texts: list[str], data: st.DataObject) -> None:
    """A text alone and the same text in any batch, of any lengths and wants, give the same answer."""
    encodings = model.tokenizer.encode(texts)
    wants = [data.draw(any_want(e, model.backend.info)) for e in encodings]
    assert_alone_is_in_a_batch(model.backend, encodings, wants)


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS, min_size=2, max_size=5), st.data())
def test_alone_is_in_a_batch_with_the_embedded_model(
    embedded: tuple[TextTokenizer, Backend], texts: list[str], data: st.DataObject
) -> None:
    """The same of all-MiniLM-L6-v2, whose sentence vectors have unit length."""
    tokenizer, backend = embedded
    encodings = tokenizer.encode(texts)
    wants = [data.draw(any_want(e, backend.info)) for e in encodings]
    sentence = SentenceWant(layers=(6,), normalize=True)
    assert_alone_is_in_a_batch(backend, encodings, [replace(want, sentence=sentence) for want in wants])


# ------------------------------------------------------------------------------------ how it is run


def test_who_asks_for_nothing_gets_nothing(model: Small) -> None:
    """Also alone, and so does a batch of nobody."""
    encodings = model.tokenizer.encode(["a", "the boy"])
    assert run(model.backend, encodings, [Want(), Want()]) == [Output(), Output()]
    assert run(model.backend, [], []) == []


def test_the_texts_of_a_pair_are_told_apart(model: Small) -> None:
    """States and maps of pairs are those of an encoder written out in float64, with their segments."""
    encodings = model.tokenizer.encode([("the man", "beats"), "boy", ("a", ""), ("", "the boy beats")])
    outputs = run(model.backend, encodings, [want_all(model.backend)] * 4)
    for encoding, output in zip(encodings, outputs, strict=True):
        states, maps = model.naive(encoding.token_ids, encoding.segment_ids)
        assert relative_distance(output.tokens, np.stack(states)) <= 1e-5
        assert distance(output.attention, maps) <= 1e-5


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_a_pass_that_ends_early_gives_the_same_states(model: Small, last: int) -> None:
    """A layer is the same whether those above it are run or not, and so are its maps."""
    encodings = model.tokenizer.encode(TEXTS)
    attention = AttentionWant((last,), (1, 3)) if last < 3 else None
    shallow = run(model.backend, encodings, [Want(token_layers=(last,), attention=attention)] * len(TEXTS))
    deep = run(model.backend, encodings, [want_all(model.backend)] * len(TEXTS))
    for one, all_ in zip(shallow, deep, strict=True):
        assert all_.tokens is not None
        assert all_.attention is not None
        assert relative_distance(one.tokens, all_.tokens[[last]]) <= 2e-6
        if attention is not None:
            assert distance(one.attention, all_.attention[[last]][:, [1, 3]]) <= 2e-6


@pytest.mark.parametrize("lanes", [1, 2])
def test_several_threads_run_at_a_time(model: Small, lanes: int) -> None:
    """Each gets the answer of its own batch, the same as of one batch after the other, in any lane."""
    batches = [model.tokenizer.encode([f"{'man ' * n}beats", "boy " * n, "a"]) for n in range(1, 9)]
    wants = [want_all(model.backend)] * 3
    expected = [run(model.backend, batch, wants) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda batch: model.backend.run(Batch.pack(batch, wants), lanes=lanes), batches * 2)
        )
    for ours, theirs in zip(answers, expected * 2, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert relative_distance(one.tokens, other.tokens) <= 2e-6
            assert distance(one.attention, other.attention) <= 2e-6


def test_it_does_not_matter_in_how_many_calls_layers_run(
    model: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that are looked at afterwards are run in calls of as many as memory is spent on."""
    encodings = model.tokenizer.encode(["the man", "a boy and a woman"])
    aggregated = AttentionWant((0, 1, 2), (0, 1, 2, 3), aggregate="mean")
    wants = [replace(want_all(model.backend), attention=aggregated), want_all(model.backend)]
    expected = run(model.backend, encodings, wants)
    monkeypatch.setattr("model.pytorch.kernels.buffers._OBSERVED_AT_ONCE", 1)
    for one, other in zip(run(model.backend, encodings, wants), expected, strict=True):
        assert distance(one.tokens, other.tokens) == 0
        assert distance(one.attention, other.attention) == 0


def test_it_does_not_matter_in_how_many_parts_a_batch_runs(
    model: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch goes through the layers in parts; each sequence has its own results."""
    encodings = model.tokenizer.encode(["the man", "a boy and a woman", "a", "a man and a boy", "the woman"])
    summary = SummaryWant((0, 2), (1, 3), special=(0,))
    sentence = SentenceWant(layers=(2,))
    wants = [replace(want_all(model.backend), sentence=sentence, summary=summary) for _ in encodings]
    expected = run(model.backend, encodings, wants)
    for tokens in (1, 8, 12):
        monkeypatch.setattr("model.pytorch.kernels.stack._PART", tokens)
        for one, other in zip(run(model.backend, encodings, wants), expected, strict=True):
            assert distance(one.sentence, other.sentence) == 0
            assert distance(one.tokens, other.tokens) == 0
            assert distance(one.attention, other.attention) == 0
            assert one.summary is not None
            assert other.summary is not None
            for name, values in one.summary.items():
                assert distance(values, other.summary[name]) == 0


def test_a_backend_says_what_it_serves(model: Small, backend: str) -> None:
    """The sizes of the model, and what runs it; `provider` only where there are several."""
    info = model.backend.info
    assert (info.device, info.dtype, info.exposes_attention) == ("cpu", "float32", True)
    assert info.backend == ("onnx" if backend == "onnx" else "torch")
    assert info.kernels == (instructions(torch.float32) if backend == "torch" else None)
    assert (info.family, info.layers, info.heads, info.hidden_size) == ("bert", 3, 4, 64)
    assert info.provider == ("CPUExecutionProvider" if backend == "onnx" else None)
    assert model.backend.lanes >= 1
    assert model.backend.budget == 1024
