"""The style in which a response is written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from service.tasks.precision import Precision, stored_size
from service.tasks.results import VECTORS, Item

Format = Literal["json", "npz", "safetensors", "ndjson"]
ArrayType = Literal["float32", "float16", "uint8"]
Frame = Callable[[int], tuple[bytes, bytes | Callable[[], bytes]]]
"""Returns what stands before and after the values of a response, given the number of tokens run.

The second may be a function, which is called once the values are written.
"""


@dataclass(slots=True)
class AnswerStyle:
    """How a response is written.

    `decimals` rounds the maps and the summary in JSON; None writes the shortest text that parses to the same
    float32. `unit` means that maps are probabilities, in [0, 1] up to rounding errors. Items are `listed`
    under `data`; otherwise there is one, whose columns and arrays are fields of the response itself.
    `precision` is that of the vectors, `method` how texts were ranked or explained. A protocol whose
    responses are values without names sets `value`, which returns what to write for an item: an array, or
    anything that orjson writes. The response is then the list of values, or the only one, between the two
    parts that `frame` returns. This is only for JSON, and for the bytes of a single value, as a memoryview.
    """

    model: str
    format: Format = "json"
    dtype: ArrayType = "float32"
    decimals: int | None = None
    unit: bool = True
    axes: tuple[str, ...] | None = None
    listed: bool = True
    precision: Precision = "float32"
    method: str | None = None
    value: Callable[[Item], Any] | None = None
    frame: Frame | None = None

    @property
    def head(self) -> dict[str, Any]:
        """The fields before the items."""
        fields: dict[str, Any] = {"model": self.model}
        if self.method is not None:
            fields["method"] = self.method
        if self.precision != "float32":
            fields["precision"] = self.precision
        if self.axes is not None:
            fields["axes"] = self.axes
        return fields

    @property
    def growth(self) -> int:
        """Ratio of maps in memory to maps as written: only probabilities are computed as uint8."""
        return 4 if self.dtype == "uint8" and not self.unit else 1

    def quantizes(self, name: str) -> bool:
        """Whether an array has vectors that are written in another precision than float32."""
        return self.precision != "float32" and name in VECTORS

    def stored_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in which an array is written."""
        if not self.quantizes(name):
            return shape
        return (*shape[:-1], stored_size(shape[-1], self.precision))
