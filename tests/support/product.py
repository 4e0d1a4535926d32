"""The product run in process, by itself."""

import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.source import resolve
from model.contract import STATISTICS, AttentionWant, Backend, Batch, Encoding, Output, Want
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.inspection.layer import read_weights
from model.pytorch.backend import TorchBackend
from model.pytorch.tensor_layer import TensorLayer
from tests.references.checkpoints import MINILM
from tests.references.comparing import relative_distance
from tests.references.encoder import NaiveEncoder

Array = NDArray[np.float64]
Ids = Sequence[int]
TABLES = ("token", "position", "segment")


def naive(encoder: Encoder) -> NaiveEncoder:
    """The reference with the weights of an encoder."""
    weights = {name: value.detach().double().numpy() for name, value in encoder.named_parameters()}
    return NaiveEncoder(encoder.config, weights)


def assert_summary(got: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> None:
    """Check the statistics of heads as they are handed on: all of them, in order, float32 and contiguous."""
    assert tuple(got) == STATISTICS
    for name, values in got.items():
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert relative_distance(values, expected[name]) <= 1e-5, name


def random_encoder(config: EncoderConfig, seed: int = 0) -> Encoder:
    """An encoder in which every parameter counts: no zero bias, no norm that is the identity."""
    encoder, generator = Encoder(config), torch.Generator().manual_seed(seed)
    for name, parameter in encoder.named_parameters():
        table = name.endswith("relative_bias") or name.removeprefix("embeddings.") in TABLES
        matrix = parameter.dim() > 1 and not table
        deviation = 1.5 / math.sqrt(parameter.shape[-1]) if matrix else 0.5
        parameter.data.normal_(0.0, deviation, generator=generator)
        if "norm" in name and name.endswith("weight"):
            parameter.data.add_(1.0)
    return encoder.requires_grad_(requires_grad=False).eval()


def encode(encoder: Encoder, sequences: Sequence[Ids], hidden: Sequence[int] | None = None) -> list[Array]:
    """Run sequences as one packed batch; each comes back as (states, N, C), all states by default."""
    layers = range(encoder.config.num_layers + 1) if hidden is None else hidden
    packing = Packing.of(len(ids) for ids in sequences)
    tokens = torch.tensor([token for ids in sequences for token in ids])
    states = encoder(tokens, torch.zeros_like(tokens), packing, Plan(layers))
    stacked = torch.stack([states[layer] for layer in layers]).numpy()
    return [
        stacked[:, start : start + len(ids)] for start, ids in zip(packing.starts, sequences, strict=False)
    ]


def observed_maps(encoder: Encoder, ids: Ids) -> Array:
    """The attention weights (L, H, N, N) of one sequence, as the product computes them on request."""
    maps: dict[int, Array] = {}
    layers = range(encoder.config.num_layers)

    def observe(layer: int, attention: Any, q: Any, k: Any, v: Any, bias: Any) -> None:
        whole = slice(0, len(ids))
        observed = TensorLayer(attention, q[None], k[None], v[None], bias)
        weights = read_weights(observed, "probability", slice(0, 1), slice(0, q.shape[1]), whole)
        maps[layer] = weights[0].numpy()

    tokens = torch.tensor(list(ids))
    plan = Plan((), {layer: partial(observe, layer) for layer in layers})
    encoder(tokens, torch.zeros_like(tokens), Packing.of([len(ids)]), plan)
    return np.stack([maps[layer] for layer in layers])


def want_all(backend: Backend) -> Want:
    """Every hidden state and every map."""
    layers, heads = backend.info.layers, backend.info.heads
    return Want(
        token_layers=tuple(range(layers + 1)),
        attention=AttentionWant(backend.info.attention_layers, tuple(range(heads))),
    )


def run(backend: Backend, encodings: Sequence[Encoding], wants: Sequence[Want]) -> list[Output]:
    """Run encodings as one batch."""
    return backend.run(Batch.pack(encodings, wants))


@cache
def minilm() -> TorchBackend:
    """The embedded model in float32, loaded once."""
    return TorchBackend(load_checkpoint(resolve(MINILM)), device="cpu", dtype="float32")
