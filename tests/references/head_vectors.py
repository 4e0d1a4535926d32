"""What heads compare and add, taken out of `transformers` while it runs with eager attention."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.families import Written

Array = NDArray[np.float64]
OUTPUTS = (
    "attention.output.dense",
    "attention.dense",
    "attention.out_lin",
    "attn.o",
    "attn.Wo",
    "SelfAttention.o",
    "o_proj",
    "self_attn.out_proj",
)
"""How the names of the products end that the outputs of heads go through, in the models of `transformers`."""


class Seen(NamedTuple):
    """Of one text: what the softmax is given (L, H, N, N), and how long what each head adds is (L, H, N)."""

    logits: Array
    norms: Array


def see(written: Written, ids: Sequence[int], segments: Sequence[int], heads: int) -> Seen:
    """Run one text; what a head adds is its part of the input of the output's product, times its weights."""
    norms: list[Array] = []

    def added(module: Any, inputs: Any) -> None:
        (mixed,) = inputs
        weight = module.weight.detach().double().numpy()  # (C, H·D)
        parts = mixed[0].double().numpy().reshape(len(ids), heads, -1)  # (N, H, D)
        by_head = weight.T.reshape(heads, -1, len(weight))  # (H, D, C)
        norms.append(np.linalg.norm(np.einsum("nhd,hdc->hnc", parts, by_head), axis=-1))

    with hooked(written.model, OUTPUTS, added), recorded_softmax() as logits:
        written.run(ids, segments)
    assert len(norms) == len(logits)
    return Seen(np.stack(logits), np.stack(norms))


def projected(written: Written, ids: Sequence[int], segments: Sequence[int], name: str, heads: int) -> Array:
    """What the linear layers whose names end in `name` make of one text, (L, H, N, D)."""
    found: list[Array] = []

    def keep(_: Any, __: Any, output: Any) -> None:
        found.append(output[0].double().numpy().reshape(len(ids), heads, -1).transpose(1, 0, 2))

    with hooked(written.model, (name,), keep, after=True):
        written.run(ids, segments)
    return np.stack(found)


@contextmanager
def hooked(
    model: Any, names: Sequence[str], hook: Callable[..., None], *, after: bool = False
) -> Iterator[None]:
    """Call a hook before, or after, each linear layer whose name ends in one of these."""
    layers = [
        module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and any(f".{name}".endswith(f".{one}") for one in names)
    ]
    assert layers
    register = "register_forward_hook" if after else "register_forward_pre_hook"
    handles = [getattr(module, register)(hook) for module in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def recorded_softmax() -> Iterator[list[Array]]:
    """Keep what eager attention gives the softmax: one (H, N, N) for each layer."""
    found: list[Array] = []
    functional: Any = torch.nn.functional
    softmax = functional.softmax

    def keep(scores: Any, *args: Any, **named: Any) -> Any:
        if scores.dim() == 4:
            found.append(scores[0].double().numpy().copy())
        return softmax(scores, *args, **named)

    functional.softmax = keep
    try:
        yield found
    finally:
        functional.softmax = softmax
