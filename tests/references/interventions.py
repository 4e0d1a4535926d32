"""Interventions in models of `transformers`, made by hooks on their modules while these attend eagerly.

An intervention is a dictionary with the fields that docs/explain.md describes, all positions non-negative.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.references.families import Written

Array = NDArray[np.float64]
Change = dict[str, Any]

_OUTPUTS = re.compile(
    r"(attention\.output\.dense|attention\.out_lin|attention\.dense|attn\.o|attn\.Wo|self_attn\.o_proj"
    r"|SelfAttention\.o)$"
)
"""W_O: what it reads are the outputs of the heads side by side."""
_BLOCKS = re.compile(r"(^|\.)(layers?|block|albert_layers)\.\d+$")
_SOFTMAX = nn.functional.softmax


def run_changed(
    written: Written, ids: Sequence[int], segments: Sequence[int], changes: Sequence[Change]
) -> tuple[Array, Array]:
    """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input with interventions."""
    model, config = written.model, written.model.config
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    inputs = {"input_ids": torch.tensor([list(ids)]), "attention_mask": torch.ones(1, len(ids)).long()}
    if written.takes_segments:
        inputs["token_type_ids"] = torch.tensor([list(segments)])
    states: list[Tensor] = []
    with ExitStack() as stack:
        for pattern, hook in (
            (_OUTPUTS, partial(_change_outputs, changes, heads, _counter())),
            (_BLOCKS, partial(_change_states, changes, states)),
        ):
            found = [module for name, module in model.named_modules() if pattern.search(name)]
            # T5 lists the two sub-layers of a block, too.
            found = [one for one in found if type(one).__name__ not in ("T5LayerSelfAttention", "T5LayerFF")]
            found = [one for one in found if not re.search(r"Layer(SelfAttention|FF)$", type(one).__name__)]
            assert found
            for module in found:
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        weights = stack.enter_context(_softmax(changes, heads))
        stack.enter_context(torch.inference_mode())
        output = model(**inputs)
    assert len(states) == len(weights) == layers
    last = output.last_hidden_state[0].clone()
    _apply(changes, layers, last)
    return torch.stack([*states, last]).numpy(), torch.stack(weights).numpy()


def _counter() -> Callable[[], int]:
    return iter(range(10**6)).__next__


def _change_outputs(
    changes: Sequence[Change], heads: int, layer: Callable[[], int], _: nn.Module, args: Any, kwargs: Any
) -> Any:
    """Scale or average the outputs of heads, (1, N, H·D), that W_O is about to read."""
    number = layer()
    x = args[0].clone()
    by_head = x.view(*x.shape[:2], heads, -1)
    for change in changes:
        if change["kind"] == "heads" and change["layer"] == number and change.get("mean"):
            by_head[:, :, change["heads"]] = by_head[:, :, change["heads"]].mean(1, keepdim=True)
    for change in changes:
        if change["kind"] == "heads" and change["layer"] == number and not change.get("mean"):
            by_head[:, :, change["heads"]] *= change.get("scale", 0.0)
    return (x, *args[1:]), kwargs


def _change_states(
    changes: Sequence[Change], states: list[Tensor], _: nn.Module, args: Any, kwargs: Any
) -> Any:
    """Change the hidden state that a block is about to read, (1, N, C), and keep it."""
    named = "hidden_states" if not args else None
    x = (kwargs[named] if named else args[0]).clone()
    _apply(changes, len(states), x[0])
    states.append(x[0].clone())
    return ((x, *args[1:]), kwargs) if named is None else (args, {**kwargs, named: x})


def _apply(changes: Sequence[Change], layer: int, x: Tensor) -> None:
    """Replace or move rows of a hidden state (N, C)."""
    for change in changes:
        if change["kind"] == "states" and change["layer"] == layer:
            vector = torch.tensor(np.asarray(change["vector"]))
            for token in change["tokens"]:
                x[token] = x[token] + vector if change.get("add") else vector


@contextmanager
def _softmax(changes: Sequence[Change], heads: int) -> Iterator[list[Tensor]]:
    """Set scores of blocked edges to −∞ before each softmax of attention; collects the weights (H, N, N)."""
    weights: list[Tensor] = []

    def softmax(scores: Tensor, *args: Any, **options: Any) -> Tensor:
        assert scores.dim() == 4
        assert scores.shape[:2] == (1, heads)
        scores = scores.clone()
        for change in changes:
            if change["kind"] == "edges" and len(weights) in change["layers"]:
                for head in change["heads"]:
                    for query in change["queries"]:
                        scores[0, head, query, change["keys"]] = -torch.inf
        found = _SOFTMAX(scores, *args, **options).nan_to_num(nan=0.0)
        # Some hide keys by the lowest number: a row with nothing else left has no keys.
        found = found.masked_fill(scores.amax(-1, keepdim=True) <= -1e30, 0)
        weights.append(found[0].clone())
        return found

    with mock.patch.object(nn.functional, "softmax", softmax), mock.patch.object(torch, "softmax", softmax):
        yield weights
