"""The buffers of one pass through native layers."""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from model.encoder.attending.edits import Edits
from model.encoder.config import EncoderConfig
from model.encoder.packing import Packing

# How many numbers of queries, keys and values may wait to be observed: 16 MB in bfloat16.
_OBSERVED_AT_ONCE = 2**23


def split_layers(
    last: int, observed: Collection[int], numbers: int, changed: Collection[int] = ()
) -> Iterator[range]:
    """Split the layers below `last` into ranges, one per call, to bound the memory of observed layers.

    `numbers` is how many numbers the queries, keys and values of a layer have. A range ends before a hidden
    state that is `changed`, by its number.
    """
    most = max(1, _OBSERVED_AT_ONCE // max(1, numbers))
    start, waiting = 0, 0
    for layer in range(last):
        waiting += layer in observed
        if waiting == most or layer + 1 == last or layer + 1 in changed:
            yield range(start, layer + 1)
            start, waiting = layer + 1, 0


class Buffers:
    """The buffers of one pass from hidden state 0, float32 (T, C); `x` is the current hidden state.

    Products read `rounded` (T, C), or in float32 x itself; `mixed` (T, H·D), the output of attention; and
    `gated` (T, `gated`), the output of a gate that is a step of its own. They write into `wide`
    (T, `widest`) and `narrow` (T, C).
    """

    def __init__(
        self, x: Tensor, packing: Packing, dtype: torch.dtype, config: EncoderConfig, widest: int, gated: int
    ) -> None:
        rows = x.shape[0]  # `len` takes a microsecond, which a short text would notice
        self.x = x
        self.stream = torch.empty_like(x)
        self.mixed = torch.empty(rows, config.num_heads * config.head_size, dtype=dtype)
        self._projected = sum(config.qkv_rows)
        if rows > packing.tokens:
            self.mixed[packing.tokens :] = 0
        self.rounded = x.to(dtype, copy=True) if dtype != torch.float32 else None
        self._buffers = {
            "mixed": self.mixed,
            "wide": torch.empty(rows, widest, dtype=dtype),
            "narrow": torch.empty_like(x, dtype=dtype),
        }
        if self.rounded is not None:
            self._buffers["rounded"] = self.rounded
        if gated:
            self._buffers["gated"] = torch.empty(rows, gated, dtype=dtype)
        if config.norm != "post":
            self._buffers["normed"] = torch.empty_like(x)
        if experts := max(layer.mixture.experts if layer.mixture else 0 for layer in config.layers):
            self._buffers["gathered"] = torch.empty_like(x, dtype=dtype)
            self._buffers["sums"] = torch.empty_like(x)
            self._buffers["shares"] = torch.empty(rows, experts)
            self._buffers["rows"] = torch.empty(rows, dtype=torch.int64)
        self.addresses = {name: buffer.data_ptr() for name, buffer in self._buffers.items()}

    def change(self, edits: Edits, number: int) -> None:
        """Copy `x`, hidden state `number`, where sequences begin with it; change x and what products read."""
        edits.begin(number, self.x)
        rows = edits.change_state(number, self.x)
        if self.rounded is not None:
            edits.begin(number, self.rounded)
            if rows:
                self.rounded[rows] = self.x[rows].to(self.rounded.dtype)

    def projected(self) -> Tensor:
        """Allocate a buffer for queries, keys and values side by side, (T, (H + 2·kv_heads)·D)."""
        return torch.empty(len(self.mixed), self._projected, dtype=self.mixed.dtype)
