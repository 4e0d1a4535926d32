"""Interventions in models of `transformers`, made by hooks on their modules while these attend eagerly.

An intervention is a dictionary with the fields that docs/explain.md describes, all positions non-negative.
"""

import pickle
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

from tests.references import jina
from tests.references.families import Written
from tests.references.jina import JinaBert

Array = NDArray[np.float64]
Change = dict[str, Any]
Reference = Callable[[Sequence[int], Sequence[int], Sequence[Change]], tuple[Array, Array]]
"""Hidden states (L + 1, N, C) and weights (L, H, N, N) of token ids and segments with interventions."""

_OUTPUTS = re.compile(
    r"(attention\.output\.dense|attention\.out_lin|attention\.dense|attn\.o|attn\.Wo|self_attn\.o(ut)?_proj"
    r"|SelfAttention\.o)$"
)
"""W_O: what it reads are the outputs of the heads side by side."""
BLOCKS = re.compile(r"(^|\.)(layers?|block|albert_layers)\.\d+$")
_SOFTMAX = nn.functional.softmax


def run_changed(
    written: Written,
    ids: Sequence[int],
    segments: Sequence[int],
    changes: Sequence[Change],
    unattended: int = 0,
) -> tuple[Array, Array]:
    """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input with interventions.

    No token attends to the last `unattended` ones.
    """
    model, config = written.model, written.model.config
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or [""] * layers
    attending = [number for number, kind in enumerate(kinds) if kind != "conv"]
    mask = torch.ones(1, len(ids)).long()
    mask[:, len(ids) - unattended :] = 0
    inputs = {"input_ids": torch.tensor([list(ids)]), "attention_mask": mask}
    if written.takes_segments:
        inputs["token_type_ids"] = torch.tensor([list(segments)])
    states: list[Tensor] = []
    with ExitStack() as stack:
        for pattern, hook in (
            (_OUTPUTS, partial(_change_outputs, changes, heads, iter(attending).__next__)),
            (BLOCKS, partial(_change_states, changes, states)),
        ):
            found = [module for name, module in model.named_modules() if pattern.search(name)]
            # The sub-layers of T5's blocks are called layers, too.
            found = [one for one in found if not re.search(r"Layer(SelfAttention|FF)$", type(one).__name__)]
            assert found
            for module in found:
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        weights = stack.enter_context(_softmax(changes, heads, attending))
        stack.enter_context(torch.inference_mode())
        output = model(**inputs)
    assert (len(states), len(weights)) == (layers, len(attending))
    last = output.last_hidden_state[0].clone()
    _apply(changes, layers, last)
    return torch.stack([*states, last]).numpy(), torch.stack(weights).numpy()


class Remembered:
    """A reference that runs once for each input: several ways of running a model are compared with it."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._found: dict[bytes, tuple[Array, Array]] = {}

    def __call__(
        self, ids: Sequence[int], segments: Sequence[int], changes: Sequence[Change]
    ) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N)."""
        given = pickle.dumps((ids, segments, changes))
        if given not in self._found:
            self._found[given] = self._reference(ids, segments, changes)
        return self._found[given]


def _counter() -> Callable[[], int]:
    return iter(range(10**6)).__next__


def _change_outputs(
    changes: Sequence[Change], heads: int, layer: Callable[[], int], _: nn.Module, args: Any, kwargs: Any
) -> Any:
    """Change the outputs of heads, (1, N, H·D), that W_O is about to read."""
    x = args[0].clone()
    _scale(changes, layer(), x.view(*x.shape[:2], heads, -1))
    return (x, *args[1:]), kwargs


def _scale(changes: Sequence[Change], number: int, by_head: Any) -> None:
    """Scale or average the outputs of heads, (1, N, H, D)."""
    for change in changes:
        if change["kind"] == "heads" and change["layer"] == number and change.get("mean"):
            by_head[:, :, change["heads"]] = by_head[:, :, change["heads"]].mean(1)[:, None]
    for change in changes:
        if change["kind"] == "heads" and change["layer"] == number and not change.get("mean"):
            by_head[:, :, change["heads"]] *= change.get("scale", 0.0)


