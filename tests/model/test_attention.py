"""Scaled dot-product attention: its numbers, its masks, its heads, and its two paths."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.encoder.attention import (
    SelfAttention,
    explicit_attention,
    fused_attention,
    probabilities,
    similarity_scores,
)
from model.encoder.config import AttentionSimilarity, EncoderConfig
from model.encoder.packing import Packing
from model.encoder.parts import LayerConfig
from model.encoder.positions import visible
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import similarity, softmax
from tests.support.product import Array, encode, naive, observed_maps, random_encoder

CPU = torch.device("cpu")
SIMILARITIES: tuple[AttentionSimilarity, ...] = ("dot_product", "cosine", "manhattan", "mahalanobis")
Q = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
K = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
V = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])
WEIGHTS = [
    [0.401112, 0.401112, 0.197776],
    [0.401112, 0.197776, 0.401112],
    [0.503490, 0.248255, 0.248255],
]
OUTPUTS = [[5.0, 5.0], [6.016681, 3.983319], [6.276174, 3.723826]]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def config(**options: Any) -> EncoderConfig:
    sizes = {"vocab_size": 11, "hidden_size": 24, "num_layers": 2, "num_heads": 4, "intermediate_size": 32}
    return EncoderConfig(**{**sizes, "positions": "learned", **options})


def attention(**options: Any) -> SelfAttention:
    module = SelfAttention(config(**options))
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = normal(*parameter.shape, seed=seed) * 0.4
    return module


# ------------------------------------------------------------------ one head, by the paper's formula


def test_the_worked_example_has_these_numbers() -> None:
    """Scores, weights and outputs of the three-token example, to six decimals."""
    scores = similarity_scores(Q, K, "dot_product") * 2**0.5
    assert distance(scores, [[1, 1, 0], [1, 0, 1], [2, 1, 1]]) < 1e-6
    outputs, weights = explicit_attention(Q, K, V)
    assert distance(weights, WEIGHTS) < 1e-6
    assert distance(outputs, OUTPUTS) < 1e-6
    assert distance(fused_attention(Q[None, None], K[None, None], V[None, None])[0, 0], OUTPUTS) < 1e-6


def test_the_first_row_is_not_what_popular_expositions_say() -> None:
    """softmax([1/√2, 1/√2, 0]) is [0.4011, 0.4011, 0.1978] and mixes the values to [5, 5] exactly."""
    row = probabilities(torch.tensor([2**-0.5, 2**-0.5, 0.0]))
    assert distance(row, [0.4011, 0.4011, 0.1978]) < 5e-5
    assert distance(row, [0.42, 0.42, 0.16]) > 0.01
    outputs, _ = explicit_attention(Q, K, V)
    assert distance(outputs[0], [5.0, 5.0]) < 1e-6


def test_a_masked_key_has_no_weight_at_all() -> None:
    """A masked score is −∞: the weight is exactly 0, and the rest of the row still sums to 1."""
    mask = torch.tensor([[True, True, False], [True, False, True], [False, False, True]])
    outputs, weights = explicit_attention(Q, K, V, mask)
    assert (weights[~mask] == 0).all()
    assert distance(weights.sum(-1), [1, 1, 1]) < 1e-6
    assert distance(weights[0, :2], [0.5, 0.5]) < 1e-6
    assert outputs[2].tolist() == V[2].tolist()


@pytest.mark.parametrize("size", [1, 4, 64, 512])
def test_scores_of_unit_variance_vectors_have_unit_variance(size: int) -> None:
    """The scale is √d_k: whatever the head size, the softmax sees scores of variance 1."""
    q, k = normal(400, size, seed=1), normal(400, size, seed=2)
    assert similarity_scores(q, k, "dot_product").var().item() == pytest.approx(1.0, rel=0.15)
    unscaled = (q @ k.T).var().item()
    assert unscaled == pytest.approx(size, rel=0.15)


def test_the_scale_can_be_any_number() -> None:
    """It stands in the place of 1/√D, and only dot products are scaled."""
    q, k = normal(6, 5, seed=1), normal(4, 5, seed=2)
    scores = similarity_scores(q, k, "dot_product", scale=0.7)
    assert (
        distance(scores, similarity(q.double().numpy(), k.double().numpy(), "dot_product", scale=0.7)) < 1e-6
    )
    assert distance(scores, q @ k.T * 0.7) < 1e-6
    cosine = similarity_scores(q, k, "cosine")
    assert torch.equal(similarity_scores(q, k, "cosine", scale=0.7), cosine)


def test_scalar_queries_and_keys_work() -> None:
    """With d_k = 1 a head compares plain numbers, and an encoder of such heads is a legal one."""
    q, k, v = normal(5, 1, seed=3), normal(5, 1, seed=4), normal(5, 1, seed=5)
    expected = softmax(np.outer(q.double().numpy(), k.double().numpy()))
    outputs, weights = explicit_attention(q, k, v)
    assert distance(weights, expected) < 1e-6
    assert distance(outputs, expected @ v.double().numpy()) < 1e-6
    encoder = random_encoder(config(hidden_size=6, num_heads=6))
    assert relative_distance(encode(encoder, [[1, 2, 3]])[0], naive(encoder)([1, 2, 3])[0]) < 1e-5


# ------------------------------------------------------------------------------ other similarities


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_every_similarity_follows_its_definition(kind: AttentionSimilarity) -> None:
    """Dot product, cosine, Manhattan and Mahalanobis, pair by pair, for each head with its own metric."""
    q, k, factor = normal(3, 6, 5, seed=6), normal(3, 4, 5, seed=7), normal(3, 5, 5, seed=8)
    scores = similarity_scores(q, k, kind, factor)
    expected = [
        similarity(q[h].double().numpy(), k[h].double().numpy(), kind, factor[h].double().numpy())
        for h in range(3)
    ]
    assert scores.shape == (3, 6, 4)
    assert distance(scores, expected) < 1e-5
    assert distance(probabilities(scores).sum(-1), np.ones((3, 6))) < 1e-6


@pytest.mark.parametrize("kind", ["manhattan", "mahalanobis"])
def test_a_distance_is_exact_where_query_and_key_are_the_same(kind: AttentionSimilarity) -> None:
    """Identical vectors are at distance 0, however long they are, and nothing is more alike."""
    q, factor = normal(30, 8, seed=9) * 1000, torch.eye(8)
    scores = similarity_scores(q, q, kind, factor)
    assert distance(scores.diagonal(), np.zeros(30)) == 0
    assert (scores <= 0).all()


def test_mahalanobis_with_the_identity_is_the_euclidean_distance() -> None:
    """M = FFᵀ = I measures plain distances; M needs to be given."""
    q, k = normal(6, 5, seed=10), normal(4, 5, seed=11)
    expected = -np.linalg.norm(q.double().numpy()[:, None] - k.double().numpy()[None], axis=-1)
    assert distance(similarity_scores(q, k, "mahalanobis", torch.eye(5)), expected) < 1e-5
    with pytest.raises(ValueError, match="needs its metric"):
        similarity_scores(q, k, "mahalanobis")


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_an_encoder_runs_on_any_similarity(kind: AttentionSimilarity) -> None:
    """The similarity is exchanged inside the whole encoder: states and maps are the definition's."""
    encoder, ids = random_encoder(config(similarity=kind, positions="sinusoidal")), [1, 5, 5, 0, 9, 3]
    states, maps = naive(encoder)(ids)
    assert relative_distance(encode(encoder, [[2, 2], ids])[1], states) < 1e-5
    weights = observed_maps(encoder, ids)
    assert distance(weights, maps) < 1e-5
    assert distance(weights.sum(-1), np.ones(weights.shape[:-1])) < 1e-6


