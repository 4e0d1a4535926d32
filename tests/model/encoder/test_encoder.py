"""The encoder as a whole, against `torch.nn` and against plain numpy."""

import math
from dataclasses import fields, replace
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from model.encoder.attention import SelfAttention
from model.encoder.block import Block
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.feed_forward import FeedForward
from model.encoder.packing import Packing
from model.encoder.parts import Adapters, Convolution, Disentangled, LayerConfig, RelativeBias, Rotary
from model.encoder.plan import Plan
from model.pytorch.kernels.library import NoKernels
from model.pytorch.kernels.stack import run_on_kernels
from tests.references.comparing import distance, relative_distance
from tests.references.encoder import sinusoid
from tests.support.product import encode, naive, observed_maps, random_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"vocab_size": 13, "hidden_size": 24, "num_layers": 3, "num_heads": 4, "intermediate_size": 40}
IDS = [4, 0, 12, 7, 7, 1, 9]


def config(**options: Any) -> EncoderConfig:
    return EncoderConfig(**{**SIZES, **options})


def forward(encoder: Encoder, ids: list[int], plan: Plan) -> dict[int, Tensor]:
    tokens = torch.tensor(ids)
    return encoder(tokens, torch.zeros_like(tokens), Packing.of([len(ids)]), plan)


# ----------------------------------------------------------------------------------- embeddings


def test_a_token_embedding_is_a_row_of_the_table() -> None:
    """E[t] with E of shape (V, C): a gather, in the table's dtype, repeated tokens alike."""
    encoder = random_encoder(config(positions="none", embedding_norm=False))
    assert encoder.embeddings.token.shape == (13, 24)
    state = forward(encoder, IDS, Plan([0]))[0]
    assert state.shape == (7, 24)
    assert state.dtype == torch.float32
    assert torch.equal(state, encoder.embeddings.token[IDS])


def test_embeddings_are_added_and_normalised() -> None:
    """Token, position and segment rows are summed, then go through the layer norm."""
    encoder = random_encoder(config(segments=2, max_positions=9))
    embeddings, segments = encoder.embeddings, torch.tensor([0, 0, 1, 1, 1, 0, 1])
    assert embeddings.position is not None
    assert embeddings.segment is not None
    total = embeddings.token[IDS] + embeddings.position[:7] + embeddings.segment[segments]
    norm = embeddings.norm
    assert isinstance(norm, nn.LayerNorm)
    expected = nn.functional.layer_norm(total, (24,), norm.weight, norm.bias, 1e-12)
    states = encoder(torch.tensor(IDS), segments, Packing.of([7]), Plan([0]))
    assert distance(states[0], expected) < 1e-5


# --------------------------------------------------------------------- every choice, in plain numpy

