"""All layers in one call: the same numbers as the readable path, for the encoders that it serves."""

from collections.abc import Collection
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.encoder.config import Activation, EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.stack import Probe, Stack

LENGTHS = st.lists(st.integers(1, 70), min_size=1, max_size=9)


def encoder(dtype: torch.dtype = torch.bfloat16, **options: object) -> Encoder:
    defaults: dict[str, object] = {
        "vocab_size": 50,
        "hidden_size": 64,
        "num_layers": 3,
        "num_heads": 4,
        "intermediate_size": 96,
        "positions": "sinusoidal",
    }
    made = Encoder.from_seed(EncoderConfig(**{**defaults, **options}), seed=3)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(4)
    for parameter in made.parameters():  # norms and biases, too, so that none can stand in for another
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    made.reduce_precision(dtype)
    made.prepack(native=False)
    return made


def states(
    made: Encoder,
    lengths: list[int],
    hidden: set[int],
    *,
    stacked: bool,
    rows: int = 0,
    probe: Probe | None = None,
    probed: Collection[int] = (),
) -> dict[int, torch.Tensor]:
    """Run random tokens, `rows` of them beyond the sequences, over all layers at once or one by one."""
    packing = Packing.of(sorted(lengths))
    ids = torch.arange(packing.tokens + rows) * 7 % 50
    stack = made._stack
    try:
        made._stack = stack if stacked else None
        return made(ids, torch.zeros_like(ids), packing, hidden=hidden, probe=probe, probe_layers=probed)
    finally:
        made._stack = stack


SERVED = encoder()
needs_a_stack = pytest.mark.skipif(
    SERVED._stack is None, reason="oneDNN has no bfloat16 products here: the processor has no AVX-512"
)


@needs_a_stack
@settings(deadline=None, max_examples=25)
@given(lengths=LENGTHS, hidden=st.sets(st.integers(0, 3)), rows=st.integers(0, 9))
def test_it_computes_what_the_readable_path_computes(lengths: list[int], hidden: set[int], rows: int) -> None:
    """The same states, bit by bit, whichever are asked for; of rows that belong to nobody, too."""
    expected = states(SERVED, lengths, hidden, stacked=False, rows=rows)
    got = states(SERVED, lengths, hidden, stacked=True, rows=rows)
    assert set(got) == set(expected) == hidden
    for number in hidden:
        assert torch.equal(got[number], expected[number])


@needs_a_stack
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_every_activation_is_fused_as_in_the_readable_path(activation: Activation) -> None:
    """The feed-forward network applies what the config says."""
    made = encoder(activation=activation)
    expected, got = (states(made, [5, 40], {3}, stacked=stacked) for stacked in (False, True))
    assert torch.equal(got[3], expected[3])


@needs_a_stack
def test_it_is_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a plain encoder in bfloat16, also where somebody looks into the layers."""
    ran: list[int] = []
    stack = SERVED._stack
    assert stack is not None

    def spy(*arguments: object) -> object:
        ran.append(1)
        return Stack.__call__(stack, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SERVED, "_stack", spy)
    packing = Packing.of([30, 30])
    ids = torch.zeros(60, dtype=torch.int64)
    SERVED(ids, ids, packing, hidden=[3])
    SERVED(ids, ids, packing, hidden=[3], probe=lambda *_: None, probe_layers=[0])
    assert ran == [1, 1]


@needs_a_stack
@pytest.mark.parametrize(("room", "calls"), [(2**30, 1), (1, 3)])
def test_little_is_kept_for_who_looks(room: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the queries and keys of all layers are too many, they are shown before the next are computed."""
    ran: list[int] = []
    stack = SERVED._stack
    assert stack is not None
    advance = stack._advance

    def spy(*arguments: Any) -> Any:
        ran.append(1)
        return advance(*arguments)

    monkeypatch.setattr("model.encoder.stack._ROOM", room)
    monkeypatch.setattr(stack, "_advance", spy)
    seen: list[int] = []
    states(SERVED, [9, 30], {3}, stacked=True, probe=lambda n, *_: seen.append(n), probed=[0, 1, 2])
    assert (len(ran), seen) == (calls, [0, 1, 2])


@needs_a_stack
@settings(deadline=None, max_examples=25)
@given(
    lengths=LENGTHS,
    hidden=st.sets(st.integers(0, 3)),
    probed=st.sets(st.integers(0, 2)),
    rows=st.integers(0, 9),
)
def test_who_looks_into_the_layers_sees_the_same(
    lengths: list[int], hidden: set[int], probed: set[int], rows: int
) -> None:
    """Queries, keys and values are those of the readable path, bit by bit, and the states still are."""
    seen: dict[bool, dict[int, list[torch.Tensor]]] = {True: {}, False: {}}
    got = {}
    for stacked, found in seen.items():

        def probe(layer: int, _: object, *qkv: torch.Tensor | None, found: Any = found) -> None:
            found[layer] = qkv[:3]

        got[stacked] = states(SERVED, lengths, hidden, stacked=stacked, rows=rows, probe=probe, probed=probed)
    assert set(seen[True]) == set(seen[False]) == probed
    for layer in probed:
        for one, other in zip(seen[True][layer], seen[False][layer], strict=True):
            assert torch.equal(one, other)
    for number in hidden:
        assert torch.equal(got[True][number], got[False][number])


@pytest.mark.parametrize(
    "options",
    [
        {"similarity": "cosine"},
        {"visibility": "causal"},
        {"positions": "rotary"},
        {"positions": "relative_bias", "relative_buckets": 8, "relative_max_distance": 16},
        {"norm": "pre"},
        {"gated": True},
    ],
)
def test_other_encoders_take_the_readable_path(options: dict[str, object]) -> None:
    """What it does not know is not run by it."""
    made = encoder(torch.bfloat16, **options)
    assert made._stack is None
    assert states(made, [5, 40], {3}, stacked=True)[3].shape == (45, 64)


def test_float32_takes_the_readable_path() -> None:
    """Its attention is the fused kernel's."""
    assert encoder(torch.float32)._stack is None
