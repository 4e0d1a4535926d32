"""The native kernels run a block as `Block` does, or refuse to; and in as few calls as memory allows.

The order of a block's steps is compiled a second time. So each field of EncoderConfig, and each of its
values where they can be listed, stands in one of the three tables below, which the tests hold to the code.
"""

from ctypes import c_float
from dataclasses import fields, replace
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.parts import (
    Adapters,
    Convolution,
    Disentangled,
    LayerConfig,
    Mixture,
    RelativeBias,
    Rotary,
    ShortConvolution,
)
from model.encoder.plan import Plan
from model.pytorch.kernels import buffers, library
from model.pytorch.kernels.buffers import split_layers
from model.pytorch.kernels.library import NoKernels, find_kernels
from model.pytorch.kernels.observations import Observations
from model.pytorch.kernels.stack import NativeStack
from model.pytorch.kernels.structures import Attention
from tests.references.comparing import distance, relative_distance
from tests.support.emulated_tiles import AMX
from tests.support.kernel import (
    FLOAT32,
    ROUNDED,
    WIDENED,
    kernels_of,
    needs_kernels,
    round_to_bfloat16,
    stand_ins,
    whole_step,
)
from tests.support.product import random_encoder

LENGTHS = [3, 5, 5, 1]
BASE = EncoderConfig(vocab_size=9, hidden_size=64, num_layers=3, num_heads=2, intermediate_size=48)

RUN: dict[str, list[dict[str, Any]]] = {
    "hidden_size": [{"hidden_size": 128}],
    "num_layers": [{"num_layers": 1}],
    "num_heads": [{"num_heads": 1}],
    "intermediate_size": [{"intermediate_size": 40}],
    "norm_eps": [{"norm_eps": 0.5}],
    "activation": [{"activation": a} for a in ("relu", "gelu", "gelu_tanh", "silu")],
    "qkv_bias": [{"qkv_bias": False}],
    "output_bias": [{"output_bias": False}],
    "inner_bias": [{"inner_bias": False}],
    "outer_bias": [{"outer_bias": False}],
    "scale": [{"scale": 1.0}],
    "shared": [{"shared": (0, 0, 0)}, {"shared": (0, 1, 0)}],
    "norm": [{"norm": "pre"}, {"norm": "sandwich"}, {"norm": "sandwich", "norm_kind": "rms"}],
    "qk_norm": [
        {"qk_norm": "rms"},
        {"qk_norm": "rms", "layers": (LayerConfig(rotary=Rotary.of(16)),), "num_kv_heads": 1},
    ],
    "norm_kind": [{"norm_kind": "rms"}, {"norm_kind": "rms", "norm": "pre"}],
    "norm_bias": [{"norm_bias": False}],
    "gated": [{"gated": True}, {"gated": True, "activation": "silu", "norm": "pre"}],
    "causal": [{"causal": True}],
    "head_dim": [{"head_dim": 16}, {"head_dim": 64}],
    "num_kv_heads": [{"num_kv_heads": 1}, {"num_heads": 4, "num_kv_heads": 2}],
    "relative_bias": [
        {"relative_bias": RelativeBias(8, 16)},
        {"relative_bias": RelativeBias(per_layer=True), "scale": 1.0, "norm": "pre"},
        {"relative_bias": RelativeBias(table_rows=40)},
    ],
    "alibi": [{"alibi": True}],
    "disentangled": [
        {"disentangled": Disentangled()},
        {"disentangled": Disentangled(4, shared=True, norm=True), "norm": "pre"},
        {"disentangled": Disentangled(9, 6, content_to_position=False), "causal": True},
        {"disentangled": Disentangled(9, 6, position_to_content=False, shared=True)},
    ],
    "layers": [
        {"layers": (LayerConfig(window=2),)},
        {"layers": (LayerConfig(window=1),), "causal": True},
        {"layers": (LayerConfig(rotary=Rotary.of(32)),)},
        {"layers": (LayerConfig(rotary=Rotary.of(16, interleaved=True)),), "num_kv_heads": 1},
        {"layers": (LayerConfig(attention_norm=False), LayerConfig(), LayerConfig()), "norm": "pre"},
        {"layers": (LayerConfig(), LayerConfig(rotary=Rotary.of(8)), LayerConfig(window=1))},
        {"layers": (LayerConfig(mixture=Mixture(4, 2)),)},
        {"layers": (LayerConfig(mixture=Mixture(3, 1)), LayerConfig(), LayerConfig()), "norm": "pre"},
        {"layers": (LayerConfig(mixture=Mixture(3, 3)),), "activation": "relu"},
    ],
}
"""What changes a block, and the kernels do too."""

