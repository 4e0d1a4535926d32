"""Scaled dot-product attention: an explicit path, and a fused path with the same outputs.

Attention(Q, K, V) = softmax(QKᵀ / √D) V (Vaswani et al. 2017, §3.2.1), or with another scale instead of
1/√D. The explicit path builds the probabilities; observers and similarities other than the dot product use
it. The fused path never builds them: the memory of PyTorch's fused kernel is linear in N.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.adapters import TaskRows
from model.encoder.attending.disentangled import PositionVectors, attend_disentangled, position_scores
from model.encoder.attending.edits import LOWEST, Edit
from model.encoder.attending.padded_runs import attend_in_padded_runs
from model.encoder.config import AttentionSimilarity, EncoderConfig
from model.encoder.linear import Linear, widened
from model.encoder.norms import head_norm
from model.encoder.packing import Packing, Run
from model.encoder.parts import LayerConfig
from model.encoder.positions import by_query_and_key, rotate, visible

Indices = slice | NDArray[np.int64] | Tensor
"""A selection along an axis: a slice of neighbours, or positions (int64)."""
Angles = tuple[Tensor, Tensor]
"""Cosines and sines of the rotary angles, as `positions.rotary_angles` computes them."""
Bias = Tensor | PositionVectors
"""What each distance adds to the scores: numbers (H, 2·longest − 1), or products of contents and vectors."""
Observer = Callable[..., None]
"""Observes a layer, given its attention; its queries, keys and values (T, H, D), rotated; its position bias.

An executor that can compute the attention again may pass an object that does so as one more argument.
"""

# Longer sequences do not attend in padded runs: their scores would need too much memory.
_LONGEST = 512
# Up to this length, copying all heads into one batched product beats one call per sequence.
_SHORT = 32
# FlashAttention needs head sizes that are multiples of 8, and compute capability 8.0 (Ampere) or later.
_FLASH_STEP, _FLASH_SINCE = 8, (8, 0)


def similarity_scores(
    q: Tensor,
    k: Tensor,
    similarity: AttentionSimilarity,
    metric: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Compare each query with each key; a larger score means more similar.

    `q` (…, N, D), `k` (…, M, D); returns (…, N, M). The dot product is multiplied by `scale`, 1/√D by
    default, so that queries and keys of unit variance give scores of unit variance for any D. The other
    similarities are not scaled: cosine; Manhattan −‖q − k‖₁; Mahalanobis −√((q − k)ᵀ M (q − k)), where M =
    FFᵀ is positive semi-definite by construction and F is `metric` (…, D, D). Raises ValueError if `metric`
    is missing.
    """
    match similarity:
        case "dot_product":
            return torch.matmul(q * (q.shape[-1] ** -0.5 if scale is None else scale), k.transpose(-2, -1))
        case "cosine":
            return torch.matmul(F.normalize(q, dim=-1), F.normalize(k, dim=-1).transpose(-2, -1))
        case "manhattan":
            return -torch.cdist(widened(q), widened(k), p=1.0).to(q.dtype)
        case "mahalanobis":
            if metric is None:
                raise ValueError('similarity "mahalanobis" needs its metric, F of shape (D, D)')
            # The product form of the distance would lose half the digits where q is near k.
            exact = "donot_use_mm_for_euclid_dist"
            distances = torch.cdist(widened(q @ metric), widened(k @ metric), compute_mode=exact)
            return -distances.to(q.dtype)


