"""Runs one short text at a time, with everything but its tokens prepared in advance."""

import threading
from typing import NamedTuple

import torch
from torch import Tensor

from model.arrays import IntArray
from model.encoder.encoder import Encoder
from model.encoder.packing import Packing
from model.progress import Progress
from model.pytorch.kernels.embeddings import NativeEmbeddings
from model.pytorch.kernels.passes import Pass
from model.pytorch.kernels.stack import NativeStack
from model.pytorch.kernels.structures import Embedding

MOST_TOKENS = 64


class _Prepared(NamedTuple):
    """The calls for texts of one length, and the rows that they read and write."""

    embedding: Embedding
    layers: Pass
    ids: IntArray
    segments: IntArray
    x: Tensor
    rounded: Tensor | None
    state: Tensor


class ShortPasses(threading.local):
    """What each thread keeps from one short text to the next: memory, and the calls for each length.

    To allocate and describe them again would take Python a fifth of the time of a text of fifteen tokens.
    """

    def __init__(self, encoder: Encoder, stack: NativeStack, embeddings: NativeEmbeddings) -> None:
        self._encoder, self._stack, self._embeddings = encoder, stack, embeddings
        self._x = torch.empty(MOST_TOKENS, encoder.config.hidden_size)
        self._state = torch.empty_like(self._x)
        self._buffers = stack.buffers(self._x, Packing.of([MOST_TOKENS]))
        self._ids, self._segments = torch.zeros(2, MOST_TOKENS, dtype=torch.int64)
        self._prepared: dict[int, _Prepared] = {}

    @staticmethod
    def of(encoder: Encoder) -> "ShortPasses | None":
        """Prepare an encoder; None if the kernels do not compute all of a pass.

        Encoders with biases of scores are not prepared: these would take much memory for each length.
        """
        stack, embeddings = encoder.executor, encoder.embedder
        if not (isinstance(stack, NativeStack) and isinstance(embeddings, NativeEmbeddings)):
            return None
        config = encoder.config
        whole = not config.biased and config.disentangled is None
        return ShortPasses(encoder, stack, embeddings) if whole else None

    def takes(self, ids: IntArray) -> bool:
        """Whether a text with these tokens, int64 (N,), can be run."""
        return 0 < len(ids) <= MOST_TOKENS and not self._embeddings.moves_positions(torch.from_numpy(ids))

    def run(self, ids: IntArray, segments: IntArray, progress: Progress) -> Tensor:
        """Compute the last hidden state of a text, float32 (N, C), valid until the thread runs the next one.

        Raises MemoryError, Stopped if `progress` is to stop, and ValueError for an id without an embedding.
        """
        prepared = self._prepared.get(len(ids)) or self._prepare(len(ids))
        prepared.ids[:], prepared.segments[:] = ids, segments
        self._embeddings.run(prepared.embedding)
        if prepared.rounded is not None:
            prepared.rounded.copy_(prepared.x)
        prepared.layers.layers.progress = progress.address
        self._stack.run(prepared.layers)
        state = prepared.state
        return state if self._encoder.config.norm == "post" else self._encoder.final_norm(state)

    def _prepare(self, length: int) -> _Prepared:
        packing = Packing.of([length])
        ids, segments, x, state = (
            rows[:length] for rows in (self._ids, self._segments, self._x, self._state)
        )
        rounded = self._buffers.rounded
        prepared = self._prepared[length] = _Prepared(
            self._embeddings.describe(ids, segments, packing, x),
            self._stack.describe(self._buffers, packing, state),
            ids.numpy(),
            segments.numpy(),
            x,
            None if rounded is None else rounded[:length],
            state,
        )
        return prepared
