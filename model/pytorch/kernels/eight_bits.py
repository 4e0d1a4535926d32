"""Rounds the weights of linear layers to eight bits, for the inputs that a model makes of random tokens.

A column of x is divided, and the column of W multiplied, by a number that shares the range of both between
them (SmoothQuant, Xiao et al. 2023, equation 4 with alpha = 1/2): a few large columns of x would otherwise
leave few steps to the others. The ranges come from a pass over random tokens, so no data are needed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.encoder.encoder import Encoder
from model.encoder.linear import Linear
from model.encoder.packing import Packing
from model.encoder.plan import Plan

_SEQUENCES, _LENGTH, _SEED = 12, 40, 0
_NEIGHBOURS = 16
"""Tokens that are drawn together, because the parts of a file of embeddings that are read stay in memory."""
_SAMPLED = 64
"""The rows on which a product is compared with the exact one."""
_MOST_ERROR = 0.04
"""Of the root mean square of a product's results: one above it is always precise. Those of the embedded model
are at 0.01 to 0.025."""
_STEPS = 127
_LOW_STEPS = 2 * _STEPS
_MOST_INPUTS = 2**15
"""Of a sum that 32 bits hold: see int8.h."""


@dataclass
class Inputs:
    """What a linear layer was given: the largest size of each column (in,), and some rows (S, in)."""

    largest: Tensor
    rows: Tensor


@dataclass(frozen=True)
class RoundedWeights:
    """W (out, in) in eight bits, and what rounding left over in eight more.

    Row o and column i of W are (high − 128 + (low − 128) / 254)[o, i] · scales[o] · smoothing[i]: `high` and
    `low` uint8 (out, in), `scales` float32 (out,), and `smoothing` float32 (in,), by which inputs are
    multiplied. `precise` says that products without `low` lose too much.
    """

    high: Tensor
    low: Tensor
    scales: Tensor
    smoothing: Tensor
    precise: bool


@torch.inference_mode()
def observe_inputs(encoder: Encoder) -> dict[Linear, Inputs]:
    """Run an encoder on random tokens, the same ones each time, and return what its linear layers were given.

    Its weights must not be laid out yet.
    """
    seen: dict[Linear, Inputs] = {}

    def observe(layer: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        x = given[0].flatten(0, -2).float()
        largest = x.abs().amax(0)
        if isinstance(layer, Linear):
            before = seen.get(layer)
            seen[layer] = Inputs(
                largest if before is None else largest.maximum(before.largest), x[:_SAMPLED].clone()
            )

    hooks = [
        module.register_forward_pre_hook(observe)
        for module in encoder.blocks.modules()
        if isinstance(module, Linear)
    ]
    config = encoder.config
    length = min(_LENGTH, config.position_limit or _LENGTH)
    generator = torch.Generator().manual_seed(_SEED)
    tokens = _random_tokens(config.vocab_size, _SEQUENCES * length, generator)
    try:
        encoder(
            tokens, torch.zeros_like(tokens), Packing.of([length] * _SEQUENCES), Plan({config.num_layers})
        )
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _random_tokens(vocabulary: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw tokens from a few places of a vocabulary, in random order."""
    places = torch.randint(0, vocabulary, (-(-count // _NEIGHBOURS), 1), generator=generator)
    tokens = (places + torch.arange(_NEIGHBOURS)).flatten()[:count] % vocabulary
    return tokens[torch.randperm(count, generator=generator)]


def round_weights(weight: Tensor, inputs: Inputs) -> RoundedWeights | None:
    """Round W (out, in) for these inputs; None if the kernels cannot multiply it."""
    columns = weight.shape[1]
    if columns % 4 or columns > _MOST_INPUTS:
        return None
    exact, tiny = weight.float(), torch.finfo(torch.float32).tiny
    ratio = exact.abs().amax(0).clamp_min(tiny) / inputs.largest.clamp_min(tiny)
    smoothing = torch.where(inputs.largest > 0, ratio.sqrt(), 1.0).clamp(1e-4, 1e4)
    scaled = exact / smoothing
    scales = (scaled.abs().amax(1) / _STEPS).clamp_min(tiny)
    steps = scaled / scales[:, None]
    whole = steps.round()
    expected = inputs.rows @ exact.T
    error = _product(inputs.rows * smoothing, whole * scales[:, None]) - expected
    high, low = (
        (numbers + _STEPS + 1).to(torch.uint8) for numbers in (whole, ((steps - whole) * _LOW_STEPS).round())
    )
    return RoundedWeights(
        high, low, scales, smoothing, precise=not bool(error.norm() <= _MOST_ERROR * expected.norm())
    )


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply x (S, in), rounded row by row, by the transpose of a weight (out, in)."""
    steps = x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / _STEPS
    return (x / steps).round() * steps @ weight.T
