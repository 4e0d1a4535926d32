"""Maps and statistics computed block by block are those of the whole map, by the definitions."""

import re
import subprocess
import sys
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.choices import Axis
from model.contract import AttentionWant, MapDtype, Output, SummaryWant, Weights
from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.inspection.maps import MapObserver
from model.inspection.rollout import RolloutObserver
from model.inspection.selection import in_blocks
from model.inspection.statistics import StatisticsObserver
from model.pytorch.tensor_layer import TensorLayer
from model.pytorch.tensor_operations import TensorOperations
from tests.references import measures
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import softmax
from tests.support.product import Array, assert_summary

CPU = TensorOperations(torch.device("cpu"))
LAYERS, HEADS, SIZE, COUNT = 3, 4, 8, 2
LENGTHS = [1, 2, 31, 33, 800]
"""One row, short ones of one product, long ones, and one whose map of one head is larger than a block."""


@cache
def layers(length: int, dtype: torch.dtype = torch.float32) -> list[TensorLayer]:
    """Random layers, whose first sequence attends sharply and whose second evenly."""
    made = []
    for number in range(LAYERS):
        generator = torch.Generator().manual_seed(1000 * length + number)
        config = EncoderConfig(
            vocab_size=5,
            hidden_size=HEADS * SIZE,
            num_layers=1,
            num_heads=HEADS,
            intermediate_size=8,
            positions="none",
        )
        attention = SelfAttention(config)
        attention.output.weight.data = torch.randn(attention.output.weight.shape, generator=generator)
        attention = attention.to(dtype)
        q, k, v = torch.randn(3, COUNT, length, HEADS, SIZE, generator=generator).to(dtype)
        q[0] *= 3
        made.append(TensorLayer(attention, q, k, v, None))
    return made


def scores(layer: TensorLayer) -> Array:
    """Scaled dot products by the formula, (b, H, N, N), in float64."""
    q, k = (x.double().numpy().transpose(0, 2, 1, 3) for x in (layer.q, layer.k))
    return np.asarray(q @ k.swapaxes(2, 3) / np.sqrt(SIZE))


def norms(layer: TensorLayer) -> Array:
    """The length of what each token adds in each head, (b, H, 1, N), with all C components written out."""
    weight = layer.attention.output.weight.double().numpy()  # (C, H·D)
    by_head = weight.T.reshape(HEADS, SIZE, -1)  # (H, D, C)
    added = np.einsum("bnhd,hdc->bhnc", layer.v.double().numpy(), by_head)
    return np.asarray(np.linalg.norm(added, axis=-1)[:, :, None, :])


def run(observer: MapObserver | RolloutObserver | StatisticsObserver, made: list[TensorLayer]) -> None:
    for number in observer.layers:
        observer.observe(number, made[number])


def maps(want: AttentionWant, length: int, dtype: torch.dtype = torch.float32) -> list[Output]:
    observer = (RolloutObserver if want.aggregate == "rollout" else MapObserver)(want, COUNT, length, CPU)
    run(observer, layers(length, dtype))
    return [observer.output(i) for i in range(COUNT)]


@given(
    sequences=st.integers(0, 9),
    heads=st.integers(1, 9),
    rows=st.integers(0, 40),
    length=st.integers(1, 40),
    room=st.integers(1, 3000),
)
def test_blocks_cover_everything_once(sequences: int, heads: int, rows: int, length: int, room: int) -> None:
    """Nothing is left out, nothing is computed twice, and a block has room or is a single row."""
    covered = np.zeros((sequences, heads, rows), int)
    for some, part, chosen in in_blocks(sequences, heads, rows, length, room):
        for few in chosen:
            block = covered[some, few, part]
            assert block.size * length <= room or block.size == 1
            block += 1
    assert (covered == 1).all()


@given(heads=st.integers(1, 9), rows=st.integers(1, 40), length=st.integers(1, 40), room=st.integers(1, 3000))
def test_a_sequence_is_cut_the_same_way_in_any_company(heads: int, rows: int, length: int, room: int) -> None:
    """What is computed of a sequence cannot depend on how many there are."""
    alone = [(part, chosen) for _, part, chosen in in_blocks(1, heads, rows, length, room)]
    for some, part, chosen in in_blocks(5, heads, rows, length, room):
        assert (part, chosen) in alone
        assert some.stop > some.start


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weights", ["probability", "score", "value_norm"])
@pytest.mark.parametrize("length", LENGTHS)
def test_weights_are_computed_in_float32_whatever_the_model(
    length: int, weights: Weights, dtype: torch.dtype
) -> None:
    """From queries, keys and values of bfloat16, too, within 1e-5 of float64."""
    every = tuple(range(LAYERS)), tuple(range(HEADS))
    outputs = maps(AttentionWant(*every, weights=weights), length, dtype)
    for i, output in enumerate(outputs):
        for number, layer in enumerate(layers(length, dtype)):
            expected = scores(layer)[i]
            if weights != "score":
                expected = softmax(expected)
            if weights == "value_norm":
                expected = expected * norms(layer)[i]
            assert output.attention is not None
            assert relative_distance(output.attention[number], expected) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_statistics_are_those_of_the_whole_map(length: int, dtype: torch.dtype) -> None:
    """Each of them as `measures` defines it on float64 maps, layers and heads as listed, repeats included."""
    special = tuple({0, length - 1})
    listed, heads = (2, 0, 2), (3, 1, 1, 0)
    observer = StatisticsObserver(SummaryWant(listed, heads, special), COUNT, length, CPU)
    run(observer, layers(length, dtype))
    is_special = [i in special for i in range(length)]
    for i in range(COUNT):
        whole = np.stack([softmax(scores(layers(length, dtype)[n])[i]) for n in listed])[:, heads]
        expected = measures.summary(whole, is_special)  # type: ignore[arg-type]
        assert_summary(observer.output(i), expected)


