"""The parts of an encoder's configuration: what layers, positions and scores may have."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from model.errors import CheckpointError

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]


def check_whole(name: str, value: Any, least: int) -> None:
    """Check a field; raises CheckpointError if it is not a whole number, or is below `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(f"{name} is {value!r}; it must be a whole number.")
    if value < least:
        raise CheckpointError(f"{name} is {value}; it must be at least {least}.")


@dataclass(frozen=True)
class Rotary:
    """Rotary positions (Su et al. 2021): pair i of components turns by `frequencies[i]` radians a token.

    The first 2·len(frequencies) components of a head turn, the others stay as they are. Component i is paired
    with i + len(frequencies), or, if `interleaved`, component 2i with 2i + 1.
    """

    frequencies: tuple[float, ...]
    interleaved: bool = False

    def __post_init__(self) -> None:
        """Check that something turns; raises CheckpointError."""
        if not self.frequencies:
            raise CheckpointError("rotary positions need at least one frequency.")

    @classmethod
    def of(cls, size: int, base: float = 10_000.0, *, interleaved: bool = False) -> "Rotary":
        """Turn `size` components with the frequencies base^(−2i/size) of the paper, §3.4.2.

        They are rounded to float32, as in training, because a far position multiplies any difference.
        """
        if size % 2 or size < 2:
            raise CheckpointError(f"rotary positions need an even number of components, not {size}.")
        exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
        return cls(tuple((np.float32(1) / np.float32(base) ** exponents).tolist()), interleaved)

    @property
    def size(self) -> int:
        """How many components of a head turn."""
        return 2 * len(self.frequencies)


@dataclass(frozen=True)
class RelativeBias:
    """A learned bias of the scores for each head and bucket of distances (Raffel et al. 2020, §2.1).

    One table serves all layers, or, if `per_layer`, each has its own. `table_rows` is the number of rows of a
    table that has more rows than buckets.
    """

    buckets: int = 32
    max_distance: int = 128
    per_layer: bool = False
    table_rows: int = 0

    @property
    def rows(self) -> int:
        """The number of rows of a table."""
        return self.table_rows or self.buckets

    def __post_init__(self) -> None:
        """Check the buckets: each direction has half of them, and half of those are for exact distances."""
        if self.buckets < 4 or self.buckets % 2:
            raise CheckpointError(f"relative_buckets is {self.buckets}; it must be even and at least 4.")
        if self.max_distance <= self.buckets // 4:
            raise CheckpointError(
                f"relative_max_distance is {self.max_distance}; with {self.buckets} buckets it must be more "
                f"than {self.buckets // 4}."
            )
        if 0 != self.table_rows < self.buckets:
            raise CheckpointError(
                f"table_rows is {self.table_rows}; it must be 0 or at least the number of buckets, "
                f"{self.buckets}."
            )


@dataclass(frozen=True)
class Disentangled:
    """Scores between contents and the distances of positions (He et al. 2021, DeBERTa, §3.1).

    Each layer projects a table of 2·`span` distance embeddings to position keys and position queries.
    `content_to_position` compares content queries with position keys, and `position_to_content` compares
    content keys with position queries. Without `buckets`, each distance up to `max_distance` has its own row.
    With `buckets`, only distances up to half of them do; longer ones share rows on a logarithmic scale.
    `shared` projects with the layer's own weights for queries and keys, and `norm` normalises the embeddings
    first.
    """

    max_distance: int = 512
    buckets: int = 0
    content_to_position: bool = True
    position_to_content: bool = True
    shared: bool = False
    norm: bool = False

    @property
    def span(self) -> int:
        """How many rows of the table are for keys before their query; the others have as many."""
        return self.buckets or self.max_distance

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError."""
        check_whole("max_distance", self.max_distance, 1)
        check_whole("buckets", self.buckets, 0)
        if self.buckets % 2:
            raise CheckpointError(f"buckets is {self.buckets}; it must be even: half are for near distances.")
        if self.buckets and self.max_distance - 1 <= self.buckets // 2:
            raise CheckpointError(
                f"max_distance is {self.max_distance}; with {self.buckets} buckets it must be more than "
                f"{self.buckets // 2 + 1}."
            )
        if not self.content_to_position and not self.position_to_content:
            raise CheckpointError(
                "disentangled attention needs content_to_position or position_to_content: set one to true."
            )


@dataclass(frozen=True)
class Convolution:
    """A convolution over the tokens of a layer's input, added to its output; the sum is normalised."""

    kernel_size: int
    groups: int = 1
    activation: Literal[Activation, "tanh"] = "tanh"

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError."""
        check_whole("kernel_size", self.kernel_size, 1)
        check_whole("groups", self.groups, 1)
        if not self.kernel_size % 2:
            raise CheckpointError(
                f"kernel_size is {self.kernel_size}; it must be odd, to give one output for each token."
            )


@dataclass(frozen=True)
class ShortConvolution:
    """A gated convolution over `kernel_size` tokens that replaces attention (Liquid AI 2025, LFM2).

    If it is `causal`, these are a token and those before it, otherwise those around it, with one more before
    than after if their number is even. `bias`: the convolution and both of its products have one.
    """

    kernel_size: int
    causal: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError."""
        check_whole("kernel_size", self.kernel_size, 1)

    @property
    def steps(self) -> range:
        """The distance from a token to the one that each column of the kernel reads."""
        before = self.kernel_size - 1 if self.causal else self.kernel_size // 2
        return range(-before, self.kernel_size - before)


@dataclass(frozen=True)
class Mixture:
    """A mixture of `experts` feed-forward networks, of which `chosen` compute each token."""

    experts: int
    chosen: int

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError."""
        check_whole("experts", self.experts, 1)
        check_whole("chosen", self.chosen, 1)
        if self.chosen > self.experts:
            raise CheckpointError(
                f"each token uses {self.chosen} experts, but there are only {self.experts}."
            )


@dataclass(frozen=True)
class Adapters:
    """Low-rank updates of every matrix and table for `tasks`, by name (LoRA, Hu et al. 2021, §4.1).

    An update is the product of two matrices of `rank` columns and rows, multiplied by `alpha` / `rank`. With
    rank 0, separate files have matrices of any rank, for some of the linear layers and no tables.
    `default` is the task of sequences that name none.
    """

    tasks: tuple[str, ...]
    rank: int
    alpha: float = 1.0
    default: str | None = None

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError."""
        check_whole("rank", self.rank, 0)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise CheckpointError(f"the tasks of adapters are {self.tasks!r}; name at least one, each once.")
        if not 0 < self.alpha < float("inf"):  # also refuses NaN
            raise CheckpointError(f"alpha is {self.alpha!r}; it must be a number above 0.")
        if self.default is not None and self.default not in self.tasks:
            raise CheckpointError(
                f"the default task is {self.default!r}, which is not one of {self.tasks!r}."
            )

    @property
    def scale(self) -> float:
        """The factor of the product of the two matrices."""
        return self.alpha / self.rank if self.rank else 1.0


@dataclass(frozen=True)
class LayerConfig:
    """What may differ from layer to layer.

    `window`: a query attends to keys at most this many positions away on either side; 0 is no limit.
    `attention_norm` is False if attention has no norm before it, though the other sub-layers have theirs.
    `mixture`: a mixture of experts replaces the feed-forward network; it is not gated, and has one bias for
    all experts. `convolution`: a convolution runs beside the layer. `short_convolution` replaces attention.
    `head_dim` and `num_kv_heads` replace those of the encoder (0: as in the encoder).
    """

    window: int = 0
    rotary: Rotary | None = None
    attention_norm: bool = True
    mixture: Mixture | None = None
    convolution: Convolution | None = None
    short_convolution: ShortConvolution | None = None
    head_dim: int = 0
    num_kv_heads: int = 0

    def __post_init__(self) -> None:
        """Check the fields; raises CheckpointError."""
        for name in ("window", "head_dim", "num_kv_heads"):
            check_whole(name, getattr(self, name), 0)
        if self.short_convolution is not None and (self.window or self.rotary is not None):
            raise CheckpointError(
                "a layer with a short convolution has no attention: it cannot have window or rotary."
            )
