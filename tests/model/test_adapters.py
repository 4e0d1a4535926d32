"""Adapters of any encoder, not only of jina's: rows of a task run with the weights W + alpha/rank · BA."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.tasks import merge_task
from model.encoder.adapters import TaskRows
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.encoder.parts import Adapters, LayerConfig, Mixture
from model.encoder.plan import Plan
from model.errors import CheckpointError
from tests.references.comparing import relative_distance
from tests.references.encoder import NaiveEncoder
from tests.support.product import encode, random_encoder

ADAPTERS = Adapters(("a", "b"), rank=3, alpha=2.0)
CHOICES: dict[str, dict[str, Any]] = {
    "learned positions": {"segments": 1},
    "scaled embeddings": {"scale_embeddings": True, "positions": "sinusoidal", "norm": "pre"},
    "token dropout": {"token_dropout": 7},
    "gated": {"gated": True, "activation": "silu"},
    "shared layers": {"shared": (0, 1, 0)},
    "grouped queries": {"head_dim": 10, "num_kv_heads": 2, "qkv_bias": False},
}
BATCH = ([3, 7, 1, 9], [4, 0, 12, 7], [5, 5, 2], [1], [8, 7, 6])
TASKS = (None, None, 0, 1, 1)


def make(**options: Any) -> Encoder:
    """An encoder of random weights with adapters for two tasks."""
    sizes = {"vocab_size": 13, "hidden_size": 24, "num_layers": 3, "num_heads": 4, "intermediate_size": 40}
    return random_encoder(EncoderConfig(**{**sizes, "adapters": ADAPTERS, **options}))


def with_updates(encoder: Encoder, task: int | None) -> NaiveEncoder:
    """The reference with a task's weights, each from its definition."""
    stored = {name: x.detach().double().numpy() for name, x in encoder.named_parameters()}
    weights = {name: x for name, x in stored.items() if ".adapters." not in name}
    for name in [] if task is None else [name for name in stored if name.endswith(".down")]:
        down, up = stored[name][task], stored[name.removesuffix("down") + "up"][task]
        table = name.startswith("embeddings.")
        owner = name.removesuffix(".down").replace(".adapters", "") + ("" if table else ".weight")
        weights[owner] = weights[owner] + 2.0 / 3 * (down @ up if table else up @ down)
    return NaiveEncoder(encoder.config, weights)


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("prepacked", [False, True])
def test_each_row_runs_with_the_weights_of_its_task(choice: dict[str, Any], prepacked: bool) -> None:
    """Every hidden state of sequences of two tasks and of none, side by side with padding rows."""
    encoder = make(**choice)
    expected = [with_updates(encoder, t)(ids)[0] for ids, t in zip(BATCH, TASKS, strict=True)]
    if prepacked:
        encoder.prepack()
    packing = Packing.of(map(len, BATCH))
    starts = packing.starts
    rows = [TaskRows(0, slice(starts[2], starts[3])), TaskRows(1, slice(starts[3], starts[5]))]
    ids = torch.tensor([token for one in BATCH for token in one] + [0, 0])
    states = encoder(ids, torch.zeros_like(ids), packing, Plan(range(4)), rows)
    stacked: NDArray[Any] = np.stack([states[number].numpy() for number in range(4)])
    for number, reference in enumerate(expected):
        assert relative_distance(stacked[:, starts[number] : starts[number + 1]], reference) < 1e-5


@pytest.mark.in_turns
@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("task", [None, 0, 1])
def test_merged_weights_are_those_of_one_task(choice: dict[str, Any], task: int | None) -> None:
    """And the encoder that they come from keeps its own."""
    encoder = make(**choice)
    merged = merge_task(encoder, task)
    assert merged.config.adapters is None
    for model, number in ((merged, task), (encoder, None)):
        for ids in BATCH:
            assert relative_distance(encode(model, [ids])[0], with_updates(encoder, number)(ids)[0]) < 1e-5


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tasks": ()}, "name at least one, each once"),
        ({"tasks": ("a", "a")}, "name at least one, each once"),
        ({"rank": -1}, "rank is -1; it must be at least 0"),
        ({"rank": 1.5}, "rank is 1.5; it must be a whole number"),
        ({"alpha": 0.0}, "alpha is 0.0; it must be a number above 0"),
        ({"alpha": float("nan")}, "alpha is nan; it must be a number above 0"),
    ],
)
def test_impossible_adapters_are_refused(fields: dict[str, Any], said: str) -> None:
    """One sentence with the field, the value and the limit."""
    with pytest.raises(CheckpointError, match=said):
        Adapters(**{"tasks": ("a",), "rank": 1, **fields})


@pytest.mark.parametrize("other", [{"embedding_size": 10}, {"layers": (LayerConfig(mixture=Mixture(4, 2)),)}])
def test_weights_that_cannot_have_adapters_are_refused_beside_them(other: dict[str, Any]) -> None:
    """No family has both, and leaving an update out would change what is computed."""
    with pytest.raises(CheckpointError, match="adapters can update only linear layers and embedding tables"):
        make(**other)
