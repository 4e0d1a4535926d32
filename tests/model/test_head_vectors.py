"""Queries, keys and output norms of heads are those of `transformers`, as its eager attention has them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.checkpoints.checkpoint import load_checkpoint
from model.choices import HEAD_VECTORS, Axis
from model.contract import AttentionWant, Backend, SummaryWant, Want, Weights
from model.encoder.config import EncoderConfig
from model.encoder.interventions import HeadScale, Interventions
from model.pytorch.backend import TorchBackend
from model.pytorch.tensor_layer import TensorLayer
from tests.references.comparing import distance, relative_distance
from tests.references.families import Written
from tests.references.head_vectors import projected, see
from tests.support.exporting import export_silently, opened
from tests.support.families import (
    AS_A_GRAPH,
    ATTENDING,
    ENCODERS,
    EXACT,
    encoding_of,
    every_family,
    sample,
    write_small,
)
from tests.support.product import random_encoder, run

pytestmark = pytest.mark.usefixtures("one_thread")

BIASED = ("deberta-v2", "mpnet", "t5", "mt5", "umt5")
"""Families that add something to dot products."""
TEXTS = sample((1, 7, 7, 40))
Array = NDArray[Any]


def load(folder: Path, *, native: bool = True) -> TorchBackend:
    return TorchBackend(load_checkpoint(folder), device="cpu", dtype="float32", native=native)


def want_vectors(backend: Backend, **options: Any) -> AttentionWant:
    """The scores and all vectors of every layer and head, unless `options` say otherwise."""
    heads = tuple(range(backend.info.heads))
    vectors = tuple(one for one in HEAD_VECTORS if one in backend.info.head_vectors)
    weights: Weights = "score"
    plain = {"layers": backend.info.attention_layers, "heads": heads, "weights": weights, "vectors": vectors}
    return AttentionWant(**{**plain, **options})


def scale_of(backend: Backend) -> float:
    info = backend.info
    return info.head_sizes[info.attention_layers[0]] ** -0.5 if info.score_scale is None else info.score_scale


def dots(backend: Backend, arrays: dict[str, Array]) -> Array:
    """Scaled dot products (L, H, N, N), as a reader computes them."""
    q, k = (arrays[name].astype(np.float64) for name in ("query_vectors", "key_vectors"))
    return np.asarray(scale_of(backend) * q @ k.swapaxes(2, 3))


def visible(logits: Array) -> Any:
    return logits > -1e30


@pytest.mark.in_turns
@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
@every_family("family", (*ATTENDING, "lfm2"))
def test_dot_products_are_the_logits_of_eager_attention(family: str, native: bool, tmp_path: Path) -> None:
    """After norms and rotation, the key of a group for each of its heads; and norms are what heads add."""
    written = write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = load(tmp_path, native=native)
    outputs: list[Any] = run(backend, TEXTS, [Want(attention=want_vectors(backend))] * len(TEXTS))
    for text, output in zip(TEXTS, outputs, strict=True):
        seen = see(written, text.token_ids, text.segment_ids, backend.info.heads)
        assert all(array.dtype == np.float32 for array in output.heads.values())
        assert relative_distance(output.heads["output_norms"], seen.norms) <= 2 * EXACT
        scores, seen_by = output.attention, visible(seen.logits)
        assert relative_distance(scores[seen_by], seen.logits[seen_by]) <= EXACT
        if family not in BIASED:
            assert relative_distance(dots(backend, output.heads)[seen_by], seen.logits[seen_by]) <= EXACT


@pytest.mark.parametrize(
    ("family", "query", "key"),
    [
        ("bert", "attention.self.query", "attention.self.key"),
        ("mpnet", "attn.q", "attn.k"),
        ("t5", "SelfAttention.q", "SelfAttention.k"),
        ("deberta-v2", "self.query_proj", "self.key_proj"),
    ],
)
def test_plain_queries_and_keys_are_what_linear_layers_make(
    family: str, query: str, key: str, tmp_path: Path
) -> None:
    """Number by number, beside a bias by distance and without one."""
    written = write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = load(tmp_path)
    (output,) = run(backend, TEXTS[-1:], [Want(attention=want_vectors(backend, maps=False))])
    assert output.attention is None
    for array, name in (("query_vectors", query), ("key_vectors", key)):
        expected = projected(written, TEXTS[-1].token_ids, TEXTS[-1].segment_ids, name, backend.info.heads)
        assert relative_distance(output.heads[array], expected) <= EXACT


def bias_of(written: Written, family: str, length: int) -> Array:
    """The bias by distance, (H, N, N), as the reference computes it from its table."""
    with torch.inference_mode():
        if family == "mpnet":
            bias = written.model.encoder.compute_position_bias(torch.zeros(1, length, 48))
        else:
            bias = written.model.encoder.block[0].layer[0].SelfAttention.compute_bias(length, length)
    return np.asarray(bias[0].double().numpy())


@pytest.mark.parametrize("family", ["mpnet", "t5"])
def test_what_scores_have_besides_is_the_bias_by_distance(family: str, tmp_path: Path) -> None:
    """The same for all texts, so a reader can take it from the scores of one."""
    written = write_small(tmp_path, family, ENCODERS.get(family, "Model"))
    backend = load(tmp_path)
    (output,) = run(backend, TEXTS[-1:], [Want(attention=want_vectors(backend))])
    bias = bias_of(written, family, len(TEXTS[-1]))
    besides = output.attention - dots(backend, output.heads)
    assert distance(besides, np.array([bias] * backend.info.layers)) < 1e-4


def test_the_scale_of_disentangled_attention_counts_its_three_products(tmp_path: Path) -> None:
    """He et al. 2021, §3.1: 1/√(3D)."""
    write_small(tmp_path, "deberta-v2", "Model")
    assert scale_of(load(tmp_path)) == pytest.approx(1 / np.sqrt(3 * 16))


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
def test_a_selection_is_one_of_the_whole(native: bool, tmp_path: Path) -> None:
    """Layers, heads, rows and columns in their order, with repeats, beside statistics and other texts."""
    write_small(tmp_path, "qwen3", "Model")
    backend = load(tmp_path, native=native)
    text = TEXTS[-1]
    layers, heads, rows, columns = (2, 0, 2), (2, 0, 2), (9, 3, 3, 30), (5, 1)
    some = want_vectors(
        backend, layers=layers, heads=heads, queries=Axis(rows), keys=Axis(columns), maps=False
    )
    wants = [Want(attention=some, summary=SummaryWant((1,), (0,), ())), Want(attention=want_vectors(backend))]
    first, second = run(backend, [text, text], wants)
    assert first.summary is not None
    places = {"query_vectors": rows, "key_vectors": columns, "output_norms": rows}
    for name, kept in places.items():
        expected = second.heads[name][list(layers)][:, list(heads)][:, :, list(kept)]
        assert distance(first.heads[name], expected) <= 1e-6
        assert first.heads[name].flags.c_contiguous


SCALED = (HeadScale(1, (0, 2), 0.5),)
AVERAGED = (HeadScale(1, (1,), mean=True), HeadScale(1, (1,), 2.0))


@pytest.mark.parametrize("changes", [SCALED, AVERAGED], ids=["scaled", "averaged"])
@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
def test_norms_are_of_outputs_as_interventions_change_them(
    changes: tuple[HeadScale, ...], native: bool, tmp_path: Path
) -> None:
    """A scaled head adds a shorter vector; an averaged one the mean of its vectors, to every token."""
    written = write_small(tmp_path, "bert", "Model")
    backend = load(tmp_path, native=native)
    text, want = TEXTS[1], want_vectors(backend, layers=(1,), vectors=("output_norm",))
    changed = Want(attention=want, interventions=Interventions(heads=changes))
    outputs = run(backend, [text] * 2, [Want(attention=want), changed])
    plain, found = (one.heads["output_norms"][0] for one in outputs)
    if changes is SCALED:
        assert distance(found, plain * np.array([0.5, 1, 0.5])[:, None]) <= EXACT
        return
    assert distance(found[[0, 2]], plain[[0, 2]]) <= EXACT
    states, maps = written.run(text.token_ids, text.segment_ids)
    attention, part = written.model.encoder.layer[1].attention, slice(16, 32)
    with torch.inference_mode():
        values = attention.self.value(torch.from_numpy(states[1]))[:, part].numpy()
    weight = attention.output.dense.weight.detach().numpy()[:, part]
    mean = maps[1, 1].mean(0) @ values
    assert distance(found[1], np.full(len(text), 2 * np.linalg.norm(weight @ mean))) <= EXACT


@pytest.mark.thorough
def test_graphs_return_queries_and_keys(tmp_path: Path) -> None:
    """An exported graph has both; they give its scores, and are the checkpoint's."""
    for family in ("mpnet", "qwen3"):
        written = write_small(tmp_path / family, family, "Model")
        export_silently(written.folder, tmp_path / f"{family}-graph")
        graph, torch_ = opened(tmp_path / f"{family}-graph"), load(written.folder)
        assert graph.info.head_vectors == ("query", "key")
        assert scale_of(graph) == scale_of(torch_)
        for options in ({}, {"maps": False}, {"weights": "probability", "queries": Axis((0,))}):
            want = Want(attention=want_vectors(graph, **options))
            ours, theirs = (run(one, TEXTS, [want] * len(TEXTS)) for one in (graph, torch_))
            for one, other in zip(ours, theirs, strict=True):
                assert (one.attention is None) == (other.attention is None)
                for name, array in other.heads.items():
                    assert relative_distance(one.heads[name], array) <= AS_A_GRAPH