ROTARY = (LayerConfig(rotary=Rotary.of(6)),)
UNEQUAL = (LayerConfig(1), LayerConfig(0, Rotary.of(6)), LayerConfig(2, Rotary.of(2, 100.0)))
UNNORMED = (LayerConfig(attention_norm=False), LayerConfig(), LayerConfig())
NORMS, QK_NORMS = ("pre", "post", "sandwich"), ("layer", "rms", "joint")
CONVOLVED = tuple(LayerConfig(convolution=one) for one in (Convolution(3), None, Convolution(5, 2)))
CHOICES: list[dict[str, Any]] = [
    *({"positions": p, "norm": n} for p, n in product(("sinusoidal", "none"), NORMS)),
    *({"layers": ROTARY, "positions": "none", "norm": n} for n in NORMS),
    {"positions": "learned", "segments": 2, "max_positions": 16},
    *({"positions": p, "position_offset": 2} for p in ("learned", "sinusoidal")),
    *({"positions": p, "padding_id": 7, "position_offset": 8} for p in ("learned", "sinusoidal")),
    {"padding_id": 0},
    *({"embedding_size": 10, "embedding_norm": n, "segments": 2} for n in (True, False)),
    {"embedding_size": 10, "positions": "sinusoidal", "scale_embeddings": True},
    *({"token_dropout": 7, "positions": p, "segments": 2} for p in ("learned", "none")),
    *({"relative_bias": RelativeBias(8, 6, per_layer=p)} for p in (False, True)),
    {"relative_bias": RelativeBias(8, 6, table_rows=11)},
    *({"alibi": True, "num_heads": h, "positions": "none"} for h in (1, 2, 3, 4, 6, 12)),
    {"alibi": True, "causal": True, "layers": (LayerConfig(window=3),)},
    *(
        {"activation": a, "gated": g}
        for a, g in product(("relu", "gelu", "gelu_tanh", "silu"), (False, True))
    ),
    *({"similarity": s, "causal": True} for s in ("cosine", "manhattan", "mahalanobis")),
    {"similarity": "cosine", "alibi": True, "num_kv_heads": 2, "qk_norm": "rms"},
    {"layers": (LayerConfig(2, Rotary.of(6, 160_000.0)),), "positions": "none"},
    *({"layers": (LayerConfig(rotary=Rotary.of(n, interleaved=True)),)} for n in (2, 4, 6)),
    {"layers": (LayerConfig(rotary=Rotary((0.9, 0.01))),)},
    *({"layers": UNEQUAL, "positions": "none", "causal": c} for c in (False, True)),
    *({"layers": UNNORMED, "norm": n} for n in NORMS),
    *({"head_dim": d, "num_kv_heads": k} for d, k in product((0, 10), (1, 2))),
    {"head_dim": 10, "num_heads": 5, "layers": (LayerConfig(rotary=Rotary.of(8)),), "num_kv_heads": 1},
    *({"embedding_size": 10, "embedding_norm": n, "project_first": True} for n in (True, False)),
    *({"disentangled": Disentangled(9, b, shared=s, norm=s)} for b, s in product((0, 4), (False, True))),
    *({"disentangled": Disentangled(20, 6, c, not c, shared=s)} for c, s in product((False, True), repeat=2)),
    {"disentangled": Disentangled(4), "causal": True, "scale": 0.2, "norm": "pre", "norm_kind": "rms"},
    {"disentangled": Disentangled(2, norm=True), "layers": (LayerConfig(window=2),), "head_dim": 10},
    {"disentangled": Disentangled(8), "shared": (0, 0, 0), "qkv_bias": False},
    *({"layers": CONVOLVED, "norm": n} for n in NORMS),
    {"layers": (LayerConfig(convolution=Convolution(1, 24, "gelu")),), "positions": "none"},
    {"scale": 1.0},
    {"scale": 0.1, "causal": True},
    *({"qk_norm": q, "norm_bias": b, "layers": ROTARY} for q, b in product(QK_NORMS, (True, False))),
    {"qk_norm": "joint", "num_kv_heads": 2, "head_dim": 10},
    {"value_norm": True, "qk_norm": "rms", "num_kv_heads": 2},
    *({"per_layer_size": 5, "norm": n, "norm_kind": k} for n, k in product(NORMS, ("layer", "rms"))),
    *({"double_residual": True, "norm": n, "alibi": True} for n in NORMS),
    *({"norm_kind": "rms", "norm": n} for n in NORMS),
    *({"norm_bias": False, "norm": n} for n in NORMS),
    *({f"{bias}_bias": False} for bias in ("qkv", "output", "inner", "outer")),
    {"inner_bias": False, "outer_bias": False, "gated": True, "activation": "silu"},
    *({"shared": s} for s in ((0, 0, 0), (0, 1, 1), (0, 1, 0), (0, 1, 2))),
    {"shared": (0, 0, 2), "relative_bias": RelativeBias(8, 6, per_layer=True)},
    {"shared": (0, 1, 1), "layers": (LayerConfig(1), *[LayerConfig(2, Rotary.of(4))] * 2)},
    {"scale_embeddings": True, "embedding_norm": False, "norm": "pre", "norm_eps": 1e-5},
    {"adapters": Adapters(("a", "b"), 2), "segments": 2},  # of no effect without a task
    {"num_heads": 1},
    {"num_layers": 1, "relative_bias": RelativeBias(), "layers": (LayerConfig(window=1),)},
]