REFUSED: dict[str, list[dict[str, Any]]] = {
    "similarity": [{"similarity": s} for s in ("cosine", "manhattan", "mahalanobis")],
    "qk_norm": [{"qk_norm": q} for q in ("layer", "joint")],
    "double_residual": [{"double_residual": True}],
    "value_norm": [{"value_norm": True}],
    "per_layer_size": [{"per_layer_size": 8}],
    "layers": [
        {"layers": (LayerConfig(convolution=Convolution(3)),)},
        {"layers": (LayerConfig(attention_norm=False),)},
        {"layers": (LayerConfig(head_dim=16),)},
        {"layers": (LayerConfig(num_kv_heads=1),)},
        {"layers": (LayerConfig(short_convolution=ShortConvolution(3)), LayerConfig(), LayerConfig())},
    ],
}
"""What changes a block, and the kernels refuse."""

EMBEDDED: dict[str, list[dict[str, Any]]] = {
    "vocab_size": [{"vocab_size": 20}],
    "positions": [{"positions": "sinusoidal"}, {"positions": "none"}],
    "max_positions": [{"max_positions": 40}],
    "segments": [{"segments": 2}],
    "embedding_norm": [{"embedding_norm": False}],
    "scale_embeddings": [{"scale_embeddings": True}],
    "token_dropout": [{"token_dropout": 1}],
    "position_offset": [{"position_offset": 2}, {"position_offset": 2, "max_positions": 7}],
    "padding_id": [{"padding_id": 1}, {"padding_id": 0, "position_offset": 1, "max_positions": 6}],
    "embedding_size": [{"embedding_size": 32}],
    "adapters": [{"adapters": Adapters(("a", "b"), 2)}],
    "project_first": [{"embedding_size": 32, "project_first": True}],
    "longest": [{"longest": 5}],
}
"""What changes the embeddings alone, or the numbers not at all: adapters, of sequences without a task."""

HINTS = get_type_hints(EncoderConfig)


def every(table: dict[str, list[dict[str, Any]]]) -> Any:
    """Run a test with each choice in a table."""
    choices = [choice for listed in table.values() for choice in listed]
    return pytest.mark.parametrize("choice", choices, ids=named)


def named(choice: dict[str, Any]) -> str:
    """The names of the fields, and the values that are short."""
    return "-".join(x if isinstance(x, str) else f"{name}={str(x)[:9]}" for name, x in choice.items())


def encoder_of(config: EncoderConfig) -> Encoder:
    """An encoder whose blocks start from the same hidden states, whatever their embeddings."""
    encoder = random_encoder(config)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(sum(LENGTHS) + 2, config.hidden_size, generator=generator)  # two padding rows
    encoder.embedder = lambda *_: x
    return encoder


def prepared(config: EncoderConfig) -> tuple[Encoder, NativeStack]:
    """An encoder, and what runs its blocks natively with stand-ins; skips where that does not run."""
    encoder = encoder_of(config)
    try:
        return encoder, NativeStack(encoder_of(config), stand_ins())
    except NoKernels as error:
        pytest.skip(str(error))


def run(encoder: Encoder, plan: Plan) -> dict[int, Tensor]:
    """The states that a plan wants, without their padding rows."""
    packing, ids = Packing.of(LENGTHS), torch.zeros(sum(LENGTHS) + 2, dtype=torch.int64)
    return {number: x[: packing.tokens] for number, x in encoder(ids, ids, packing, plan).items()}


@pytest.mark.parametrize("field", [field.name for field in fields(EncoderConfig)])
def test_every_field_of_the_config_is_run_refused_or_of_the_embeddings(field: str) -> None:
    """A field, or a value, that is new stands in no table, and this fails until it is in the right one."""
    choices = [choice for table in (RUN, REFUSED, EMBEDDED) for choice in table.get(field, [])]
    values = {getattr(BASE, field), *(choice[field] for choice in choices)}
    listed = listed_values(HINTS[field])
    assert listed is None or values == listed
    assert len(values) > 1, f"{field} is in none of the tables with another value than {values}"


def listed_values(hint: Any) -> set[object] | None:
    """Every value of a type; None if they cannot be listed."""
    if hint in (bool, NoneType):
        return {True, False} if hint is bool else {None}
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    if get_origin(hint) is not UnionType:
        return None
    parts = [listed_values(part) for part in get_args(hint)]
    return None if None in parts else {value for part in parts if part is not None for value in part}


