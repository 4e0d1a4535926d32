"""The encoder: embeddings, then blocks of attention and feed-forward, over packed sequences.

No code here handles padding: every step except attention works token by token, and attention runs within
each sequence (`model/encoder/attention.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.adapters import TableAdapters, TaskRows
from model.encoder.attending.disentangled import DistanceEmbeddings, PositionVectors, distance_rows
from model.encoder.attending.edits import Edits
from model.encoder.attention import Angles, Bias, SelfAttention
from model.encoder.block import Attend, Block
from model.encoder.config import EncoderConfig
from model.encoder.convolution import GatedConvolution, convolve_packed
from model.encoder.feed_forward import Experts, FeedForward, PerLayerGate, PerLayerInputs
from model.encoder.linear import Linear, widened
from model.encoder.norms import make_norm
from model.encoder.packing import Packing
from model.encoder.parts import Rotary
from model.encoder.plan import Plan
from model.encoder.positions import alibi, distances, relative_bias, rotary_angles, sinusoidal

# The share of tokens that were masks when models with token dropout were trained: 80 % of 15 %.
_MASKS_IN_TRAINING = 0.15 * 0.8


class Executor(Protocol):
    """Runs all blocks of an encoder, faster than the modules and with the same results."""

    def __call__(self, x: Tensor, packing: Packing, plan: Plan) -> dict[int, Tensor]:
        """Run the blocks that the plan needs on hidden state 0, float32 (T, C).

        Returns the plan's states after state 0, by number, each (T, C), and calls the plan's observers. Makes
        the plan's interventions, which change state 0 in place in `x`. Raises MemoryError, and Stopped if the
        plan's progress is to stop.
        """
        ...


class Embeddings(nn.Module):
    """Token, position and segment embeddings, added up, normalised and projected to C."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.token = nn.Parameter(torch.empty(config.vocab_size, width), requires_grad=False)
        self.position = _table(config.max_positions, width, config.positions == "learned")
        self.segment = _table(config.segments, width, config.segments > 0)
        self.adapters = nn.ModuleDict(_table_adapters(config))
        first, size = config.project_first, config.hidden_size
        self.norm = make_norm(config, size if first else width) if config.embedding_norm else nn.Identity()
        self.projection = Linear(width, size, bias=not first) if config.embedding_size else nn.Identity()

    @property
    def table_adapters(self) -> Mapping[str, TableAdapters]:
        """The adapters of the tables, by the tables' names; empty without adapters."""
        return cast(Mapping[str, TableAdapters], self.adapters)

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        positions: Tensor,
        weights: Tensor | None = None,
        tasks: Sequence[TaskRows] = (),
    ) -> Tensor:
        """Embed tokens: ids, segments and rows of positions, int64 (T,) each, to (T, C).

        Token embeddings are multiplied by `weights` (T,), which a config with `token_dropout` needs. Rows of
        `tasks` get the updates of their adapters.
        """
        config = self.config
        tasks = tasks if self.table_adapters else ()
        x = widened(F.embedding(input_ids, self.token))  # (T, E)
        if tasks:
            self.table_adapters["token"].add(x, input_ids, tasks)
        if weights is not None:
            x = x * weights[..., None].to(x.dtype)
        if config.scale_embeddings:
            x = x * math.sqrt(config.embedding_width)
        if self.segment is not None:
            # A model with one segment uses it for both texts of a pair.
            x = x + (F.embedding(segment_ids, self.segment) if config.segments > 1 else self.segment[0])
            if tasks:
                ids = segment_ids if config.segments > 1 else torch.zeros_like(segment_ids)
                self.table_adapters["segment"].add(x, ids, tasks)
        if self.position is not None:
            x = x + F.embedding(positions, self.position)
            if tasks:
                self.table_adapters["position"].add(x, positions, tasks)
        elif config.positions == "sinusoidal":
            x = x + sinusoidal(positions, config.embedding_width).to(x.dtype)
        if config.project_first:
            return cast(Tensor, self.norm(self.projection(x)))
        return cast(Tensor, self.projection(self.norm(x)))

    def position_rows(self, positions: Tensor, input_ids: Tensor, starts: Tensor | None = None) -> Tensor:
        """Return the row of each token in the table of positions, int64, in the shape of `positions`.

        `positions` count from 0 in each sequence. With a padding id, a token with that id has the row of the
        same number, and the positions of later tokens do not count it. Sequences are the rows of `input_ids`
        (B, N); if it is packed (T,), `starts` (T,) has the first token of each token's sequence.
        """
        padding, offset = self.config.padding_id, self.config.position_offset
        if padding is None:
            return positions + offset if offset else positions
        is_padding = input_ids == padding
        passed = is_padding.cumsum(-1) - is_padding.long()  # paddings before each token
        if starts is not None:
            passed = passed - passed.index_select(0, starts)
        return torch.where(is_padding, padding, positions + offset - passed)

    def token_weights(
        self, input_ids: Tensor, count: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> Tensor | None:
        """Return the factors of token embeddings, in the shape of `input_ids`; None without token dropout.

        They are 0 for masks, and (1 − share of masks in training) / (1 − share in this sequence) for all
        other tokens. `count` takes bools that mark the masks, and returns how many masks and how many tokens
        the sequence of each token has.
        """
        if self.config.token_dropout is None:
            return None
        is_mask = input_ids == self.config.token_dropout
        masks, tokens = count(is_mask)
        weights = (1 - _MASKS_IN_TRAINING) * tokens / (tokens - masks).clamp(min=1)
        return torch.where(is_mask, 0.0, weights)


class Encoder(nn.Module):
    """A stack of identical blocks, built from its config.

    Hidden state 0 is the output of the embeddings, and hidden state i is that of block i, from 1. Unless
    norms follow the sub-layers, a final norm is applied to the last hidden state.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(_make_blocks(config))
        self.final_norm = make_norm(config) if config.norm != "post" else nn.Identity()
        relative = config.relative_bias
        shared = relative is not None and not relative.per_layer
        self.relative_bias = _table(relative.rows if relative else 0, config.num_heads, shared)
        disentangled = config.disentangled
        self.distances = DistanceEmbeddings(config, disentangled) if disentangled else None
        self.per_layer_inputs = PerLayerInputs(config) if config.per_layer_size else None
        self.executor: Executor | None = None
        """Runs the blocks instead of the modules; None runs the modules one by one."""
        self.embedder: Callable[[Tensor, Tensor, Packing], Tensor] | None = None
        """Computes hidden state 0 from token and segment ids; None uses the module `embeddings`."""

    @classmethod
    def from_seed(cls, config: EncoderConfig, seed: int) -> "Encoder":
        """Build an encoder with random weights, the same weights for the same seed.

        Matrices are Glorot-uniform, embeddings normal with standard deviation 0.02 (1 after scaling, if the
        config scales them), biases zero and norms the identity. `requires_grad_()` makes it trainable; it has
        no dropout.
        """
        encoder = cls(config)
        generator = torch.Generator().manual_seed(seed)
        embedding_deviation = config.embedding_width**-0.5 if config.scale_embeddings else 0.02
        for name, parameter in encoder.named_parameters():
            if "norm" in name:
                parameter.data.fill_(1.0 if name.endswith("weight") else 0.0)
            elif parameter.dim() == 1:
                parameter.data.fill_(0.0 if name.endswith("bias") else 1.0)
            elif name.startswith("embeddings."):
                parameter.data.normal_(0.0, embedding_deviation, generator=generator)
            else:
                nn.init.xavier_uniform_(parameter, generator=generator)
        return encoder.requires_grad_(requires_grad=False).eval()

    def reduce_precision(self, dtype: torch.dtype, within: nn.Module | None = None) -> None:
        """Run attention and feed-forward in `dtype`; keep the residual stream and its norms in float32.

        Rounding the residual stream in every layer would lose more precision than all products together.
        `within` is the part to convert, by default all.
        """
        for module in (within or self).modules():
            if isinstance(module, SelfAttention | GatedConvolution | FeedForward | Experts):
                module.to(dtype)

    def prepack(self) -> bool:
        """Prepack every matrix for oneDNN on this CPU; returns whether all of them could be prepacked."""
        for block in self.blocks:
            attention = cast(Block, block).attention
            if attention is not None:
                attention.factor_outputs()
        linears = [module for module in self.modules() if isinstance(module, Linear)]
        for linear in linears:
            linear.prepack()
        return all(linear.packed is not None for linear in linears)

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        packing: Packing,
        plan: Plan,
        tasks: Sequence[TaskRows] = (),
    ) -> dict[int, Tensor]:
        """Run packed sequences according to a plan; returns its hidden states by number, each (T, C).

        `input_ids`, `segment_ids` int64 (T,). Rows beyond the tokens of `packing` are padding rows: they are
        computed but belong to no sequence. The states are differentiable where parameters require gradients.
        Rows of `tasks` run with their adapters; the modules run a batch that has any, because executors do
        not support adapters. Raises MemoryError, Stopped if the plan's progress is to stop, and ValueError or
        IndexError for an id without an embedding.
        """
        own = partial(embed_packed, self.embeddings, tasks=tasks)
        embed = own if tasks or self.embedder is None else self.embedder
        x = embed(input_ids, segment_ids, packing)  # (T, C)
        if self.executor is not None and not tasks:
            return ({0: x} if 0 in plan.states else {}) | self.executor(x, packing, plan)
        given = None if self.per_layer_inputs is None else self.per_layer_inputs(x)  # (L, T, P)
        edits = Edits(plan.interventions, packing)
        x = edits.changed(0, x)
        states = {0: x} if 0 in plan.states else {}
        angles, biases = self.angles(packing, len(x)), self.biases(packing)
        blocks = cast(Sequence[Block], self.blocks)
        for number, block in enumerate(islice(blocks, plan.blocks)):
            attend, observe = block.attention, plan.observers.get(number)
            changed = attend and partial(attend, observe=observe, edits=edits.of_layer(number))
            x = self.run_block(number, block, x, packing, angles, biases, tasks, changed, given)  # (T, C)
            x = edits.changed(number + 1, x)
            if number + 1 in plan.states:
                states[number + 1] = x
            plan.progress.step(layers=1)
        if plan.ends_observing:
            block = blocks[plan.blocks]
            attention = cast(SelfAttention, block.attention)  # a layer that is observed attends
            rotary = angles.get(attention.layer.rotary)
            q, k, v = attention.project(block.attention_input(x), rotary, tasks)
            plan.observers[plan.blocks](attention, q, k, v, biases(attention))
            plan.progress.step(layers=1)
        return states

    def run_block(
        self,
        number: int,
        block: Block,
        x: Tensor,
        packing: Packing,
        angles: Mapping[Rotary | None, Angles],
        biases: Callable[[SelfAttention], Bias | None],
        tasks: Sequence[TaskRows] = (),
        attend: Callable[..., Tensor] | None = None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run a block as layer `number` on packed sequences (T, C), and return the next hidden state (T, C).

        `angles` and `biases` are those of the packing. `attend` runs the block's attention; by default it is
        neither observed nor changed. `given` (L, T, P) is what `per_layer_inputs` returns for hidden state 0.
        """
        attention = block.attention
        mixed: Attend
        if attention is None:
            mixed = partial(cast(GatedConvolution, block.short_convolution), packing=packing)
        else:
            rotary, bias = angles.get(attention.layer.rotary), biases(attention)
            mixed = partial(attend or attention, packing=packing, rotary=rotary, bias=bias, tasks=tasks)
        x = block(x, mixed, partial(convolve_packed, packing=packing), tasks=tasks)
        if given is not None:
            x = cast(PerLayerGate, block.per_layer)(x, given[number])
        return cast(Tensor, self.final_norm(x)) if number + 1 == len(self.blocks) else x

    def angles(self, packing: Packing, rows: int) -> dict[Rotary | None, Angles]:
        """Compute the angles of each kind of rotary positions once, for all layers, for `rows` rows."""
        kinds = {layer.rotary for layer in self.config.layers} - {None}
        if not kinds:
            return {}
        positions = packing.positions(self.device, rows - packing.tokens)
        return {rotary: rotary_angles(positions, rotary) for rotary in kinds if rotary is not None}

    def biases(self, packing: Packing) -> Callable[[SelfAttention], Bias | None]:
        """Return a function from a layer's attention to its bias by distance.

        A bias that layers share is computed once.
        """
        config, longest = self.config, max((1, *packing.lengths))
        if config.disentangled is not None:
            rows = distance_rows(distances(longest, torch.device("cpu")), config.disentangled)
            return lambda one: PositionVectors(*self.project_positions(one), rows)
        relative = config.relative_bias
        if relative is not None and relative.per_layer:
            return lambda one: relative_bias(cast(Tensor, one.relative_bias), longest, relative)
        shared: Tensor | None = None
        if relative is not None:
            shared = relative_bias(cast(Tensor, self.relative_bias), longest, relative)
        elif config.alibi:
            shared = alibi(config.num_heads, longest, self.device)
        return lambda _: shared

    def project_positions(self, attention: SelfAttention) -> tuple[Tensor | None, Tensor | None]:
        """Return a layer's keys and queries of positions, each (H, 2·span, D), or None."""
        return attention.project_positions(cast(Callable[[], Tensor], self.distances))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embeddings.token.device


def embed_packed(
    embeddings: Embeddings,
    input_ids: Tensor,
    segment_ids: Tensor,
    packing: Packing,
    tasks: Sequence[TaskRows] = (),
    counted: Tensor | None = None,
) -> Tensor:
    """Embed packed sequences: ids, int64 (T,) each, to (T, C); rows of `tasks` with their adapters.

    Padding, which positions do not count, is found in the ids `counted`, by default in `input_ids`.
    """
    positions = _positions(input_ids, packing)
    first = torch.arange(len(positions), device=positions.device) - positions
    rows = embeddings.position_rows(positions, input_ids if counted is None else counted, first)
    weights = embeddings.token_weights(input_ids, partial(_count_packed, packing=packing))
    return cast(Tensor, embeddings(input_ids, segment_ids, rows, weights, tasks))


def _count_packed(chosen: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """Count the chosen tokens, bool (T,), and all tokens in the sequence of each token: int64 (T,) each."""
    padding = len(chosen) - packing.tokens  # counted as one more sequence
    lengths = torch.tensor([*packing.lengths, padding], device=chosen.device)
    owners = torch.arange(len(lengths), device=chosen.device).repeat_interleave(lengths)  # (T,)
    totals = torch.zeros_like(lengths).index_add(0, owners, chosen.long())
    return totals[owners], lengths[owners]


def _make_blocks(config: EncoderConfig) -> list[Block]:
    """Make the blocks of all layers; layers that share their weights are one and the same block."""
    blocks: list[Block] = []
    for number, first in enumerate(config.shared or range(config.num_layers)):
        blocks.append(blocks[first] if first < number else Block(config, number))
    return blocks


def _positions(input_ids: Tensor, packing: Packing) -> Tensor:
    """Return the position of each token in its sequence: int64 (T,)."""
    return packing.positions(input_ids.device, len(input_ids) - packing.tokens)


def _table(rows: int, columns: int, present: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.empty(rows, columns), requires_grad=False) if present else None


def _table_adapters(config: EncoderConfig) -> dict[str, TableAdapters]:
    """Make the adapters of the tables of embeddings, by the names of the tables."""
    if config.adapters is None or not config.adapters.rank:
        return {}
    rows = {
        "token": config.vocab_size,
        "position": config.max_positions if config.positions == "learned" else 0,
        "segment": config.segments,
    }
    width, adapters = config.embedding_width, config.adapters
    return {name: TableAdapters(count, width, adapters) for name, count in rows.items() if count}