def named(choice: dict[str, Any]) -> str:
    """The values that are short, and the names of the others."""
    return "-".join(
        name if isinstance(x, tuple | RelativeBias | Disentangled | Adapters) else str(x)
        for name, x in choice.items()
    )


@pytest.mark.in_turns
@pytest.mark.parametrize("choice", CHOICES, ids=named)
def test_every_choice_of_the_config_is_computed(choice: dict[str, Any]) -> None:
    """Hidden states and maps equal a naive numpy encoder's, prepacked or not, alone or beside others."""
    encoder = random_encoder(config(**choice))
    batch = [[3], IDS, [7, 1, 7, 7, 2], [7, 7], [5, 0, 0, 4, 4, 4, 4, 4, 0, 4, 4]]
    expected = [naive(encoder)(ids) for ids in batch]
    states, maps = expected[1]
    assert distance(observed_maps(encoder, IDS), maps) < 2e-5
    assert relative_distance(encode(encoder, [IDS])[0], states) < 2e-5
    try:
        run_on_kernels(encoder)
    except NoKernels:
        encoder.prepack()
    for together, (alone, _) in zip(encode(encoder, batch), expected, strict=True):
        assert relative_distance(together, alone) < 2e-5


@pytest.mark.parametrize("field", [field.name for field in fields(EncoderConfig)])
def test_every_field_of_the_config_is_among_the_choices(field: str) -> None:
    """A field that is new is computed by nothing here, and this fails until it is; only sizes are given."""
    assert field in SIZES or field == "longest" or any(field in choice for choice in CHOICES)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_padding_ids_in_a_text_have_a_row_of_their_own(positions: str) -> None:
    """Each is at the row of its id, and the tokens after it are where they would be without it."""
    encoder = random_encoder(config(positions=positions, padding_id=1, position_offset=2, num_layers=1))
    learned = encoder.embeddings.position
    table = torch.tensor([sinusoid(row, 24) for row in range(8)]) if learned is None else learned
    expected = encoder.embeddings.norm(encoder.embeddings.token[[1, 5, 1, 1, 6]] + table[[1, 2, 1, 1, 3]])
    for batch in ([[1, 5, 1, 1, 6]], [[1, 1, 4], [1, 5, 1, 1, 6]], [[9], [1, 5, 1, 1, 6], [3, 3]]):
        found = next(state for state, ids in zip(encode(encoder, batch, [0]), batch, strict=True) if 6 in ids)
        assert distance(found[0], expected) < 1e-6


def test_layers_that_share_their_weights_are_one_block() -> None:
    """The weights are there once, under the name of the first layer; each layer is still observed."""
    encoder = random_encoder(config(shared=(0, 1, 0)))
    assert encoder.blocks[2] is encoder.blocks[0]
    names = {name.split(".")[1] for name, _ in encoder.named_parameters() if name.startswith("blocks.")}
    assert names == {"0", "1"}
    maps = observed_maps(encoder, IDS)
    assert distance(maps[0], maps[2]) > 1e-3


# ------------------------------------------------------------------------------------- `torch.nn`


