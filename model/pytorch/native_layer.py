"""One layer's attention, block by block, whose weights native kernels compute from queries and keys."""

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from model.arrays import IntArray
from model.contract import FloatArray
from model.encoder.attention import Indices
from model.pytorch.kernels.observations import Observations, Slots
from model.pytorch.kernels.passes import Attended
from model.pytorch.tensor_layer import TensorLayer


@dataclass(frozen=True, slots=True)
class NativeLayer(TensorLayer):
    """A `TensorLayer` of sequences of a batch, from number `first` on, with weights from the kernels.

    Keys that a window hides cost nothing, and all heads of a block run side by side.
    """

    attended: Attended = field(kw_only=True)
    first: int = field(kw_only=True)

    @staticmethod
    def of(layer: TensorLayer, attended: Attended, first: int) -> "NativeLayer":
        """Have the kernels compute the weights of a layer that they ran."""
        every = {one.name: getattr(layer, one.name) for one in fields(layer)}
        return NativeLayer(**every, attended=attended, first=first)

    @property
    def together(self) -> bool:
        """Whether the heads of a block are better computed together."""
        return True

    def mean(self, sequences: slice, heads: IntArray, shares: FloatArray, rows: Indices) -> Tensor:
        """Compute Σ_h shares_h p_h over some heads, float32 (b, rows, N)."""
        self.progress.step()
        every = np.zeros(self.attended.heads, np.float32)
        every[heads] = shares
        length, queries = self.q.shape[1], _numbers(rows)
        sums = np.zeros((sequences.stop - sequences.start, len(queries), length), np.float32)
        observations = Observations(self.attended.sequences, self.attended.heads)
        observations.mean(self.first + sequences.start, sums, every, Slots(queries, length))
        self.attended.observe(observations)
        return torch.from_numpy(sums)

    def probabilities(self, sequences: slice, heads: Indices, rows: Indices) -> Tensor:
        """Compute softmax weights, float32 (b, heads, rows, N)."""
        self.progress.step()
        length, count = self.q.shape[1], sequences.stop - sequences.start
        listed, queries = _numbers(heads), _numbers(rows)
        weights = np.empty((count, len(listed), len(queries), length), np.float32)
        observations = Observations(self.attended.sequences, self.attended.heads)
        observations.weights(
            self.first + sequences.start, weights, Slots(listed, self.attended.heads), Slots(queries, length)
        )
        self.attended.observe(observations)
        return torch.from_numpy(weights)


def _numbers(places: Indices) -> IntArray:
    return np.arange(places.start, places.stop) if isinstance(places, slice) else np.asarray(places)
