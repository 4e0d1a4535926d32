"""Embeds tokens with the native kernels."""

from ctypes import byref
from typing import cast

import torch
from torch import Tensor, nn

from model.encoder.encoder import Embeddings, embed_packed
from model.encoder.packing import Packing
from model.pytorch.kernels.library import Kernels, check
from model.pytorch.kernels.structures import Embedding


class NativeEmbeddings:
    """Computes hidden state 0 as `Embeddings` does, in one call; an `Encoder.embedder`."""

    def __init__(self, embeddings: Embeddings, kernels: Kernels) -> None:
        self._kernels = kernels
        self._embeddings = embeddings
        self._padding_id = embeddings.config.padding_id
        position, offset = embeddings.position, embeddings.config.position_offset
        positions: Tensor | None = None if position is None else position[offset:]
        embeddings.token.data = embeddings.token.float()
        self._tables = (embeddings.token, positions, embeddings.segment)
        norm = cast(nn.LayerNorm, embeddings.norm)
        self._constants = Embedding(
            size=embeddings.token.shape[1],
            gain=norm.weight.data_ptr(),
            bias=None if norm.bias is None else norm.bias.data_ptr(),
            epsilon=norm.eps,
        )
        for name, table in zip(("token", "position", "segment"), self._tables, strict=True):
            if table is not None:
                setattr(self._constants, f"{name}_table", table.data_ptr())
                setattr(self._constants, f"{name}_count", len(table))

    @staticmethod
    def supports(embeddings: Embeddings) -> bool:
        """Whether these are embeddings as in BERT, or as in ModernBERT, whose norm has no bias."""
        config = embeddings.config
        plain = config.positions in ("learned", "none")
        normed = isinstance(embeddings.norm, nn.LayerNorm)
        scaled = config.scale_embeddings or config.token_dropout is not None or config.embedding_size > 0
        return plain and normed and not scaled

    def __call__(self, input_ids: Tensor, segment_ids: Tensor, packing: Packing) -> Tensor:
        """Embed packed tokens, int64 (T,) on the CPU, with padding rows behind them: float32 (T, C).

        Raises ValueError for a number without a row in its table.
        """
        if self.moves_positions(input_ids):
            return embed_packed(self._embeddings, input_ids, segment_ids, packing)
        x = torch.empty(len(input_ids), self._tables[0].shape[1])
        self.run(self.describe(input_ids, segment_ids, packing, x))
        return x

    def moves_positions(self, input_ids: Tensor) -> bool:
        """Whether a token is padding, so that the positions of those after it differ from their places."""
        return self._padding_id is not None and bool((input_ids == self._padding_id).any())

    def describe(self, input_ids: Tensor, segment_ids: Tensor, packing: Packing, x: Tensor) -> Embedding:
        """Describe the call that embeds tokens into x; all arguments must live until `run` has returned."""
        arguments = Embedding.from_buffer_copy(self._constants)
        arguments.tokens, arguments.segments = input_ids.data_ptr(), segment_ids.data_ptr()
        arguments.starts, arguments.sequences = packing.offsets.ctypes.data, len(packing.lengths)
        arguments.output, arguments.rows = x.data_ptr(), len(x)
        return arguments

    def run(self, arguments: Embedding) -> None:
        """Embed what `describe` described; raises ValueError for a number without a row in its table."""
        check(self._kernels.embed(byref(arguments)))
