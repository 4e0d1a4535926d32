"""Scores that PyTorch can differentiate: what `model/heads` computes from hidden states, step by step.

Everything is in float32 and keeps the graph of autograd, from hidden states to one score for each sequence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from model.choices import TokenVectorsWant
from model.contract import LogitsWant, PoolingMode, SentenceWant, Want
from model.encoder.interventions import GradientPoint
from model.heads.dense import Dense, First, LayerNorm, Step, UnitLength
from model.heads.pooling import token_weights
from model.heads.running import Heads
from model.pytorch.tensor_operations import TensorOperations

States = Mapping[int, Sequence[Tensor]]
"""Number of a hidden state -> its rows for each side, (S, n, C), at S points that differ in their share."""


class Scores:
    """The scores of a model with these heads, whose last hidden state has the number `last`."""

    def __init__(self, heads: Heads, ops: TensorOperations, last: int) -> None:
        self._heads = heads
        self._ops = ops
        self._last = last

    def __call__(self, states: States, want: Want, point: GradientPoint) -> Tensor:
        """Compute the score that is wanted at S points: float32 (S,). Raises ValueError if there is none."""
        match want:
            case Want(heads=(LogitsWant(),)):
                return self._logit(states[self._last][0].float(), point)
            case Want(heads=(TokenVectorsWant(),)):
                return self._max_sim([one.float() for one in states[self._last]], point)
            case Want(sentence=SentenceWant() as sentence):
                by_layer = [states[layer] for layer in sentence.layers]
                first, second = (
                    self._sentence([layer[i].float() for layer in by_layer], sentence, side.skip)
                    for i, side in enumerate(point.sides)
                )
                return _compare(point.function, first, second)
            case _:
                raise ValueError("the score of a gradient is read from a sentence vector or a head")

    def located(self, point: GradientPoint, token_ids: NDArray[np.int64]) -> GradientPoint:
        """Return the point, with the token that a logit is read from filled in if the tokens decide it."""
        predictor = self._heads.predictor
        if predictor is None or predictor.pooling != "last" or point.token is not None:
            return point
        return replace(point, token=predictor.last(token_ids))

    def _logit(self, hidden: Tensor, point: GradientPoint) -> Tensor:
        predictor = self._heads.predicting
        if point.token is not None:
            pooled = hidden[:, point.token]
        else:
            pooled = hidden[:, 0] if predictor.pooling == "cls" else hidden.mean(1)
        logits: Tensor = predictor(pooled, self._ops)  # (S, labels)
        return logits[:, point.label]

    def _max_sim(self, hidden: Sequence[Tensor], point: GradientPoint) -> Tensor:
        query, document = (
            _unit_length(self._project(one[:, list(side.rows)]))
            for one, side in zip(hidden, point.sides, strict=True)
        )
        if not document.shape[1]:
            return query.sum((1, 2)) * 0  # a text without tokens scores 0
        largest = (query @ document.transpose(1, 2)).amax(-1)
        return largest.mean(-1) if point.function == "mean_max_sim" and largest.shape[1] else largest.sum(-1)

    def _project(self, x: Tensor) -> Tensor:
        """Map the last hidden states of tokens (S, n, C) to vectors (S, n, E) that are not normalised yet."""
        heads = self._heads
        if heads.token_dense or heads.predictor is None:
            return self._apply(heads.token_dense, x)
        projected: Tensor = heads.predictor(x.flatten(0, 1), self._ops)
        return projected.view(*x.shape[:2], -1)

    def _sentence(self, hidden: Sequence[Tensor], want: SentenceWant, skip: int) -> Tensor:
        """Compute the sentence vectors (S, E) of hidden states (S, n, C) of each of the wanted layers."""
        pooled = torch.cat([_pool(x, mode, skip) for x in hidden for mode in want.modes], -1)
        vectors = self._apply(self._heads.dense, pooled)[:, : want.dimensions]
        return _unit_length(vectors) if want.normalize else vectors

    def _apply(self, steps: Sequence[Step], x: Tensor) -> Tensor:
        for step in steps:
            x = self._step(step, x)
        return x

    def _step(self, step: Step, x: Tensor) -> Tensor:
        """Do with PyTorch what a step does with numpy."""
        ops = self._ops
        match step:
            case Dense():
                mapped = ops.linear(x, ops.array(step.weight), ops.array(step.bias))
                mapped = ops.activate(mapped, step.activation)
                if step.residual is not None:
                    return mapped + ops.linear(x, ops.array(step.residual), None)
                return mapped + x if step.adds_input else mapped
            case LayerNorm():
                return ops.layer_norm(x, ops.array(step.weight), ops.array(step.bias), step.epsilon)
            case UnitLength():
                return _unit_length(x)
            case First():
                return x[..., : step.count]
            case _:
                raise TypeError(f"{type(step).__name__} is not differentiated")


def _pool(hidden: Tensor, mode: PoolingMode, skip: int) -> Tensor:
    """Pool (S, n, C), without the first `skip` tokens, as `model.heads.pooling` does: (S, C)."""
    rows = hidden[:, skip:]
    weights = token_weights(mode, rows.shape[1], skip)
    return rows.amax(1) if weights is None else rows.new_tensor(weights) @ rows


def _unit_length(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1, eps=1e-12)


def _compare(function: str, first: Tensor, second: Tensor) -> Tensor:
    """Compare vectors (S, E) row by row, as `model.heads.similarity` does: (S,)."""
    match function:
        case "cosine":
            return (_unit_length(first) * _unit_length(second)).sum(-1)
        case "dot":
            return (first * second).sum(-1)
        case "euclidean":
            return -torch.linalg.vector_norm(first - second, dim=-1)
        case "manhattan":
            return -(first - second).abs().sum(-1)
        case _:
            raise ValueError(f"{function} is not a function of two vectors")
