"""A linear layer that can be laid out once for the processor it runs on."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.config import Activation

# Activations that oneDNN applies while it writes a product: name -> (attribute, algorithm).
FUSED: dict[Activation | None, tuple[str, str]] = {
    None: ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
}


def activate(x: Tensor, activation: Activation | None) -> Tensor:
    """Apply an activation: `gelu` is the exact one with erf (Hendrycks & Gimpel 2016). Keeps the shape."""
    match activation:
        case None:
            return x
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "silu":
            return F.silu(x)


def _can_prepack(dtype: torch.dtype) -> bool:
    """Whether this build of PyTorch has the operators, which it does not promise to keep.

    In bfloat16 they also need a processor with AVX-512.
    """
    operators = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    if not torch._C._has_mkldnn or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def suitable_rows(tokens: int) -> int:
    """Round a number of rows up, by less than a sixteenth or eight, so that few different ones are run.

    oneDNN generates code for each shape of a product that it meets, which takes milliseconds, and keeps it
    for the next time.
    """
    step = min(256, max(8, 2 ** (tokens.bit_length() - 5))) if tokens else 1
    return -(-tokens // step) * step


class Linear(nn.Module):
    """activation(x Wᵀ + b), with W of shape (out, in) and b of shape (out,).

    `prepack` reorders W into oneDNN's blocked layout, once, so that no product has to; the product
    then also applies the activation while its result is in the cache. Measured against `F.linear`
    followed by the activation: 1.1 to 2.5 times as fast, most with few tokens (`benchmarks/forward.py`).
    """

    def __init__(self, inputs: int, outputs: int, activation: Activation | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False)
        self.activation = activation
        self.packed: Tensor | None = None

    def prepack(self) -> None:
        """Reorder the weights for this CPU and let go of the plain ones; a no-op elsewhere.

        The layer can then be run, but not saved or moved.
        """
        if self.packed is None and self.weight.device.type == "cpu" and _can_prepack(self.weight.dtype):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.data, None)
            self.weight = nn.Parameter(torch.empty(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, in), of any dtype, to (…, out) in the weights' dtype."""
        x = x.to(self.bias.dtype)
        if self.packed is None:
            return activate(F.linear(x, self.weight, self.bias), self.activation)
        attribute, algorithm = FUSED[self.activation]
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, attribute, [], algorithm)
