"""The encoder: embeddings, then blocks of attention and feed-forward, over packed sequences.

No code here handles padding: every step except attention works token by token, and attention runs within
each sequence (`model/encoder/attention.py`).
"""

import math
from collections.abc import Callable, Sequence
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
    """Runs all blocks of an encoder, faster than the modules and with the same results."""

    def __call__(self, x: Tensor, packing: Packing, plan: Plan) -> dict[int, Tensor]:
        """Run the blocks that the plan needs on hidden state 0, float32 (T, C).

        Returns the plan's states after 0 by number, each (T, C), and calls the plan's observers. Raises
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
            # A model with one segment uses it for both texts of a pair.
            x = x + (F.embedding(segment_ids, self.segment) if self.config.segments > 1 else self.segment[0])
        if self.position is not None:
            x = x + F.embedding(positions, self.position)
        elif self.config.positions == "sinusoidal":
            x = x + sinusoidal(positions, self.config.hidden_size).to(x.dtype)
        return self.norm(x)


class Encoder(nn.Module):
    """A stack of identical blocks, built from its config.

    Hidden state 0 is the output of the embeddings, hidden state i that of block i. With norm="pre", the
    final layer norm is applied to the last hidden state.
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
        """Runs the blocks instead of the modules; None runs the modules one by one."""
        self.embedder: Callable[[Tensor, Tensor, Packing], Tensor] | None = None
        """Computes hidden state 0 from token and segment ids; None uses the module `embeddings`."""

    @classmethod
    def from_seed(cls, config: EncoderConfig, seed: int) -> "Encoder":
        """Build an encoder with random weights, the same weights for the same seed.

        Matrices are Glorot-uniform, embeddings normal with standard deviation 0.02 (1 after scaling, if the
        config scales them), biases zero and norms the identity.
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
        """Run attention and feed-forward in `dtype`; keep the residual stream and its norms in float32.

        Rounding the residual stream in every layer would lose more precision than all products together.
        """
        for module in self.modules():
            if isinstance(module, SelfAttention | FeedForward):
                module.to(dtype)

    def prepack(self) -> bool:
        """Prepack every matrix for oneDNN on this CPU; returns whether all of them could be prepacked."""
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
        """Run packed sequences according to a plan; returns its hidden states by number, each (T, C).

        `input_ids`, `segment_ids` int64 (T,). Rows beyond the tokens of `packing` are padding rows: they are
        computed but belong to no sequence. Raises MemoryError, and ValueError or IndexError for an id
        without an embedding.
        """
        embed = self.embedder or self._embed
        x = embed(input_ids, segment_ids, packing)  # (T, C)
        states = {0: x} if 0 in plan.states else {}
        if self.executor is not None:
            return states | self.executor(x, packing, plan)
        rotary, bias = self._rotary(input_ids, packing), self._bias(packing)
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

    def _embed(self, input_ids: Tensor, segment_ids: Tensor, packing: Packing) -> Tensor:
        return cast(Tensor, self.embeddings(input_ids, segment_ids, _positions(input_ids, packing)))

    def _rotary(self, input_ids: Tensor, packing: Packing) -> Rotary | None:
        if self.config.positions != "rotary":
            return None
        positions = _positions(input_ids, packing)
        return rotary_angles(positions, self.config.head_size, self.config.rotary_base)

    def _bias(self, packing: Packing) -> Tensor | None:
        """Look up the bias of every distance once, for all layers: (H, longest, longest)."""
        if self.relative_bias is None:
            return None
        longest = max(packing.lengths, default=0)
        return relative_bias(self.relative_bias, longest, self.config.relative_max_distance)


def _positions(input_ids: Tensor, packing: Packing) -> Tensor:
    """Return the position of each token in its sequence: int64 (T,)."""
    return packing.positions(input_ids.device, len(input_ids) - packing.tokens)


def _table(rows: int, columns: int, present: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.empty(rows, columns), requires_grad=False) if present else None
