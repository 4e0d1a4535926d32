"""A convolution over the tokens of each sequence."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.config import EncoderConfig
from model.encoder.linear import activate
from model.encoder.packing import Packing
from model.encoder.parts import Convolution


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