def copy_layer(block: Block, layer: nn.TransformerEncoderLayer) -> None:
    """Give a layer of `torch.nn` the weights of a block."""
    feed_forward, attention = cast(FeedForward, block.feed_forward), cast(SelfAttention, block.attention)
    pairs = {
        layer.self_attn.in_proj_weight: attention.qkv.weight,
        layer.self_attn.in_proj_bias: attention.qkv.bias,
        layer.self_attn.out_proj.weight: attention.output.weight,
        layer.self_attn.out_proj.bias: attention.output.bias,
        layer.linear1.weight: feed_forward.inner.weight,
        layer.linear1.bias: feed_forward.inner.bias,
        layer.linear2.weight: feed_forward.outer.weight,
        layer.linear2.bias: feed_forward.outer.bias,
        layer.norm1.weight: block.attention_norm.weight,
        layer.norm1.bias: block.attention_norm.bias,
        layer.norm2.weight: block.feed_forward_norm.weight,
        layer.norm2.bias: block.feed_forward_norm.bias,
    }
    for theirs, ours in pairs.items():
        theirs.data.copy_(cast(Tensor, ours))


def torch_encoder(encoder: Encoder) -> nn.TransformerEncoder:
    """The same stack in `torch.nn`, with the same weights, in the same dtype."""
    c = encoder.config
    dtype = encoder.embeddings.token.dtype
    layer = nn.TransformerEncoderLayer(
        c.hidden_size,
        c.num_heads,
        c.intermediate_size,
        dropout=0.0,
        activation="relu" if c.activation == "relu" else "gelu",
        layer_norm_eps=c.norm_eps,
        batch_first=True,
        norm_first=c.norm == "pre",
        dtype=dtype,
    )
    final = nn.LayerNorm(c.hidden_size, eps=c.norm_eps, dtype=dtype) if c.norm == "pre" else None
    stack = nn.TransformerEncoder(layer, c.num_layers, norm=final, enable_nested_tensor=False)
    for block, theirs in zip(encoder.blocks, stack.layers, strict=True):
        assert isinstance(block, Block)
        assert isinstance(theirs, nn.TransformerEncoderLayer)
        copy_layer(block, theirs)
    if final is not None and stack.norm is not None:
        stack.norm.load_state_dict(encoder.final_norm.state_dict())
    return stack.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_is_a_transformer_encoder_layer(norm: str, activation: str) -> None:
    """Layer norm before or after each sub-layer, residual around it: one block is `torch.nn`'s layer."""
    encoder = random_encoder(config(norm=norm, activation=activation, positions="none", norm_eps=1e-5))
    stack = torch_encoder(encoder)
    states = forward(encoder, IDS, Plan([0, 1, 2]))
    with torch.no_grad():
        for layer in range(2):
            expected = stack.layers[layer](states[layer][None])[0]
            assert distance(states[layer + 1], expected) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_paper_s_encoder_is_that_of_torch_nn(norm: Any, dtype: torch.dtype) -> None:
    """Vaswani et al. 2017 from a seed: embeddings · √C + sinusoids, then `torch.nn.TransformerEncoder`."""
    paper = EncoderConfig.paper(
        vocab_size=50, hidden_size=64, num_layers=6, num_heads=8, intermediate_size=256, norm=norm
    )
    encoder = Encoder.from_seed(paper, seed=11).to(dtype).requires_grad_(requires_grad=False)
    ids = torch.randint(0, 50, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    codes = torch.tensor([sinusoid(position, 64) for position in range(40)], dtype=dtype)
    embedded = encoder.embeddings.token[ids] * math.sqrt(64) + codes
    with torch.no_grad():
        expected = torch_encoder(encoder)(embedded[None])[0]
    output = forward(encoder, ids, Plan([6]))[6]
    assert relative_distance(output, expected) <= 1e-6
    if dtype == torch.float64:  # without the rounding of float32, whose last digit is 2.4e-7 at ‖h‖∞ > 2
        assert distance(output, expected) <= 1e-6


def test_a_seed_is_an_encoder() -> None:
    """The same seed gives the same weights, another seed others; scaled embeddings have deviation 1."""
    paper = EncoderConfig.paper(vocab_size=200, hidden_size=64, num_layers=1, intermediate_size=64)
    first, again, other = (Encoder.from_seed(paper, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embeddings.token"], other["embeddings.token"])
    assert first["embeddings.token"].std().item() * 8 == pytest.approx(1.0, rel=0.05)
    narrow = Encoder.from_seed(replace(paper, embedding_size=16), 1)
    assert narrow.embeddings.token.std().item() * 4 == pytest.approx(1.0, rel=0.05)


# ---------------------------------------------------------------------------- lengths and batches


@pytest.mark.parametrize(
    "choice",
    [{"positions": "sinusoidal"}, {"layers": ROTARY}, {"relative_bias": RelativeBias()}, {"alibi": True}, {}],
    ids=named,
)
def test_any_length_runs(choice: dict[str, Any]) -> None:
    """Parameters are shared across positions: what fits two tokens fits three hundred."""
    encoder = random_encoder(config(**{"positions": "none", "num_layers": 1, "max_positions": 1, **choice}))
    ids = [i % 13 for i in range(300)]
    long, short = encode(encoder, [ids, ids[:2]])
    assert (long.shape, short.shape) == ((2, 300, 24), (2, 2, 24))
    assert np.isfinite(long).all()


_MIXED = {
    name: random_encoder(config(**choice))
    for name, choice in {
        "relative": {"positions": "none", "relative_bias": RelativeBias(), "norm": "pre"},
        "padded": {"padding_id": 3, "position_offset": 4, "layers": UNEQUAL, "num_kv_heads": 2},
        "alibi": {"positions": "sinusoidal", "padding_id": 0, "position_offset": 1, "alibi": True},
    }.items()
}


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=20), min_size=1, max_size=8),
    st.sampled_from(sorted(_MIXED)),
)
def test_mixed_lengths_in_a_batch_equal_each_alone(batch: list[list[int]], kind: str) -> None:
    """A sequence does not know which others were run with it, with padding ids among its own or not."""
    encoder = _MIXED[kind]
    for together, ids in zip(encode(encoder, batch), batch, strict=True):
        assert relative_distance(together, encode(encoder, [ids])[0]) < 2e-6


