"""Rounds the weights of linear layers to eight bits, for the inputs that these have for random tokens.

Each column of x is divided, and that of W multiplied, by a number that evens out the ranges of the two
(SmoothQuant, Xiao et al. 2023, equation 4 with alpha = 1/2): a few large columns of x would otherwise
leave few steps to the others. The ranges come from a pass over random tokens, so no data are needed.

The kernels decide how many steps there are, and how many inputs share a scale: see linear/int8.h.
"""

from collections.abc import Sequence
from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.encoder.config import EncoderConfig
from model.encoder.encoder import Encoder
from model.encoder.linear import Linear
from model.encoder.packing import Packing
from model.encoder.plan import Plan
from model.pytorch.kernels.library import STORED, Rounding

_SEQUENCES, _LENGTH, _SEED = 12, 40, 0
_TOGETHER = 2
"""Sequences in a pass over random tokens: few, because the process keeps the memory that a pass takes."""
_NEIGHBOURS = 16
"""Tokens that are drawn together, because the parts of a file of embeddings that are read stay in memory."""
_SAMPLED = 64
"""The rows on which a product is compared with the exact one."""
_MOST_ERROR = 0.04
"""The largest error, as a share of the root mean square of a product's results; with more, the product is
always precise. In the embedded model errors are 0.01 to 0.025."""
_MOST_INPUTS = 2**15
"""The most inputs whose products 32 bits can add up: see linear/int8.h."""


@dataclass
class Inputs:
    """The inputs of a linear layer: the largest absolute value of each column (in,), and some rows (S, in).

    `observed` says whether passes that observe attention multiply by its rounded weights. They do not if they
    use those of the file, nor after the attention of the last block, where they end.
    """

    largest: Tensor
    rows: Tensor
    observed: bool = True


@dataclass(frozen=True)
class RoundedWeights:
    """W (out, in) in eight bits, and what rounding left over in eight more.

    With n steps, W at row o and column i, in group g of inputs, is
    (high − a + (low − a) / 2n)[o, i] · scales[g, o] · smoothing[i], where a is `Rounding.added`. `high` and
    `low` are bytes (out, in), `scales` float32 (groups, out), and `smoothing` float32 (in,), by which inputs
    are multiplied. `precise` says that products without `low` lose too much; `low` is None if no product
    reads it.
    """

    high: Tensor
    low: Tensor | None
    scales: Tensor
    smoothing: Tensor
    precise: bool


def rounds_all(config: EncoderConfig) -> bool:
    """Whether every weight of an encoder may be rounded to eight bits, if its size allows.

    Those of experts and of vectors of distances are not. If all are, passes that observe attention use the
    weights as the file holds them.
    """
    return config.disentangled is None and not any(layer.mixture for layer in config.layers)


@torch.inference_mode()
def observe_inputs(encoder: Encoder) -> dict[Linear, Inputs]:
    """Run an encoder on random tokens, always the same ones, and return the inputs of its linear layers.

    Its weights must not be laid out yet.
    """
    seen: dict[Linear, Inputs] = {}

    def observe(layer: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        x = given[0].flatten(0, -2).float()
        largest = x.abs().amax(0)
        if isinstance(layer, Linear):
            before = seen.get(layer)
            seen[layer] = (
                Inputs(largest, x[:_SAMPLED].clone(), not exact and layer not in unobserved)
                if before is None
                else replace(before, largest=largest.maximum(before.largest))
            )

    config = encoder.config
    exact = rounds_all(config)
    blocks = list(encoder.blocks)
    last: Any = blocks[-1]
    unobserved = set(last.modules()) - {last.attention.qkv} if blocks.count(last) == 1 else ()
    hooks = [
        module.register_forward_pre_hook(observe)
        for module in encoder.blocks.modules()
        if isinstance(module, Linear)
    ]
    length = min(_LENGTH, config.position_limit or _LENGTH)
    generator = torch.Generator().manual_seed(_SEED)
    tokens = _random_tokens(config.vocab_size, _SEQUENCES * length, generator)
    packing, plan = Packing.of([length] * _TOGETHER), Plan({config.num_layers})
    try:
        for part in torch.split(tokens, _TOGETHER * length):
            encoder(part, torch.zeros_like(part), packing, plan)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _random_tokens(vocabulary: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw tokens from a few places of a vocabulary, in random order."""
    starts = torch.randint(0, vocabulary, (-(-count // _NEIGHBOURS), 1), generator=generator)
    tokens = (starts + torch.arange(_NEIGHBOURS)).flatten()[:count] % vocabulary
    return tokens[torch.randperm(count, generator=generator)]


def round_weights(weight: Tensor, inputs: Inputs, rounding: Rounding) -> RoundedWeights | None:
    """Round W (out, in) for these inputs; None if the kernels cannot multiply it."""
    columns = weight.shape[1]
    if columns % 4 or columns > _MOST_INPUTS:
        return None
    exact, tiny = weight.float(), torch.finfo(torch.float32).tiny
    ratio = exact.abs().amax(0).clamp_min(tiny) / inputs.largest.clamp_min(tiny)
    smoothing = torch.where(inputs.largest > 0, ratio.sqrt(), 1.0).clamp(1e-4, 1e4)
    steps = exact / smoothing
    scales = _divide_by_scales(steps, rounding)
    whole = steps.round()
    expected = inputs.rows @ exact.T
    error = _product(inputs.rows * smoothing, whole, scales, rounding) - expected
    precise = not bool(error.norm() <= _MOST_ERROR * expected.norm())
    kept = precise or inputs.observed
    added = rounding.added
    byte = torch.uint8 if added else torch.int8
    low = steps.sub_(whole).mul_(2 * rounding.steps).round_().add_(added).to(byte) if kept else None
    return RoundedWeights(whole.add_(added).to(byte), low, scales, smoothing, precise)


def _divide_by_scales(x: Tensor, rounding: Rounding) -> Tensor:
    """Divide the groups of each row of x (rows, in), in place, by scales, and return these (groups, rows)."""
    tiny, scales = torch.finfo(torch.float32).tiny, []
    for group in torch.split(x, rounding.group, 1):
        scale = (group.abs().amax(1) / rounding.steps).clamp_min(tiny)
        group.div_(scale[:, None])
        scales.append(scale)
    return torch.stack(scales)


def are_rows_of(weight: Tensor, parts: Sequence[Tensor]) -> bool:
    """Whether the parts have types that the kernels read, and still hold all rows of a weight (out, in)."""
    stop = 0
    for part in parts:
        start, stop = stop, stop + len(part)
        if part.dtype not in STORED or not torch.equal(weight[start:stop], part.float()):
            return False
    return stop == len(weight)


def free_buffers() -> None:
    """Free the memory that MKL, with which PyTorch multiplies in float32, keeps for its next products.

    The kernels do not use MKL. A no-op with a PyTorch that has no MKL.
    """
    with suppress(OSError, AttributeError):
        library = CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        library.mkl_serv_free_buffers()


def _product(x: Tensor, whole: Tensor, scales: Tensor, rounding: Rounding) -> Tensor:
    """Multiply x (S, in), which is rounded in place, by the transpose of whole numbers (out, in).

    The `scales` of these are (groups, out).
    """
    factors = _divide_by_scales(x, rounding)
    groups = (torch.split(part, rounding.group, 1) for part in (x.round_(), whole))
    product = torch.zeros(len(x), len(whole))
    for rows, weight, by, scale in zip(*groups, factors, scales, strict=True):
        product += (rows * by[:, None]) @ (weight * scale[:, None]).T
    return product
