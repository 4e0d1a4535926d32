"""The attention of a layer that native kernels have run, which they can run again to observe more of it."""

from ctypes import byref

from torch import Tensor

from model.encoder.config import EncoderConfig
from model.pytorch.kernels import structures
from model.pytorch.kernels.library import Kernels, check
from model.pytorch.kernels.observations import Observations
from model.pytorch.kernels.passes import Pass
from model.pytorch.kernels.positions import PassPositions


class Attended:
    """One layer's queries and keys of all sequences of a batch, as the kernels read them.

    `described` is the pass that ran the layer; `qkv` are the queries, keys and values side by side.
    """

    def __init__(
        self,
        kernels: Kernels,
        described: Pass,
        config: EncoderConfig,
        block: object,
        qkv: Tensor,
        positions: PassPositions,
    ) -> None:
        self._kernels = kernels
        queries, keys, _ = (rows * qkv.element_size() for rows in config.qkv_rows)
        self._attention = structures.Attention.from_buffer_copy(described.attention)
        self._attention.q = qkv.data_ptr()
        self._attention.k = qkv.data_ptr() + queries
        self._attention.v = qkv.data_ptr() + queries + keys
        self._attention.token_stride = sum(config.qkv_rows)
        self._attention.window = block.attention.layer.window  # type: ignore[attr-defined]
        self._attention.steps = described.layers.progress  # where its steps are, the first of its counts
        self._listed = positions.biases([block]), positions.distances([block])
        self._attention.bias, self._attention.distances = (one and one[0] for one in self._listed)
        self._kept = qkv, positions, described.kept
        self.heads, self.sequences = config.num_heads, described.attention.sequences

    def observe(self, observations: Observations) -> None:
        """Compute what is to be recorded of each sequence, and no outputs."""
        self._attention.observations = observations.address(0)
        check(self._kernels.attend(byref(self._attention)))