def _change_states(
    changes: Sequence[Change], states: list[Tensor], _: nn.Module, args: Any, kwargs: Any
) -> Any:
    """Change the hidden state that a block is about to read, (1, N, C), and keep it."""
    named = "hidden_states" if not args else None
    x = (kwargs[named] if named else args[0]).clone()
    _apply(changes, len(states), x[0])
    states.append(x[0].clone())
    return ((x, *args[1:]), kwargs) if named is None else (args, {**kwargs, named: x})


def _apply(changes: Sequence[Change], layer: int, x: Any) -> None:
    """Replace or move rows of a hidden state (N, C)."""
    for change in changes:
        if change["kind"] == "states" and change["layer"] == layer:
            vector = change["vector"] if isinstance(x, np.ndarray) else torch.tensor(change["vector"])
            for token in change["tokens"]:
                x[token] = x[token] + vector if change.get("add") else vector


@contextmanager
def _softmax(changes: Sequence[Change], heads: int, layers: Sequence[int]) -> Iterator[list[Tensor]]:
    """Set scores of blocked edges to −∞ before each softmax of attention; collects the weights (H, N, N).

    `layers` are those that attend.
    """
    weights: list[Tensor] = []

    def softmax(scores: Tensor, *args: Any, **options: Any) -> Tensor:
        assert scores.dim() == 4
        assert scores.shape[:2] == (1, heads)
        scores = scores.clone()
        for head in range(heads):
            _block(changes, layers[len(weights)], head, scores[0, head])
        found = _SOFTMAX(scores, *args, **options).nan_to_num(nan=0.0)
        # Some hide keys by the lowest number: a row with nothing else left has no keys.
        found = found.masked_fill(scores.amax(-1, keepdim=True) <= -1e30, 0)
        weights.append(found[0].clone())
        return found

    with mock.patch.object(nn.functional, "softmax", softmax), mock.patch.object(torch, "softmax", softmax):
        yield weights


def _block(changes: Sequence[Change], layer: int, head: int, scores: Any) -> None:
    """Set the scores (N, N) of a head to −∞ where its edges are blocked."""
    for change in changes:
        if change["kind"] == "edges" and layer in change["layers"] and head in change["heads"]:
            for query in change["queries"]:
                scores[query, list(change["keys"])] = -np.inf


class ChangedJina(JinaBert):
    """The same in `JinaBert` with gated feed-forward layers, which is written out in float64."""

    changes: Sequence[Change] = ()

    @classmethod
    def run_changed(
        cls, of: JinaBert, ids: Sequence[int], segments: Sequence[int], changes: Sequence[Change]
    ) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input."""
        changed = cls(of.folder, of.config, of.weights)
        object.__setattr__(changed, "changes", changes)
        number, heads = _counter(), of.config["num_attention_heads"]

        def softmax(scores: Array) -> Array:
            layer, head = divmod(number(), heads)
            _block(changes, layer, head, scores)
            empty = np.isneginf(scores).all(-1, keepdims=True)
            weights = _SOFTMAX(torch.tensor(np.where(empty, 0, scores)), dim=-1).numpy()
            return np.where(empty, 0, weights)

        with mock.patch.object(jina, "softmax", softmax):
            return changed.run(ids, segments)

    def _linear(self, name: str, x: Array) -> Array:
        if name.endswith("attention.output.dense"):
            x = x.copy()
            by_head = x.reshape(1, len(x), self.config["num_attention_heads"], -1)
            _scale(self.changes, int(name.split(".")[2]), by_head)
        return super()._linear(name, x)

    def _norm(self, name: str, x: Array) -> Array:
        normed = super()._norm(name, x)
        if name == "embeddings.LayerNorm" or name.endswith("mlp.layernorm"):
            _apply(self.changes, int(name.split(".")[2]) + 1 if "mlp" in name else 0, normed)
        return normed