@pytest.mark.parametrize(
    ("field", "part"),
    [
        *(("layers", f.name) for f in fields(LayerConfig)),
        *(("relative_bias", f.name) for f in fields(RelativeBias)),
    ],
)
def test_every_field_of_a_part_of_the_config_is_run(field: str, part: str) -> None:
    """A layer and a bias are configs of their own: each of their fields has another value in the table."""
    default = getattr(LayerConfig() if field == "layers" else RelativeBias(), part)
    found = [
        one
        for choice in (*RUN[field], *REFUSED.get(field, []))
        for one in (choice[field] if field == "layers" else [choice[field]])
    ]
    assert {getattr(one, part) for one in found} - {default}


@pytest.mark.in_turns
@every(RUN)
def test_the_kernels_take_the_steps_of_a_block(choice: dict[str, Any]) -> None:
    """States, queries, keys, values and biases of each layer are those of the blocks themselves."""
    encoder, native = prepared(replace(BASE, **choice))
    assert changes_blocks(choice) or choice == {"activation": BASE.activation}
    layers = encoder.config.num_layers

    def pass_() -> tuple[dict[int, Tensor], list[Tensor]]:
        found: list[Tensor] = []

        def observe(number: int, attention: SelfAttention, *projected: object) -> None:
            assert attention.config is encoder.config
            found.extend(x[: sum(LENGTHS)].clone() for x in projected if isinstance(x, Tensor))

        plan = Plan(range(1, layers + 1), {n: partial(observe, n) for n in range(layers)})
        ending = Plan((), {layers - 1: partial(observe, layers - 1)})
        return run(encoder, plan) | run(encoder, ending), found

    expected, projected = pass_()
    encoder.executor = native
    states, found = pass_()
    assert states.keys() == expected.keys() == {*range(1, layers + 1)}
    assert len(found) == len(projected) == (3 + encoder.config.biased) * (layers + 1)
    for ours, theirs in zip([*states.values(), *found], [*expected.values(), *projected], strict=True):
        assert relative_distance(ours, theirs) < 2e-5


@pytest.mark.in_turns
@every(RUN)
@pytest.mark.parametrize("instructions", [WIDENED, ROUNDED, "bfloat16_avx512", "bfloat16_avx512_bf16", AMX])
def test_in_bfloat16_the_steps_differ_by_rounding_alone(choice: dict[str, Any], instructions: str) -> None:
    """With compiled steps: what a product reads was rounded from what the step before it made."""
    try:
        kernels = kernels_of(instructions)
        config = replace(BASE, **choice)
        if any(x.mixture and x.mixture.chosen < 3 for x in config.layers):
            pytest.skip("rounding may choose other experts")
        encoder, rounded = encoder_of(config), encoder_of(config)
        rounded.reduce_precision(torch.bfloat16)
        native = NativeStack.of(rounded, torch.bfloat16, kernels)
    except NoKernels as error:
        pytest.skip(str(error))
    plan = Plan(range(1, config.num_layers + 1))
    expected = run(encoder, plan)
    encoder.executor = native
    for number, state in run(encoder, plan).items():
        assert (state - expected[number]).norm() < 0.03 * expected[number].norm()


@needs_kernels
def test_gains_of_norms_stay_in_float32() -> None:
    """Also those of queries and keys, whose module is converted beside the matrices."""
    encoder = encoder_of(replace(BASE, qk_norm="rms", norm="sandwich"))
    blocks: Any = encoder.blocks
    expected = [block.attention.key_norm.weight.clone() for block in blocks]
    native = NativeStack(encoder, stand_ins(), torch.bfloat16)
    for layer, block, gain in zip(native.layers, blocks, expected, strict=True):
        assert block.attention.key_norm.weight.dtype == torch.bfloat16
        assert (c_float * 32).from_address(layer.key_gain)[:] == gain.tolist()
        assert layer.attention_output_gain == block.attention_output_norm.weight.data_ptr()


@pytest.mark.in_turns
@every(RUN)
def test_widened_weights_give_the_bits_of_rounded_ones_in_float32(choice: dict[str, Any]) -> None:
    """Whatever a block does: only the weights of its products are in bfloat16, not vectors of distances."""
    encoder, rounded = encoder_of(replace(BASE, **choice)), encoder_of(replace(BASE, **choice))
    round_to_bfloat16(rounded)
    try:
        widening = NativeStack.of(encoder, torch.float32, kernels_of(WIDENED))
    except NoKernels as error:
        pytest.skip(str(error))
    exact = NativeStack.of(rounded, torch.float32, kernels_of(FLOAT32))
    exact._vectors = dict(zip(exact._vectors, widening._vectors.values(), strict=True))
    encoder.executor, rounded.executor = widening, exact
    plan = Plan(range(1, encoder.config.num_layers + 1))
    expected = run(rounded, plan)
    for number, state in run(encoder, plan).items():
        assert torch.equal(state, expected[number])


