"""The encoder: embeddings, then blocks of attention and feed-forward, over packed sequences.

Nothing in here knows about padding: everything but attention is the same at every token, and attention
runs within each sequence (`model/encoder/attention.py`).
"""

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.attention import SelfAttention
from model.encoder.config import EncoderConfig
from model.encoder.feed_forward import FeedForward
from model.encoder.linear import Linear
from model.encoder.packing import Packing
from model.encoder.positions import relative_buckets, rotary_angles, rotate, sinusoidal

Probe = Callable[[int, Any, Tensor, Tensor, Tensor, Tensor | None], None]
"""Called in a layer with its number, its attention, queries, keys and values (T, H, D), and position bias."""
InPass = Callable[[int], Any]
"""Gives what is looked at in a layer while it attends, in the form that an executor takes."""


class Executor(Protocol):
    """Runs all blocks of an encoder faster than they run themselves, with the same numbers."""

    def __call__(
        self,
        x: Tensor,
        packing: Packing,
        wanted: Collection[int],
        probe: Probe | None,
        probed: Collection[int],
        in_pass: InPass | None,
        passed: Collection[int],
    ) -> dict[int, Tensor]:
        """Run hidden state 0, float32 (T, C), through the blocks; returns the `wanted` states by number.

        `probe` is called for the layers in `probed`, `in_pass` for those in `passed`, which are observed
        while they attend. Layers count from 0; none past the last one that is needed is run. Each state is
        (T, C). Raises MemoryError.
        """
        ...


class Embeddings(nn.Module):
    """Token, position and segment embeddings, added up."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size), requires_grad=False)
        self.position = _table(config.max_positions, config.hidden_size, config.positions == "learned")
        self.segment = _table(config.segments, config.hidden_size, config.segments > 0)
        self.norm = _norm(config) if config.embedding_norm else nn.Identity()

    def forward(self, input_ids: Tensor, segment_ids: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens: three int64 (T,) to (T, C)."""
        x = F.embedding(input_ids, self.token)  # (T, C)
        if self.config.scale_embeddings:
            x = x * math.sqrt(self.config.hidden_size)
        if self.segment is not None:
            # A model of one segment reads both texts of a pair as that one.
            x = x + (F.embedding(segment_ids, self.segment) if self.config.segments > 1 else self.segment[0])
        if self.position is not None:
            x = x + F.embedding(positions, self.position)
        elif self.config.positions == "sinusoidal":
            x = x + sinusoidal(positions, self.config.hidden_size).to(x.dtype)
        return self.norm(x)


class Block(nn.Module):
    """Attention and feed-forward, each with a residual around it and a layer norm before or after."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = SelfAttention(config)
        self.attention_norm = _norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = _norm(config)

    def queries_keys_values(
        self, x: Tensor, rotary: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project hidden states (T, C) to what attention compares and mixes, each (T, H, D)."""
        q, k, v = self.attention.project(self.attention_norm(x) if self.pre_norm else x)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        return q, k, v

    def forward(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, packing: Packing, bias: Tensor | None
    ) -> Tensor:
        """Finish the block: x (T, C) and its q, k, v to the next hidden states (T, C)."""
        x = x + self.attention(q, k, v, packing, bias)
        if self.pre_norm:
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x)
        return self.feed_forward_norm(x + self.feed_forward(x))


