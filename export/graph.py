"""The encoder as a graph of rectangles, whose attention can be asked for: what is traced and written as ONNX.

It is made of the modules of `model/encoder/encoder.py` and computes what they do. What differs is what a
graph needs: sequences lie in a padded rectangle, queries, keys and values are three products, and what is
looked at is chosen by lists of indices that are inputs, since a runtime computes every output of a graph,
fetched or not.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.attention import similarity_scores, visible
from model.encoder.config import EncoderConfig
from model.encoder.encoder import Block, Encoder
from model.encoder.linear import Linear
from model.encoder.positions import relative_buckets, rotary_angles, rotate

_LOWEST = torch.finfo(torch.float32).min


class Graph(nn.Module):
    """An encoder over B sequences of N tokens; inputs and outputs are those of `model/onnx/names.py`.

    The encoder must have plain weights: not prepacked, on the CPU.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.config = encoder.config
        self.embeddings = encoder.embeddings
        self.layers = nn.ModuleList(_Layer(self.config, cast(Block, block)) for block in encoder.blocks)
        self.final_norm = encoder.final_norm
        self.relative_bias = encoder.relative_bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        tokens: tuple[Tensor, ...],
        lists: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Run a rectangle: the inputs of `input_names`, in two groups after the third, to `output_names`."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)  # (N,)
        x = self.embeddings(input_ids, token_type_ids, positions)  # (B, N, C)
        real = attention_mask
        states, looks = [_rows(x, tokens[0])], []
        for i, layer in enumerate(self.layers):
            *looked, cells = lists[5 * i : 5 * i + 5]
            x, seen = layer(x, real, self._bias(x.shape[1], x.device), *looked, cells)
            real = F.embedding(cells, real.reshape(-1, 1)).squeeze(-1)  # (B, N)
            last = i + 1 == len(self.layers)
            states.append(_rows(self.final_norm(x) if last else x, tokens[i + 1]))
            looks += seen
        return (*states, *looks)

    def _bias(self, length: int, device: torch.device) -> Tensor | None:
        """Look up the bias of every distance: (H, N, N)."""
        if self.relative_bias is None:
            return None
        config = self.config
        buckets = relative_buckets(length, config.relative_buckets, config.relative_max_distance, device)
        return F.embedding(buckets, self.relative_bias).permute(2, 0, 1)


class _Layer(nn.Module):
    """A block of the encoder with queries, keys and values as three products."""

    def __init__(self, config: EncoderConfig, block: Block) -> None:
        super().__init__()
        self.config = config
        self.block = block
        attention = block.attention
        self.query, self.key, self.value = _thirds(attention.qkv, config.hidden_size)
        self.output = attention.output
        self.factor = nn.Parameter(attention.factor_output(), requires_grad=False)  # (H, D, D)

    def forward(
        self,
        x: Tensor,
        real: Tensor,
        bias: Tensor | None,
        heads: Tensor,
        rows: Tensor,
        pair_heads: Tensor,
        norm_heads: Tensor,
        cells: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run x (B, N, C), of which `real` (B, N) are tokens; gives the next x, and what was looked at."""
        block = self.block
        inner = block.attention_norm(x) if block.pre_norm else x
        q, k, v = (self._split(linear(inner)) for linear in (self.query, self.key, self.value))
        q, k = self._turned(q), self._turned(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (B, H, N, D) each
        mask = self._visible(real)  # (B, 1, N, N)
        seen = [
            self._weights(q, k, bias, mask, heads, rows),
            q.index_select(1, pair_heads).float(),
            k.index_select(1, pair_heads).float(),
            self._norms(v, norm_heads),
        ]
        added = mask if bias is None else torch.where(mask, bias, -torch.inf).to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=added)  # (B, H, N, D)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        x = x if block.pre_norm else block.attention_norm(x)
        x = F.embedding(cells, x.flatten(0, 1))  # what goes on: (B, N, C)
        if block.pre_norm:
            return x + block.feed_forward(block.feed_forward_norm(x)), seen
        return block.feed_forward_norm(x + block.feed_forward(x)), seen

    def _turned(self, x: Tensor) -> Tensor:
        """Turn queries or keys (B, N, H, D) by their positions where the encoder has rotary ones."""
        if self.config.positions != "rotary":
            return x
        positions = torch.arange(x.shape[1], device=x.device)
        return rotate(x, *rotary_angles(positions, self.config.head_size, self.config.rotary_base))

    def _visible(self, real: Tensor) -> Tensor:
        """Say which keys each query sees: bool (B, 1, N, N), laid out, as the runtime's kernel wants it."""
        count, length = real.shape
        mask = real.bool()[:, None, None, :].expand(count, 1, length, length)
        seen = visible(self.config.visibility, self.config.window, length, real.device)
        return mask if seen is None else mask & seen

    def _split(self, x: Tensor) -> Tensor:
        """View (B, N, C) as (B, N, H, D)."""
        return x.view(*x.shape[:2], self.config.num_heads, self.config.head_size)

    def _weights(
        self, q: Tensor, k: Tensor, bias: Tensor | None, mask: Tensor, heads: Tensor, rows: Tensor
    ) -> Tensor:
        """Compute the softmax weights of the listed heads and rows, in float32: (B, heads, rows, N)."""
        q = q.index_select(1, heads).index_select(2, rows).float()
        scores = similarity_scores(q, k.index_select(1, heads).float(), "dot_product")
        if bias is not None:
            scores = scores + bias.index_select(0, heads).index_select(1, rows)
        # All rows of a mask are the same unless some queries see less than others.
        plain = self.config.visibility == "bidirectional"
        mask = mask[:, :, :1] if plain else mask.index_select(2, rows)
        return torch.softmax(torch.where(mask, scores, _LOWEST), dim=-1)

    def _norms(self, v: Tensor, heads: Tensor) -> Tensor:
        """Compute ‖f_h(x_j)‖ of the listed heads, in float32: (B, heads, N)."""
        values = v.index_select(1, heads).float() @ self.factor.index_select(0, heads)
        return torch.linalg.vector_norm(values, dim=-1)


def _thirds(qkv: Linear, size: int) -> tuple[Linear, Linear, Linear]:
    """Take a product of 3·C outputs apart into those of queries, keys and values."""
    parts = []
    for weight, bias in zip(qkv.weight.data.chunk(3), qkv.bias.data.chunk(3), strict=True):
        linear = Linear(size, size)
        linear.weight.data, linear.bias.data = weight.clone(), bias.clone()
        parts.append(linear)
    query, key, value = parts
    return query, key, value


def _rows(x: Tensor, tokens: Tensor) -> Tensor:
    """Choose tokens of hidden states (B, N, C), counted through all sequences: (tokens, C)."""
    return x.flatten(0, 1).index_select(0, tokens)
