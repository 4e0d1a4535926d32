"""Convolutions over the tokens of each sequence: beside attention, and in its place."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.config import EncoderConfig
from model.encoder.linear import Linear, activate
from model.encoder.packing import Packing
from model.encoder.parts import Convolution, ShortConvolution


class TokenConvolution(nn.Module):
    """activation(x ∗ W + b) along the tokens, with W of shape (C, C / groups, kernel_size) and b of (C,).

    Beyond the ends of a sequence there are zeros. It runs in float32, like the residual stream that it
    reads and is added to.
    """

    def __init__(self, config: EncoderConfig, convolution: Convolution) -> None:
        super().__init__()
        size, groups = config.hidden_size, convolution.groups
        shape = (size, size // groups, convolution.kernel_size)
        self.groups, self.activation = groups, convolution.activation
        self.weight = nn.Parameter(torch.empty(shape), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(size), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences of one length, (B, N, C), to the same shape; padding tokens must be zero."""
        padding = self.weight.shape[-1] // 2
        x = F.conv1d(x.transpose(1, 2), self.weight, self.bias, padding=padding, groups=self.groups)
        x = x.transpose(1, 2)  # (B, N, C)
        return torch.tanh(x) if self.activation == "tanh" else activate(x, self.activation)


def convolve_packed(convolution: TokenConvolution, x: Tensor, packing: Packing) -> Tensor:
    """Convolve each packed sequence by itself: (T, C) to (T, C), zero in padding rows."""
    output = torch.zeros_like(x)
    for run in packing.runs:
        if not run.length:
            continue
        rows, shape = slice(run.start, run.stop), (run.count, run.length, x.shape[1])
        output[rows] = convolution(x[rows].view(shape)).flatten(0, 1)
    return output


class GatedConvolution(nn.Module):
    """W_O (c ⊙ ((b ⊙ x) ∗ K)), with b, c and x = three products of the input with W.

    K of shape (C, 1, kernel_size) convolves every channel by itself; beyond the ends of a sequence there are
    zeros (Liquid AI 2025, LFM2).
    """

    def __init__(self, config: EncoderConfig, convolution: ShortConvolution) -> None:
        super().__init__()
        size, bias = config.hidden_size, convolution.bias
        self.convolution = convolution
        self.inner = Linear(size, 3 * size, bias=bias)
        self.weight = nn.Parameter(torch.empty(size, 1, convolution.kernel_size), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(size), requires_grad=False) if bias else None
        self.outer = Linear(size, size, bias=bias)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Map packed tokens (T, C) to (T, C), each sequence by itself."""
        return self._mix(x, partial(self._packed_neighbours, packing=packing))

    def run_padded(self, x: Tensor, real: Tensor) -> Tensor:
        """Map padded sequences (B, N, C) to the same shape; `real`, bool (B, N), is False for padding."""
        return self._mix(x, partial(self._padded_neighbours, real=real))

    def _mix(self, x: Tensor, neighbours: Callable[[Tensor], Iterable[Tensor]]) -> Tensor:
        """Map (…, C) to (…, C); `neighbours` returns the tokens that each column of the kernel reads."""
        before, after, gated = self.inner(x).chunk(3, dim=-1)  # (…, C) each
        x = before * gated
        output = torch.zeros_like(x) if self.bias is None else self.bias.expand_as(x)
        for neighbour, weight in zip(neighbours(x), self.weight[:, 0].T, strict=True):
            output = output + neighbour * weight
        return self.outer(after * output)

    def _packed_neighbours(self, x: Tensor, packing: Packing) -> Iterator[Tensor]:
        """Yield, for each column of the kernel, the tokens that it reads at each of x (T, C)."""
        earlier, later = packing.neighbours(x.device, len(x) - packing.tokens)  # (T,) each
        for step in self.convolution.steps:
            missing = earlier < -step if step < 0 else later < step
            # Filled, not multiplied by 0: infinities of another text would become NaN.
            yield x.roll(-step, 0).masked_fill(missing[:, None], 0)

    def _padded_neighbours(self, x: Tensor, real: Tensor) -> Iterator[Tensor]:
        """Yield the same for padded sequences x (B, N, C)."""
        steps, length = self.convolution.steps, x.shape[1]
        around = (0, 0, -steps[0], steps[-1])
        wide = F.pad(x.masked_fill(~real[..., None], 0), around)  # (B, N + K − 1, C)
        for column in range(len(steps)):
            yield wide[:, column : column + length]