class Encoder(nn.Module):
    """A stack of identical blocks, as its config describes it.

    Hidden state 0 is the output of the embeddings, hidden state i that of block i. With norm="pre" the
    last hidden state has gone through the final layer norm.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.relative_bias = _table(
            config.relative_buckets, config.num_heads, config.positions == "relative_bias"
        )
        self.executor: Executor | None = None
        """What runs the blocks in their place; None runs them one by one."""

    @classmethod
    def from_seed(cls, config: EncoderConfig, seed: int) -> "Encoder":
        """Build an encoder with random weights, the same ones for the same seed.

        Matrices are Glorot-uniform, embeddings normal with deviation 0.02 (1 where the config scales
        them), biases zero and norms the identity.
        """
        encoder = cls(config)
        generator = torch.Generator().manual_seed(seed)
        embedding_deviation = config.hidden_size**-0.5 if config.scale_embeddings else 0.02
        for name, parameter in encoder.named_parameters():
            if "norm" in name:
                parameter.data.fill_(1.0 if name.endswith("weight") else 0.0)
            elif name.endswith("bias") and parameter.dim() == 1:
                parameter.data.zero_()
            elif name.startswith("embeddings."):
                parameter.data.normal_(0.0, embedding_deviation, generator=generator)
            else:
                nn.init.xavier_uniform_(parameter, generator=generator)
        return encoder.eval()

    def reduce_precision(self, dtype: torch.dtype) -> None:
        """Run attention and feed-forward in `dtype`, and keep the residual stream and its norms in float32.

        Rounding the residual stream in every layer costs more precision than all the products together.
        """
        for module in self.modules():
            if isinstance(module, SelfAttention | FeedForward):
                module.to(dtype)

    def prepack(self) -> bool:
        """Lay out every matrix for the CPU it runs on; returns whether all could be."""
        for block in self.blocks:
            cast(Block, block).attention.factor_output()
        linears = [module for module in self.modules() if isinstance(module, Linear)]
        for linear in linears:
            linear.prepack()
        return all(linear.packed is not None for linear in linears)

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        packing: Packing,
        *,
        hidden: Iterable[int],
        probe: Probe | None = None,
        probe_layers: Iterable[int] = (),
        in_pass: InPass | None = None,
        passed: Collection[int] = (),
    ) -> dict[int, Tensor]:
        """Run packed sequences and return the `hidden` states asked for, each (T, C).

        `input_ids`, `segment_ids` int64 (T,). `probe` sees queries, keys and values of `probe_layers`; an
        executor looks at `passed` layers while they attend. What lies past the last state and
        the last layer that anyone asked for is not computed. There may be more rows than `packing` has
        tokens; they are run and belong to no sequence.
        """
        wanted, probed = set(hidden), set(probe_layers)
        positions = F.pad(packing.positions(input_ids.device), (0, len(input_ids) - packing.tokens))  # (T,)
        x = self.embeddings(input_ids, segment_ids, positions)  # (T, C)
        rotary, bias = self._rotary(positions), self._bias(packing, input_ids.device)
        states = {0: x} if 0 in wanted else {}
        deepest = max(wanted, default=0)
        if self.executor is not None:
            return states | self.executor(x, packing, wanted - {0}, probe, probed, in_pass, passed)
        for layer in range(max(deepest, max(probed, default=-1) + 1)):
            block = cast(Block, self.blocks[layer])
            q, k, v = block.queries_keys_values(x, rotary)  # (T, H, D) each
            if probe is not None and layer in probed:
                probe(layer, block.attention, q, k, v, bias)
            if layer == max(probed, default=-1) and layer >= deepest:
                break
            x = block(x, q, k, v, packing, bias)  # (T, C)
            if layer + 1 in wanted:
                states[layer + 1] = self.final_norm(x) if layer + 1 == len(self.blocks) else x
        return states

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.config.positions != "rotary":
            return None
        return rotary_angles(positions, self.config.head_size, self.config.rotary_base)

    def _bias(self, packing: Packing, device: torch.device) -> Tensor | None:
        """Look up the bias of every distance, once for all layers: (H, longest, longest)."""
        if self.relative_bias is None:
            return None
        config = self.config
        buckets = relative_buckets(
            max(packing.lengths, default=0), config.relative_buckets, config.relative_max_distance, device
        )
        return F.embedding(buckets, self.relative_bias).permute(2, 0, 1)


def _norm(config: EncoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps)


def _table(rows: int, columns: int, present: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.empty(rows, columns), requires_grad=False) if present else None
