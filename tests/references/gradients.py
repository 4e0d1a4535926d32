"""Gradients of scores by embeddings, of models of `transformers` in float64, one text at one point at a time.

Hooks take the hidden state that the first block is about to read, and put another in its place.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tests.references.interventions import BLOCKS

Array = NDArray[np.float64]
Score = Callable[..., Tensor]
"""A number of what the model makes of each text: its last hidden state (N, C), or its logits."""


@dataclass(frozen=True)
class Text:
    """The tokens of one text; `moved` are those that a baseline token takes the place of.

    No token attends to the last `unattended` ones.
    """

    ids: Sequence[int]
    segments: Sequence[int]
    moved: Sequence[int]
    unattended: int = 0


class Differentiable:
    """A model in float64, which runs from another hidden state 0 if it is given one."""

    def __init__(self, model: Any, *, takes_segments: bool) -> None:
        self._model = copy.deepcopy(model).double().eval()
        self._takes_segments = takes_segments
        self._lines: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}

    def run(self, text: Text, ids: Sequence[int], state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return hidden state 0 (N, C), and what the model makes of it."""
        read: list[Tensor] = []

        def replace(_: nn.Module, args: Any, kwargs: Any) -> Any:
            if read:
                return None
            read.append((args[0] if args else kwargs["hidden_states"])[0].detach())
            if state is None:
                return None
            return (
                ((state[None], *args[1:]), kwargs)
                if args
                else (args, {**kwargs, "hidden_states": state[None]})
            )

        mask = torch.ones(1, len(ids)).long()
        mask[:, len(ids) - text.unattended :] = 0
        given = {"input_ids": torch.tensor([list(ids)]), "attention_mask": mask}
        if self._takes_segments:
            given["token_type_ids"] = torch.tensor([list(text.segments)])
        blocks = [module for name, module in self._model.named_modules() if BLOCKS.search(name)]
        # The sub-layers of T5's blocks are called layers, too.
        blocks = [one for one in blocks if not re.search(r"Layer(SelfAttention|FF)$", type(one).__name__)]
        hooks = [one.register_forward_pre_hook(replace, with_kwargs=True) for one in blocks]
        try:
            output = self._model(**given)
        finally:
            for hook in hooks:
                hook.remove()
        (before,) = read
        return before, output.logits[0] if "logits" in output else output.last_hidden_state[0]

    def line(self, text: Text, baseline: int) -> tuple[Tensor, Tensor]:
        """Hidden state 0 of a text, and what is added to that of the baseline on the way to it: (N, C) each.

        Only the states of the tokens that are moved differ. It is kept: every point of a text is on its line.
        """
        fields = text.ids, text.segments, text.moved
        key = (*map(tuple, fields), text.unattended, baseline)
        if key not in self._lines:
            self._lines[key] = self._line(text, baseline)
        return self._lines[key]

    def _line(self, text: Text, baseline: int) -> tuple[Tensor, Tensor]:
        moved = [*text.moved]
        other = [baseline if place in moved else token for place, token in enumerate(text.ids)]
        state, _ = self.run(text, text.ids)
        start, _ = self.run(text, other)
        change = torch.zeros_like(state)
        change[moved] = (state - start)[moved]
        return state, change

    def point(self, texts: Sequence[Text], baseline: int, share: float, score: Score) -> tuple[Array, float]:
        """What each token adds there, the texts end to end, and the score."""
        lines = [self.line(text, baseline) for text in texts]
        states = [(state - (1 - share) * change).requires_grad_() for state, change in lines]
        made = [self.run(text, text.ids, state)[1] for text, state in zip(texts, states, strict=True)]
        value = score(*made)
        gradients = torch.autograd.grad(value, states)
        added = [(gradient * change).sum(-1) for gradient, (_, change) in zip(gradients, lines, strict=True)]
        return torch.cat(added).numpy(), value.item()

    def integrated(
        self, texts: Sequence[Text], baseline: int, steps: int, score: Score
    ) -> tuple[Array, float, float]:
        """What each token adds along the line, by the midpoint rule, and the scores of its two ends."""
        points = [self.point(texts, baseline, (i + 0.5) / steps, score)[0] for i in range(steps)]
        ends = [self.point(texts, baseline, share, score)[1] for share in (0.0, 1.0)]
        return np.mean(points, axis=0), ends[0], ends[1]


def pooled(hidden: Tensor, pooling: str, skip: int = 0) -> Tensor:
    """The vector of a text (N, C), token by token."""
    rows = list(hidden[skip:])
    match pooling:
        case "cls":
            return rows[0]
        case "last":
            return rows[-1]
        case "max":
            return torch.stack(rows).max(0).values
        case "mean_max":
            return torch.cat([pooled(hidden, "mean", skip), pooled(hidden, "max", skip)])
        case "weighted_mean":
            weights = range(skip + 1, skip + 1 + len(rows))
            return sum((w * row for w, row in zip(weights, rows, strict=True)), rows[0] * 0) / sum(weights)
    total = sum(rows, rows[0] * 0)
    return total / (len(rows) ** 0.5 if pooling == "mean_sqrt_len" else len(rows))


def compared(function: str, first: Tensor, second: Tensor) -> Tensor:
    """The similarity of two vectors."""
    match function:
        case "cosine":
            return first @ second / (first.norm() * second.norm())
        case "dot":
            return first @ second
        case "euclidean":
            return -(first - second).pow(2).sum().sqrt()
    return -(first - second).abs().sum()


def max_sim(query: Tensor, document: Tensor, matrix: Tensor) -> Tensor:
    """The largest product of each vector of a query with one of a document, added up."""
    vectors = [F.normalize(rows @ matrix.double().T, dim=-1) for rows in (query, document)]
    return (vectors[0] @ vectors[1].T).max(1).values.sum()