# ---------------------------------------------------------------------------------------- heads


def by_hand(module: SelfAttention, x: Array, heads: int) -> Array:
    """H separate heads, each with its own W_i^Q, W_i^K, W_i^V, side by side through W^O."""
    size = x.shape[1] // heads
    assert module.qkv.bias is not None
    assert module.output.bias is not None
    weight, bias = module.qkv.weight.double().numpy(), module.qkv.bias.double().numpy()
    outputs = []
    for head in range(heads):
        start = [part * x.shape[1] + head * size for part in range(3)]
        q, k, v = (x @ weight[s : s + size].T + bias[s : s + size] for s in start)
        outputs.append(softmax(q @ k.T / np.sqrt(size)) @ v)
    product = np.concatenate(outputs, axis=1) @ module.output.weight.double().numpy().T
    return product + module.output.bias.double().numpy()


@pytest.mark.parametrize("heads", [1, 2, 4, 24])
def test_many_heads_are_separate_heads_side_by_side(heads: int) -> None:
    """Concat(head_1 … head_H) W^O with d_k = C/H; with H = 1 it is single attention."""
    module, x = attention(num_heads=heads), normal(7, 24, seed=12)
    assert {part.shape for part in module.project(x)} == {(7, heads, 24 // heads)}
    outputs = module(x, Packing.of([7]))
    assert distance(outputs, by_hand(module, x.double().numpy(), heads)) < 1e-5


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    """Attention runs within each sequence, whatever lies beside it, in any order of lengths."""
    module, lengths = attention(), [3, 3, 1, 5, 3]
    x = normal(sum(lengths), 24, seed=13)
    together = module(x, Packing.of(lengths))
    alone = [by_hand(module, part.double().numpy(), 4) for part in torch.split(x, lengths)]
    assert distance(together, np.concatenate(alone)) < 1e-5


@pytest.mark.parametrize("kind", ["dot_product", "mahalanobis"])
def test_chosen_heads_and_rows_are_those_of_the_whole_map(kind: AttentionSimilarity) -> None:
    """Asking for some heads and queries gives exactly these, in the order asked, repeats included."""
    module = attention(layers=(LayerConfig(window=3),), similarity=kind, scale=0.6)
    x = normal(9, 24, seed=14)
    q, k, _ = module.project(x)
    bias = normal(4, 23, seed=15)  # the batch's longest sequence has 12 tokens
    heads, rows = torch.tensor([3, 0, 3]), torch.tensor([8, 2, 2])
    (whole,) = module.scores(q[None], k[None], slice(0, 4), slice(0, 9), bias).softmax(-1)
    (some,) = module.scores(q[None], k[None], heads, rows, bias).softmax(-1)
    assert some.shape == (3, 3, 9)
    assert distance(some, whole[[3, 0, 3]][:, [8, 2, 2]]) < 1e-6
    assert distance(whole.sum(-1), np.ones((4, 9))) < 1e-6


# ---------------------------------------------------------------------------------------- masks


def test_who_sees_whom() -> None:
    """Without limits: all; causal: nothing later; windowed: nothing further away than the window; or both."""
    assert visible(4, CPU) is None
    causal, windowed = visible(4, CPU, causal=True), visible(4, CPU, window=1)
    both = visible(4, CPU, causal=True, window=1)
    assert causal is not None
    assert windowed is not None
    assert both is not None
    assert causal.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert windowed.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert both.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


def changed(token: int, *windows: int, causal: bool = False) -> list[bool]:
    """Which of ten outputs of a two-layer encoder change with one token; one window is for both layers."""
    layers = tuple(map(LayerConfig, windows)) or (LayerConfig(),)
    encoder = random_encoder(config(layers=layers, causal=causal))
    before, after = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    after[token] = 10
    old, new = encode(encoder, [before, after])
    return [distance(a, b) > 1e-4 for a, b in zip(old[-1], new[-1], strict=True)]


def test_a_causal_encoder_does_not_look_ahead() -> None:
    """Changing token j leaves the outputs before j as they were, and changes those from j on."""
    assert changed(4, causal=True) == [False] * 4 + [True] * 6


def test_a_windowed_encoder_reaches_as_far_as_its_layers() -> None:
    """Two layers with a window of one carry a change two tokens to either side, no further."""
    assert changed(4, 1) == [False] * 2 + [True] * 5 + [False] * 3


def test_each_layer_has_a_window_of_its_own() -> None:
    """Windows of one and two reach three tokens; beside a layer without a window, every output changes."""
    assert changed(4, 1, 2) == changed(4, 2, 1) == [False] + [True] * 7 + [False] * 2
    assert changed(4, 1, 0) == changed(4, 0, 1) == [True] * 10


def test_a_causal_encoder_with_windows_looks_back_so_far() -> None:
    """A change goes on to the later outputs alone, and only as far as the windows carry it."""
    assert changed(4, 1, causal=True) == [False] * 4 + [True] * 3 + [False] * 3


def test_a_bidirectional_encoder_sees_everything() -> None:
    """Changing one token changes every output."""
    assert changed(4) == [True] * 10


# -------------------------------------------------------------------------------- the two paths


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_path_gives_the_outputs_of_the_readable_one(
    length: int, window: int, *, causal: bool, biased: bool
) -> None:
    """Fused kernels change how outputs are computed, not what they are, under every mask and bias."""
    q, k, v = normal(3, 2, 4, length, 16, seed=16)
    mask = visible(length, CPU, causal=causal, window=window)
    bias = normal(4, length, length, seed=17) if biased else None
    expected, _ = explicit_attention(q, k, v, mask, bias)
    assert distance(fused_attention(q, k, v, mask, bias), expected) < 5e-6
    rescaled, _ = explicit_attention(q * 0.3 * 16**0.5, k, v, mask, bias)
    assert distance(fused_attention(q, k, v, mask, bias, 0.3), rescaled) < 5e-6


_MEMORY = r"""
import re, sys, torch
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.plan import Plan
torch.set_num_threads(1)
config = EncoderConfig(vocab_size=8, hidden_size=32, num_layers=1, num_heads=4, intermediate_size=32,
                       positions="none")
encoder = Encoder.from_seed(config, 0)
encoder.reduce_precision(getattr(torch, sys.argv[2]))
def observe(attention, q, k, v, bias):
    attention.scores(q[None], k[None], slice(0, 1), slice(0, 4), bias)
def run(length):
    ids = torch.zeros(length, dtype=torch.int64)
    observers = {0: observe} if sys.argv[1] == "rows" else {}
    encoder(ids, ids, Packing.of([length]), Plan([1], observers))
    if sys.argv[1] == "map":
        q = torch.zeros(length, 4, 8)
        encoder.blocks[0].attention.scores(q[None], q[None], slice(0, 1), slice(0, length), None)
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
run(512)
print(*(run(length) for length in (2048, 4096, 8192)))
"""


def peaks(what: str, dtype: str = "float32") -> list[float]:
    """Peak memory in MiB of a process after attention over 2048, 4096 and 8192 tokens."""
    command = [sys.executable, "-c", _MEMORY, what, dtype]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("what", ["outputs", "rows"])
def test_memory_is_linear_in_the_length_when_no_whole_map_is_asked_for(what: str, dtype: str) -> None:
    """8192 tokens take a few MiB more than 2048, though one head's map of them would be 256 MiB."""
    short, _, long = peaks(what, dtype)
    assert long - short < 64


@pytest.mark.thorough
def test_memory_is_quadratic_when_a_whole_map_is_asked_for() -> None:
    """The measurement above can tell: one head's whole map does take its 256 MiB."""
    short, _, long = peaks("map")
    assert long - short > 200