@needs_kernels
def test_nothing_follows_the_last_layer_that_kernels_observe() -> None:
    """It attends for its observers alone, without outputs; the layers before it run as ever."""
    encoder, kernels = encoder_of(BASE), stand_ins()
    attended: list[tuple[bool, bool]] = []

    def record(address: int) -> int:
        arguments = Attention.from_address(address)
        attended.append((arguments.output is not None, arguments.observations is not None))
        return int(kernels.attend(address))

    encoder.executor = NativeStack(encoder_of(BASE), kernels._replace(attend=whole_step(record)))
    observations = Observations(len(LENGTHS), BASE.num_heads)
    assert run(encoder, Plan((), in_kernels={1: observations})) == {}
    assert attended == [(True, False), (False, True)]
    attended.clear()
    assert {*run(encoder, Plan((2,), in_kernels={1: observations}))} == {2}
    assert attended == [(True, False), (True, True)]


@every(REFUSED)
def test_the_kernels_refuse_other_blocks(choice: dict[str, Any]) -> None:
    """Whatever this processor has, the reason is the block."""
    with pytest.raises(NoKernels, match="they support only "):
        NativeStack.of(encoder_of(replace(BASE, **choice)), torch.float32)


def test_on_tiles_there_are_no_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    """AMX attends without them."""
    tiled = stand_ins()._replace(instructions="amx", tiled=True)
    monkeypatch.setattr(library, "find_kernels", lambda _: tiled)
    with pytest.raises(NoKernels, match="with amx they support no disentangled attention"):
        NativeStack.of(encoder_of(replace(BASE, disentangled=Disentangled())), torch.float32)


def test_what_is_refused_still_runs_by_itself() -> None:
    """Heads that fill no vector: the reason is known before weights are laid out."""
    encoder = random_encoder(replace(BASE, num_heads=64 // 4))
    encoder.reduce_precision(torch.bfloat16)
    with pytest.raises(NoKernels):
        NativeStack.of(encoder, torch.bfloat16)
    assert run(encoder, Plan((3,)))[3].shape == (sum(LENGTHS), 64)


@needs_kernels
def test_the_kernels_refuse_heads_that_fill_no_vector() -> None:
    """A vector has four numbers on ARM64, eight with AVX2, sixteen with AVX-512."""
    step = find_kernels(torch.float32).head_step
    NativeStack.of(encoder_of(replace(BASE, num_heads=64 // step)), torch.float32)
    with pytest.raises(NoKernels, match=f"the head size is {step // 2}, which is not a multiple of {step}$"):
        NativeStack.of(encoder_of(replace(BASE, num_heads=128 // step)), torch.float32)


@every(EMBEDDED)
def test_what_is_of_the_embeddings_changes_no_block(choice: dict[str, Any]) -> None:
    """With the same weights and the same hidden state 0, every later one is the same."""
    assert not changes_blocks(choice)


def changes_blocks(choice: dict[str, Any]) -> bool:
    """Whether blocks of the same weights, run from the same hidden states, differ; or cannot be the same."""
    base, other = encoder_of(BASE), encoder_of(replace(BASE, **choice))
    weights = base.blocks.state_dict()
    shapes, others = (
        {n: x.shape for n, x in e.blocks.state_dict().items() if ".adapters." not in n} for e in (base, other)
    )
    if shapes != others:
        return True
    other.blocks.load_state_dict(weights, strict=False)
    last = Plan((BASE.num_layers,))
    (ours,), (theirs,) = (run(encoder, last).values() for encoder in (other, base))
    return distance(ours, theirs) > 1e-4


# ------------------------------------------------------------------------------------- how many calls


@given(st.integers(0, 30), st.sets(st.integers(0, 30)), st.integers(1, 2**22))
def test_each_layer_is_in_one_call(last: int, observed: set[int], numbers: int) -> None:
    """In order, none twice, and what is kept of a call's observed layers is bounded, or one layer's."""
    calls = list(split_layers(last, observed, numbers))
    assert [layer for call in calls for layer in call] == list(range(last))
    for call in calls:
        kept = len(observed & {*call})
        assert kept <= 1 or numbers * kept <= buffers._OBSERVED_AT_ONCE


@pytest.mark.parametrize(("observed", "calls"), [(set(), 1), ({0}, 1), ({0, 5}, 1), ({0, 1, 2, 3, 4, 5}, 3)])
def test_calls_are_as_few_as_that_allows(observed: set[int], calls: int) -> None:
    """A layer that is not observed is never a reason for another call."""
    assert len(list(split_layers(6, observed, buffers._OBSERVED_AT_ONCE // 2))) == calls