@pytest.mark.parametrize(
    "choice",
    [
        {"norm": "post"},
        {"norm": "pre", "positions": "none", "layers": ROTARY, "gated": True},
        {"positions": "none", "relative_bias": RelativeBias()},
        {"positions": "none", "relative_bias": RelativeBias(), "similarity": "mahalanobis", "causal": True},
        {"positions": "none", "relative_bias": RelativeBias(per_layer=True), "norm": "sandwich"},
        {"similarity": "cosine", "positions": "sinusoidal"},
        {"alibi": True, "num_kv_heads": 2, "qk_norm": "rms", "norm_kind": "rms", "norm": "pre"},
        {"qk_norm": "layer", "norm_bias": False, "layers": UNEQUAL, "embedding_size": 10},
        {"qk_norm": "joint", "double_residual": True},
        {"scale": 0.7, "head_dim": 8, "num_kv_heads": 1},
    ],
    ids=named,
)
def test_in_reduced_precision_the_residual_stream_keeps_float32(choice: dict[str, Any]) -> None:
    """Products are in bfloat16, sums and norms in float32, whatever the encoder is made of."""
    encoder = random_encoder(config(**choice))
    states, _ = naive(encoder)(IDS)
    encoder.reduce_precision(torch.bfloat16)
    dtypes = {name: value.dtype for name, value in encoder.named_parameters()}
    assert dtypes["blocks.0.attention.qkv.weight"] == dtypes["blocks.2.feed_forward.outer.bias"]
    assert dtypes["blocks.0.attention.qkv.weight"] == torch.bfloat16
    assert {dtypes["embeddings.token"], dtypes["blocks.0.attention_norm.weight"]} == {torch.float32}
    reduced = encode(encoder, [IDS, [1, 2]])[0]
    assert reduced.dtype == np.float32
    assert 1e-4 < relative_distance(reduced, states) < 0.05