def probabilities(scores: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Compute the softmax of `scores` (…, N, M) plus `bias` over the keys; bool `mask` False hides a key."""
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1)


def explicit_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute attention as the paper writes it: outputs (…, N, D) and weights (…, N, M)."""
    weights = probabilities(similarity_scores(q, k, "dot_product"), mask, bias)
    return weights @ v, weights


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Compute the outputs of `explicit_attention`, (…, N, D), in memory linear in N."""
    if bias is not None:
        mask = bias.to(q.dtype) if mask is None else bias.to(q.dtype).masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


class SelfAttention(nn.Module):
    """Multi-head self-attention over packed sequences (Vaswani et al. 2017, §3.2.2).

    One product computes the queries, keys and values of all heads. Each head attends in D components of its
    own; the concatenated outputs go through one more product. Where several heads share keys and values
    (Ainslie et al. 2023), both are repeated for each of these heads.
    """

    def __init__(self, config: EncoderConfig, layer: LayerConfig | None = None) -> None:
        super().__init__()
        self.config = config
        self.layer = layer or config.layer(0)
        adapters, width = config.adapters, config.num_heads * config.head_size
        rows = sum(config.qkv_rows)
        self.qkv = Linear(config.hidden_size, rows, bias=config.qkv_bias, adapters=adapters)
        self.output = Linear(width, config.hidden_size, bias=config.output_bias, adapters=adapters)
        self.query_norm = head_norm(config, config.num_heads)
        self.key_norm = head_norm(config, config.kv_heads)
        relative = config.relative_bias
        self.relative_bias = (
            nn.Parameter(torch.empty(relative.rows, config.num_heads), requires_grad=False)
            if relative is not None and relative.per_layer
            else None
        )
        self.metric = (
            nn.Parameter(
                torch.empty(config.num_heads, config.head_size, config.head_size), requires_grad=False
            )
            if config.similarity == "mahalanobis"
            else None
        )
        self._factors: dict[int | None, Tensor] = {}
        disentangled = config.disentangled
        own = disentangled is not None and not disentangled.shared
        self.position_key, self.position_query = (
            Linear(config.hidden_size, width) if own and has else None
            for has in (
                disentangled and disentangled.content_to_position,
                disentangled and disentangled.position_to_content,
            )
        )
        self._positions: tuple[Tensor | None, Tensor | None] | None = None

    def project(
        self, x: Tensor, rotary: Angles | None = None, tasks: Sequence[TaskRows] = ()
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn hidden states (T, C) into queries, keys and values, each (T, H, D).

        Queries and keys are normalised if the config says so, and rotated by their positions if `rotary` is
        given. Rows of `tasks` run with their adapters.
        """
        q, k, v = self.split(self.qkv(x, tasks))
        q, k, v = self.normalize(q, k, v)
        if rotary is not None:
            q, k = self.rotate(q, rotary), self.rotate(k, rotary)
        return q, self.repeat(k), self.repeat(v)

    def normalize(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise queries (…, H, D), and keys and values (…, kv_heads, D), as the config says."""
        if self.config.value_norm:
            v = F.rms_norm(v, v.shape[-1:], eps=self.config.norm_eps)
        return self.query_norm(q), self.key_norm(k), v

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """View the output of `qkv`, (T, …), as queries (T, H, D), and keys and values (T, kv_heads, D)."""
        config = self.config
        heads = [config.num_heads, config.kv_heads, config.kv_heads]
        q, k, v = torch.split(qkv.view(len(qkv), sum(heads), config.head_size), heads, dim=1)
        return q, k, v

    def project_positions(self, embeddings: Callable[[], Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """Project the embeddings of distances (R, C) to keys and queries of positions, each (H, R, D).

        Each is None if nothing is compared with it. Both are kept unless the weights are being trained.
        """
        disentangled = self.config.disentangled
        if self._positions is None and disentangled is not None:
            x = embeddings()  # (R, C)
            projected: tuple[Tensor | None, ...]
            if disentangled.shared:
                queries, keys, _ = self.split(self.qkv(x))  # (R, H, D) each
                projected = keys, queries
            else:
                own, shape = (self.position_key, self.position_query), (len(x), self.config.num_heads, -1)
                projected = tuple(None if one is None else one(x).view(shape) for one in own)
            used = disentangled.content_to_position, disentangled.position_to_content
            first, second = (
                one.transpose(0, 1).contiguous() if one is not None and has else None
                for one, has in zip(projected, used, strict=True)
            )
            if x.requires_grad or self.qkv.weight.requires_grad:
                return first, second
            self._positions = first, second
        return self._positions or (None, None)

    def release_positions(self) -> None:
        """Release the weights that `project_positions` uses, which must have been called before."""
        for linear in (self.position_key, self.position_query):
            if linear is not None:
                linear.release()

    def rotate(self, x: Tensor, rotary: Angles) -> Tensor:
        """Rotate queries or keys (T, heads, D) by their positions."""
        assert self.layer.rotary is not None  # noqa: S101 - for the type checker: `rotary` was made from it
        return rotate(x, *rotary, interleaved=self.layer.rotary.interleaved)

    def repeat(self, x: Tensor) -> Tensor:
        """Repeat keys or values (T, kv_heads, D) for each head that shares them: (T, H, D)."""
        config = self.config
        if config.kv_heads == config.num_heads:
            return x
        return x.repeat_interleave(config.num_heads // config.kv_heads, dim=1)

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        rotary: Angles | None = None,
        bias: Bias | None = None,
        observe: Observer | None = None,
        tasks: Sequence[TaskRows] = (),
        edits: Sequence[Edit] = (),
    ) -> Tensor:
        """Attend within each sequence: hidden states (T, C) to the attention output (T, C).

        `bias` is added to the scores. Padding rows attend to nothing. Rows of `tasks` run with their
        adapters. `edits` change the attention of some of the sequences.
        """
        q, k, v = self.project(x, rotary, tasks)  # (T, H, D) each
        if observe is not None:
            observe(self, q, k, v, bias)
        mixed = self.mix(q, k, v, packing, bias)  # (T, H, D)
        for edit in edits:
            edit.make(q, k, v, mixed, partial(self.scores, bias=bias))
        return self.output(mixed.flatten(1), tasks)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing, bias: Bias | None) -> Tensor:
        """Mix the values within each sequence, head by head: q, k, v (T, H, D) to (T, H, D)."""
        if self.pads_runs(packing):
            return attend_in_padded_runs(q, k, v, packing.padded_runs, self.config.score_scale)
        if self.packed(packing):
            # Imported here: it takes more than a second, and only CUDA needs it.
            from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

            starts, longest = packing.boundaries(q.device), max(packing.lengths)
            scale = self.config.score_scale
            return cast(Tensor, varlen_attn(q, k, v, starts, starts, longest, longest, scale=scale))
        mixed = torch.empty(q.shape, dtype=q.dtype, device=q.device)  # (T, H, D)
        mixed[packing.tokens :] = 0
        for run in packing.runs:
            if not run.length:
                continue
            rows = slice(run.start, run.stop)
            q_run, k_run, v_run = (_by_head(x[rows], run) for x in (q, k, v))
            heads = self._attend(q_run, k_run, v_run, bias, run.unattended)
            # (b, H, n, D) back to (b, n, H, D)
            mixed[rows].view(run.count, run.length, *q.shape[1:]).copy_(heads.transpose(1, 2))
        return mixed

    @property
    def plain(self) -> bool:
        """Whether every token attends to every other by the dot product, without a bias."""
        return self.config.is_plain(self.layer)

    def packed(self, packing: Packing) -> bool:
        """Whether sequences of all lengths attend in one FlashAttention call on CUDA (Dao 2023)."""
        qkv = self.qkv
        if qkv.device.type != "cuda" or not packing.tokens or not self.plain or packing.unattended:
            return False
        suited = qkv.dtype in (torch.bfloat16, torch.float16) and self.config.head_size % _FLASH_STEP == 0
        return suited and torch.cuda.get_device_capability(qkv.device) >= _FLASH_SINCE

    def pads_runs(self, packing: Packing) -> bool:
        """Whether these sequences attend in padded runs: bfloat16 on a CPU, without masks or biases."""
        qkv, short = self.qkv, max(packing.lengths, default=0) <= _LONGEST
        suited = qkv.dtype == torch.bfloat16 and qkv.device.type == "cpu"
        return suited and short and self.plain and not packing.unattended

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Bias | None, unattended: int) -> Tensor:
        config, length = self.config, q.shape[-2]
        causal, window = config.causal, self.layer.window
        see = partial(visible, length, q.device, causal=causal, window=window, unattended=unattended)
        if isinstance(bias, PositionVectors):
            return attend_disentangled(
                q, k, v, bias.within(length), config.score_scale, lambda rows: see(queries=rows)
            )
        mask = see()
        bias = None if bias is None else by_query_and_key(bias, length)
        if config.similarity == "dot_product":
            return fused_attention(q, k, v, mask, bias, config.score_scale)
        weights = probabilities(similarity_scores(q, k, config.similarity, self.metric), mask, bias)
        return weights.to(v.dtype) @ v

    def scores(self, q: Tensor, k: Tensor, heads: Indices, rows: Indices, bias: Bias | None) -> Tensor:
        """Compute the scores of selected heads and query positions before the softmax, in float32.

        `q`, `k` (b, N, H, D) of sequences of one length. Returns (b, heads, rows, N); a key hidden from a
        query has the lowest float32. Only the selection is computed. Queries and keys are converted to
        float32 first: scores rounded to bfloat16 would change an entropy by 5e-4.
        """
        config, length = self.config, q.shape[1]
        # Made contiguous even if they are float32: products of strided rows are slow.
        q = widened(chosen(chosen(q, 1, rows), 2, heads)).contiguous()  # (b, rows, heads, D)
        k = widened(chosen(k, 2, heads)).contiguous()  # (b, N, heads, D)
        if config.similarity == "dot_product" and length > _SHORT:
            scores = _dot_products(q, k, config.score_scale)
        else:
            metric = None if self.metric is None else widened(chosen(self.metric, 0, heads))
            scores = similarity_scores(
                q.transpose(1, 2), k.transpose(1, 2), config.similarity, metric, config.score_scale
            )
        if bias is None and self.plain:
            return scores
        queries = chosen(torch.arange(length, device=q.device), 0, rows)
        if isinstance(bias, PositionVectors):
            own = bias.within(length).each(lambda vectors: widened(chosen(vectors, 0, heads)))
            # One sequence at a time: the products with all vectors need more memory than the scores.
            for one, q_one, k_one in zip(scores, q.transpose(1, 2), k.transpose(1, 2), strict=True):
                one.add_(position_scores(q_one, k_one, own, queries), alpha=config.score_scale)
        elif bias is not None:
            scores += by_query_and_key(chosen(bias, 0, heads), length, queries)
        mask = visible(length, q.device, causal=config.causal, window=self.layer.window, queries=queries)
        return scores if mask is None else scores.masked_fill_(~mask, LOWEST)

    def value_norms(self, v: Tensor, heads: Indices, task: int | None = None) -> Tensor:
        """Compute ‖f_h(x_j)‖ with f_h(x) = (x W_V + b_V)_h W_O,h for each token: float32 (b, heads, N).

        `v` (b, N, H, D), of sequences of one task. A head adds Σ_j α_ij f_h(x_j) to a token (Kobayashi et al.
        2020, §2.2).
        """
        values = widened(chosen(v, 2, heads).transpose(1, 2))  # (b, heads, N, D)
        return torch.linalg.vector_norm(values @ chosen(self.factor_output(task), 0, heads), dim=-1)

    def factor_outputs(self) -> None:
        """Factor the output weight for every task while the weight still exists: `prepack` replaces it."""
        adapters = self.config.adapters
        for task in (None, *range(len(adapters.tasks) if adapters else 0)):
            self.factor_output(task)

    def factor_output(self, task: int | None = None) -> Tensor:
        """Compute, for each head, F_h with ‖v F_h‖ = ‖v W_O,h‖ for every v: float32 (H, D, D).

        W_O,h is (D, C), with the update of a task; a square factor of W_O,h W_O,hᵀ gives the same norms from
        (D, D). Computed in float64, and kept unless the weights are being trained.
        """
        if task not in self._factors or self.output.weight.requires_grad:
            config, weight = self.config, self.output.weight.double()
            if task is not None and self.output.adapters is not None:
                weight = weight + self.output.adapters.update(task)
            weight = weight.view(-1, config.num_heads, config.head_size)
            factor = _square_root(torch.einsum("chd,che->hde", weight, weight))
            wide = self.output.weight.dtype == torch.float64
            self._factors[task] = (factor if wide else factor.float()).detach()
        return self._factors[task]


def _square_root(gram: Tensor) -> Tensor:
    """Factor symmetric matrices G (H, D, D) into F Fᵀ, F (H, D, D); negative eigenvalues count as 0."""
    factor, failures = torch.linalg.cholesky_ex(gram)  # takes a tenth of the time, and fails if G is singular
    if not failures.any():
        return factor
    eigenvalues, vectors = torch.linalg.eigh(gram)
    return vectors * eigenvalues.clamp_min(0).sqrt()[:, None, :]


def _dot_products(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Compute `similarity_scores` of float32 q (b, rows, heads, D), k (b, N, heads, D): (b, heads, rows, N).

    One sequence at a time, so that `bmm` reads the heads in place instead of copying them.
    """
    q = q * scale
    scores = torch.empty((len(q), q.shape[2], q.shape[1], k.shape[1]), dtype=q.dtype, device=q.device)
    for one, queries, keys in zip(scores, q, k, strict=True):
        torch.bmm(queries.transpose(0, 1), keys.permute(1, 2, 0), out=one)
    return scores


def chosen(x: Tensor, axis: int, indices: Indices) -> Tensor:
    """Select along an axis: a view for a slice, a copy for positions."""
    if isinstance(indices, slice):
        return x.narrow(axis, indices.start, indices.stop - indices.start)
    if not isinstance(indices, Tensor):
        indices = torch.from_numpy(indices).to(x.device)
    return x.index_select(axis, indices)


def _by_head(x: Tensor, run: Run) -> Tensor:
    """View the packed tokens of a run, (b·n, H, D), as (b, H, n, D)."""
    return x.reshape(run.count, run.length, *x.shape[1:]).transpose(1, 2)