@pytest.mark.parametrize("similarity", ["cosine", "manhattan", "mahalanobis"])
def test_other_similarities_compare_the_vectors_as_they_are(similarity: Any) -> None:
    """Unit vectors for a cosine, times the metric for Mahalanobis: no more than q and k are needed."""
    config = EncoderConfig(
        vocab_size=5,
        hidden_size=32,
        num_layers=1,
        num_heads=4,
        intermediate_size=8,
        positions="none",
        similarity=similarity,
    )
    attention: Any = random_encoder(config).blocks[0].attention
    q, k, v = torch.randn(3, 2, 9, 4, 8, generator=torch.Generator().manual_seed(1))
    layer = TensorLayer(attention, q, k, v, None)
    every, heads = slice(0, 2), np.array([3, 1])
    queries, keys = (layer.compared(one, every, heads, slice(0, 9)).double() for one in ("query", "key"))
    between = queries[:, :, :, None] - keys[:, :, None]
    expected = {
        "cosine": queries @ keys.transpose(2, 3),
        "manhattan": -between.abs().sum(-1),
        "mahalanobis": -between.square().sum(-1).sqrt(),
    }[similarity]
    assert distance(layer.scores(every, heads, slice(0, 9)).numpy(), expected.numpy()) <= EXACT


def naive_norm(alpha: Array, x: Array, weights: dict[str, Array], token: int) -> float:
    """‖Σ_j α_ij (x_j W_V + b_V) W_O‖ as it is written, one term after another."""
    total = np.zeros(weights["output"].shape[0])
    for j, weight in enumerate(alpha[token]):
        value = weights["value"] @ x[j] + weights["bias"]
        total += weight * (weights["output"] @ value)
    return float(np.linalg.norm(total))


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "plain"])
def test_the_norm_of_an_output_is_that_of_the_sum_as_written(native: bool, tmp_path: Path) -> None:
    """From the weights in the reference's model, its hidden states and its maps."""
    written = write_small(tmp_path, "bert", "Model")
    backend, text = load(tmp_path, native=native), TEXTS[2]
    (output,) = run(backend, [text], [Want(attention=want_vectors(backend, vectors=("output_norm",)))])
    states, maps = written.run(text.token_ids, text.segment_ids)
    size = 16
    for layer, head, token in ((0, 0, 0), (1, 2, 3), (2, 1, 6)):
        attention, part = written.model.encoder.layer[layer].attention, slice(head * size, (head + 1) * size)
        weights = {
            "value": attention.self.value.weight[part],
            "bias": attention.self.value.bias[part],
            "output": attention.output.dense.weight[:, part],
        }
        naive = {name: one.detach().double().numpy() for name, one in weights.items()}
        expected = naive_norm(maps[layer, head], states[layer].astype(np.float64), naive, token)
        assert output.heads["output_norms"][layer, head, token] == pytest.approx(expected, rel=1e-5)


def test_a_batch_shares_nothing_between_texts(tmp_path: Path) -> None:
    """Causal texts that begin alike share their first tokens, unless something is read of these."""
    write_small(tmp_path, "qwen3", "Model")
    backend = load(tmp_path)
    long = TEXTS[-1]
    short = encoding_of(long.token_ids[:9])
    want = Want(attention=want_vectors(backend, maps=False))
    together = run(backend, [long, short], [want, want])
    for text, beside in zip((long, short), together, strict=True):
        (alone,) = run(backend, [text], [want])
        for name, array in alone.heads.items():
            assert array.shape[2] == len(text)
            assert distance(beside.heads[name], array) <= EXACT