def test_uniform_attention_has_the_statistics_of_its_formula() -> None:
    """128 tokens alike: entropy ln 128, mean distance (n² − 1) / 3n, mass 1/n and (n − 1)/n² beside."""
    (layer,) = layers(1)[:1]
    zero = torch.zeros(1, 128, HEADS, SIZE)
    observer = StatisticsObserver(SummaryWant((0,), (0,), (0, 127)), 1, 128, CPU)
    observer.observe(0, TensorLayer(layer.attention, zero, zero, zero, None))
    got = {name: float(values[0, 0]) for name, values in observer.output(0).items()}
    n = 128
    assert got == pytest.approx(
        {
            "entropy": np.log(n),
            "confidence": 1 / n,
            "mean_distance": (n**2 - 1) / (3 * n),
            "self": 1 / n,
            "previous": (n - 1) / n**2,
            "next": (n - 1) / n**2,
            "special": 2 / n,
            "argmax_self": 1 / n,
            "argmax_previous": 1 / n,
            "argmax_next": 0,
        },
        abs=3e-5,
    )


@pytest.mark.in_turns
@pytest.mark.parametrize("rows", [None, (5, 0, 5), (17,)])
@pytest.mark.parametrize("length", [33, 800, 1100])
def test_a_rollout_goes_through_all_layers_below(length: int, rows: tuple[int, ...] | None) -> None:
    """Up to the largest layer that is listed, with the mean over heads as listed; also followed backwards."""
    queries = None if rows is None else Axis(rows)
    want = AttentionWant((1, 0), (3, 1, 1), aggregate="rollout", queries=queries)
    for i, output in enumerate(maps(want, length)):
        below = [softmax(scores(layer)[i])[[3, 1, 1]].mean(0) for layer in layers(length)[:2]]
        expected = np.eye(length)
        for mean in below:
            expected = (mean + np.eye(length)) / 2 @ expected
        assert distance(output.attention, expected if rows is None else expected[list(rows)]) <= 1e-5


@pytest.mark.parametrize("length", [33, 800])
def test_words_larger_than_a_block_are_merged_whole(length: int) -> None:
    """Rows of a word are averaged and its columns added up, also where they fill several blocks."""
    cuts = [0, 1, length // 2, length]
    words = [tuple(range(a, b)) for a, b in pairwise(cuts)]
    order = (2, 0, 2, 1)
    axis = Axis(order, tuple(range(length)), tuple(cuts[:-1]))
    want = AttentionWant((1,), (2, 0), queries=axis, keys=axis)
    for i, output in enumerate(maps(want, length)):
        whole = softmax(scores(layers(length)[1])[i])[[2, 0]]
        expected = [
            [[head[np.ix_(words[r], words[c])].sum(1).mean() for c in order] for r in order] for head in whole
        ]
        assert output.attention is not None
        assert distance(output.attention[0], expected) <= 1e-5


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2.5e-4), ("uint8", 0.5 / 255 + 1e-6)])
def test_probabilities_can_be_kept_in_less_room(dtype: MapDtype, error: float) -> None:
    """In float16, or in 255ths: each is the nearest there is."""
    full, small = (maps(AttentionWant((0, 2), (1,), dtype=d), 33) for d in ("float32", dtype))
    for one, other in zip(full, small, strict=True):
        assert other.attention is not None
        assert other.attention.dtype == dtype
        assert distance(other.attention / (255.0 if dtype == "uint8" else 1.0), one.attention) <= error
        assert other.finite


@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_a_nan_is_reported_of_the_sequence_that_has_it(dtype: MapDtype) -> None:
    """uint8 cannot hold one: `finite` says it, and only of the sequence at fault."""
    layer = layers(33)[0]
    q = layer.q.clone()
    q[1, 4, 2, 0] = torch.nan
    observer = MapObserver(AttentionWant((0,), (0, 2), dtype=dtype), COUNT, 33, CPU)
    observer.observe(0, TensorLayer(layer.attention, q, layer.k, layer.v, None))
    assert [observer.output(i).finite for i in range(COUNT)] == [True, False]


_MEMORY = """
import re, sys, torch
from model.encoder.attention import SelfAttention
from model.pytorch.tensor_layer import TensorLayer
from model.pytorch.tensor_operations import TensorOperations
from model.encoder.config import EncoderConfig
from model.inspection.selection import in_blocks
from model.inspection.statistics import StatisticsObserver
from model.contract import SummaryWant
torch.set_num_threads(1)
config = EncoderConfig(vocab_size=5, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=8)
def run(length):
    q = torch.randn(1, length, 2, 8)
    ops = TensorOperations(torch.device("cpu"))
    observer = StatisticsObserver(SummaryWant((0,), (0, 1), (0,)), 1, length, ops)
    observer.observe(0, TensorLayer(SelfAttention(config), q, q, q, None))
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
run(512)
print(*(run(length) for length in (2048, 8192)))
"""


@pytest.mark.thorough
def test_memory_of_statistics_does_not_grow_with_the_map() -> None:
    """8192 tokens take a few MiB more than 2048, though one head's map of them would be 256 MiB."""
    done = subprocess.run([sys.executable, "-c", _MEMORY], check=True, capture_output=True, text=True)
    short, long = (float(number) for number in re.findall(r"[\d.]+", done.stdout))
    assert long - short < 32
