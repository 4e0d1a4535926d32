"""A linear layer whose weights can be prepacked once for the CPU it runs on."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoder.adapters import LinearAdapters, TaskRows
from model.encoder.parts import Activation, Adapters

# Activations that oneDNN fuses into a product: name -> (attribute, algorithm).
FUSED: dict[Activation | None, tuple[str, str]] = {
    None: ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
}


def activate(x: Tensor, activation: Activation | None) -> Tensor:
    """Apply an activation, keeping the shape; `gelu` is exact, with erf (Hendrycks & Gimpel 2016)."""
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


def widened(x: Tensor) -> Tensor:
    """Convert 16-bit floats to float32; float64, in which references are computed, stays."""
    return x if x.dtype == torch.float64 else x.float()


def _can_prepack(dtype: torch.dtype) -> bool:
    """Whether this build of PyTorch has the operators of `prepack`, which are private and may disappear.

    In bfloat16 they also need a CPU with AVX-512, and they do not compute in float64.
    """
    if dtype == torch.float64:
        return False
    operators = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    if not torch._C._has_mkldnn or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def suitable_rows(tokens: int) -> int:
    """Round a number of rows up, by less than a sixteenth or eight rows, to keep distinct shapes few.

    oneDNN generates and caches code for each new shape of a product, which takes milliseconds.
    """
    step = min(256, max(8, 2 ** (tokens.bit_length() - 5))) if tokens else 1
    return -(-tokens // step) * step


class Linear(nn.Module):
    """activation(x Wᵀ + b), with W of shape (out, in) and b of shape (out,), None without `bias`.

    `prepack` reorders W once into oneDNN's blocked layout, which every product would otherwise do. The
    product then also applies the activation while its result is in the cache. Measured against `F.linear`
    followed by the activation: 1.1 to 2.5 times as fast, most with few tokens
    (`benchmarks/passes/forward.py`).

    With `adapters`, rows of a task get its update of W before the activation.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: Activation | None = None,
        *,
        bias: bool = True,
        adapters: Adapters | None = None,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None
        # With a rank of 0 they are set when the files that have them are read.
        self.adapters = LinearAdapters(inputs, outputs, adapters) if adapters and adapters.rank else None
        self.activation = activation
        self.packed: Tensor | None = None
        self.panels: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights and of the product."""
        return self.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weight.device

    def prepack(self) -> None:
        """Reorder the weights for this CPU and release the originals; a no-op if that is not supported.

        Afterwards the layer can run, but cannot be saved or moved to another device.
        """
        if self.packed is None and self.weight.device.type == "cpu" and _can_prepack(self.weight.dtype):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.data, None)
            self.release()

    def release(self, panels: Tensor | None = None) -> None:
        """Release the original weights: they were laid out elsewhere, for whatever runs the layer now.

        The layer itself still runs if they are in `panels` (panels, in / n, columns, n): each panel has some
        columns of Wᵀ, the last is filled up with zeros, and n numbers of a column lie side by side.
        """
        self.panels = panels
        self.weight = nn.Parameter(self.weight.new_empty(0), requires_grad=False)

    def forward(self, x: Tensor, tasks: Sequence[TaskRows] = ()) -> Tensor:
        """Map (…, in), of any dtype, to (…, out) in the weights' dtype.

        With `tasks`, x is (T, in), and their rows get the updates of the adapters.
        """
        x = x.to(self.dtype)
        if not tasks or self.adapters is None:
            return self._multiply(x, self.activation)
        y = self._multiply(x, None)
        self.adapters.add(y, x, tasks)
        return activate(y, self.activation)

    def _multiply(self, x: Tensor, activation: Activation | None) -> Tensor:
        if self.packed is not None:
            attribute, algorithm = FUSED[activation]
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, attribute, [], algorithm)
        if self.panels is None:
            return activate(F.linear(x, self.weight, self.bias), activation)
        panels = self.panels.transpose(2, 3).flatten(1, 2)  # (panels, in, columns)
        y = torch.matmul(x, panels).transpose(0, 1).flatten(1)[:, : self.outputs]  # (T, out)
        return activate(y if self.bias is None else y + self.bias, activation)


StoredParts = Mapping[Linear, Sequence[Tensor]]
"""Linear layer -> the parts of W, each (rows, in) with a dtype of its own, as a mapped file holds them."""


def joined(parts: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """Join the parts of a parameter, in `dtype`; a single part that has this dtype is not copied."""
    return (parts[0] if len(parts) == 1 else torch.cat(list(parts))).to(dtype)


def read_matrices(module: nn.Module, stored: StoredParts, dtype: torch.dtype = torch.float32) -> None:
    """Read, in `dtype`, the weights that the linear layers of a module have left in their file."""
    for linear in module.modules():
        if isinstance(linear, Linear) and linear.weight.is_meta:
            linear.weight = nn.Parameter(joined(stored[linear], dtype), requires_grad=False)
