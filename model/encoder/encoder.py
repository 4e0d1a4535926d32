"""The encoder: embeddings, then blocks of attention and feed-forward, over packed sequences.

Nothing in here knows about padding: everything but attention is the same at every token, and attention
runs within each sequence (`model/encoder/attention.py`).
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.attention import Rotary, SelfAttention
from model.encoder.block import Block
from model.encoder.config import EncoderConfig
from model.encoder.feed_forward import FeedForward
from model.encoder.linear import Linear
from model.encoder.norms import layer_norm
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.encoder.positions import relative_bias, rotary_angles, sinusoidal


class Executor(Protocol):
    """Runs all blocks of an encoder faster than they run themselves, with the same numbers."""

    def __call__(self, x: Tensor, packing: Packing, plan: Plan) -> dict[int, Tensor]:
        """Run hidden state 0, float32 (T, C), as far as the plan goes.

        Returns the plan's states after 0 by number, each (T, C), and observes what it names. Raises
        MemoryError.
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
        self.norm = layer_norm(config) if config.embedding_norm else nn.Identity()

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
        self.final_norm = layer_norm(config) if config.norm == "pre" else nn.Identity()
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
        self, input_ids: Tensor, segment_ids: Tensor, packing: Packing, plan: Plan
    ) -> dict[int, Tensor]:
        """Run packed sequences as a plan says; returns its hidden states by number, each (T, C).

        `input_ids`, `segment_ids` int64 (T,). There may be more rows than `packing` has tokens: padding
        rows, which are run and belong to no sequence. Raises MemoryError.
        """
        positions = F.pad(packing.positions(input_ids.device), (0, len(input_ids) - packing.tokens))  # (T,)
        x = self.embeddings(input_ids, segment_ids, positions)  # (T, C)
        states = {0: x} if 0 in plan.states else {}
        if self.executor is not None:
            return states | self.executor(x, packing, plan)
        rotary, bias = self._rotary(positions), self._bias(packing)
        blocks = cast(Sequence[Block], self.blocks)
        for number, block in enumerate(islice(blocks, plan.blocks)):
            observe = plan.observers.get(number)
            attend = partial(block.attention, packing=packing, rotary=rotary, bias=bias, observe=observe)
            x = block(x, attend)  # (T, C)
            if number + 1 in plan.states:
                states[number + 1] = self.final_norm(x) if number + 1 == len(self.blocks) else x
        if plan.ends_observing:
            block = blocks[plan.blocks]
            q, k, v = block.attention.project(block.attention_input(x), rotary)
            plan.observers[plan.blocks](block.attention, q, k, v, bias)
        return states

    def _rotary(self, positions: Tensor) -> Rotary | None:
        if self.config.positions != "rotary":
            return None
        return rotary_angles(positions, self.config.head_size, self.config.rotary_base)

    def _bias(self, packing: Packing) -> Tensor | None:
        """Look up the bias of every distance, once for all layers: (H, longest, longest)."""
        if self.relative_bias is None:
            return None
        longest = max(packing.lengths, default=0)
        return relative_bias(self.relative_bias, longest, self.config.relative_max_distance)


def _table(rows: int, columns: int, present: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.empty(rows, columns), requires_grad=False) if present else None
