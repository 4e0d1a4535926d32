"""Plans which tokens must be computed for the rows, columns and words that a request selects.

The options apply one after another: special tokens are dropped, pieces merged into words, rows and columns
selected. Applied in reverse, they yield the tokens of each selected row and column, and only those parts of
the maps are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, chain

from model.contract import (
    STATISTICS,
    AttentionWant,
    Axis,
    Encoding,
    MapDtype,
    ModelInfo,
    Statistic,
    SummaryWant,
)
from model.errors import OutOfRange
from model.tokenization.tokenizer import Text
from service.protocols.native.encode_plan import EncodePlan, check_exposes, resolve
from service.protocols.native.schemas import AttentionOptions
from service.protocols.native.words import Words
from service.protocols.view import View
from service.serialization.items import Expected, columns

_AXES = {
    "none": ("layer", "head", "query", "key"),
    "mean": ("layer", "query", "key"),
    "max": ("layer", "query", "key"),
    "rollout": ("query", "key"),
}


@dataclass(frozen=True)
class AttentionPlan:
    """The part of the plan common to all sequences of a request."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    embeddings: EncodePlan
    request: AttentionOptions
    dtype: MapDtype
    info: ModelInfo
    prefix: str
    """Of the options' names in errors."""
    listed: str
    """The field of the inputs, for errors."""
    _resolved: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of a map, or without maps those of the statistics."""
        return _AXES[self.request.aggregate] if self.request.maps else ("layer", "head")

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics of the summary, in order; empty without a summary."""
        chosen = STATISTICS if self.request.statistics is None else self.request.statistics
        return tuple(name for name in STATISTICS if self.request.summary and name in chosen)

    @cached_property
    def unit(self) -> bool:
        """Whether all numbers are in [0, 1]: sums of maxima over heads may exceed 1."""
        request = self.request
        sums = request.level == "word" or request.top_k is not None
        return request.weights == "probability" and (
            request.aggregate != "max" or request.renormalize or not sums
        )

    def view(self, index: int, encoding: Encoding, text: Text) -> View:
        """Plan one sequence; raises OutOfRange for rows and columns that it lacks or drops."""
        words = Words.of(encoding, text) if self.request.level == "word" else None
        item_columns, shapes = columns(index, encoding), self.embeddings.shapes(encoding)
        if words is not None:
            item_columns |= {"words": words.texts, "word_offsets": words.offsets}
        named: dict[str, tuple[int, ...]] = {}
        if self.request.summary or "layer" in self.axes:
            named["layers"] = self.layers
        if self.request.summary or "head" in self.axes:
            named["heads"] = self.heads
        want = self.embeddings.want(encoding)
        remaining = self._remaining(encoding, words)
        if self.request.maps:
            queries, keys = (
                remaining
                if getattr(self.request, option) == "all"
                else self._axis(option, index, encoding, words)
                for option in ("queries", "keys")
            )
            want = replace(want, attention=self._attention(queries, keys))
            every = _every(len(encoding))
            named["queries"] = every if queries is None else queries.positions
            named["keys"] = every if keys is None else keys.positions
            shapes |= self._map_shapes(named)
        if self.request.summary:
            want = replace(want, summary=self._summary(encoding, words, remaining))
        expected = Expected(
            shapes,
            # An offset is a list of two numbers.
            labels=sum(map(len, named.values())) + (0 if words is None else 3 * len(words)),
            text_bytes=0 if words is None else len("".join(words.texts).encode()),
            summary=dict.fromkeys(self.statistics, (len(self.layers), len(self.heads))),
        )
        return View(want, item_columns | named, expected)

    def _attention(self, queries: Axis | None, keys: Axis | None) -> AttentionWant:
        request = self.request
        return AttentionWant(
            self.layers,
            self.heads,
            weights=request.weights,
            aggregate=request.aggregate,
            queries=queries,
            keys=keys,
            renormalize=request.renormalize,
            top_k=request.top_k,
            thumbnail=request.thumbnail,
            dtype=self.dtype if self.unit and request.top_k is None else "float32",
        )

    def _summary(self, encoding: Encoding, words: Words | None, remaining: Axis | None) -> SummaryWant:
        every = range(len(encoding) if words is None else len(words))
        positions = every if remaining is None else remaining.positions
        special = (i for i, unit in enumerate(positions) if _is_special(encoding, words, unit))
        # If nothing is left out, rows sum to 1 anyway.
        renormalize = self.request.renormalize and len(positions) < len(every)
        return SummaryWant(
            self.layers, self.heads, tuple(special), self.statistics, remaining, renormalize=renormalize
        )

    def _map_shapes(self, named: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        lists = {"layer": "layers", "head": "heads", "query": "queries", "key": "keys"}
        shape = tuple(len(named[lists[axis]]) for axis in self.axes)
        if self.request.thumbnail is not None:
            cells = (min(self.request.thumbnail, count) for count in shape[-2:])
            return {"thumbnails": (*shape[:-2], *cells)}
        if self.request.top_k is None:
            return {"attention": shape}
        rows = shape[:-1]
        top = (*rows, min(self.request.top_k, len(named["keys"])))
        return {"top_keys": top, "top_weights": top, "residual": rows}

    def _remaining(self, encoding: Encoding, words: Words | None) -> Axis | None:
        """Return the rows and columns that `special_tokens` and `level` leave; None for every token."""
        dropped = self._dropped(encoding, words)
        if words is None and not dropped:
            return None
        count = len(encoding) if words is None else len(words)
        return _axis_of(tuple(i for i in range(count) if i not in dropped), words)

    def _dropped(self, encoding: Encoding, words: Words | None) -> set[int]:
        if self.request.special_tokens == "keep":
            return set()
        count = len(encoding) if words is None else len(words)
        return {i for i in range(count) if _is_special(encoding, words, i)}

    def _axis(self, option: str, index: int, encoding: Encoding, words: Words | None) -> Axis:
        """Return the listed rows or columns."""
        count = len(encoding) if words is None else len(words)
        dropped = self._dropped(encoding, words)
        return _axis_of(self._chosen(getattr(self.request, option), option, index, count, dropped), words)

    def _chosen(
        self, chosen: Sequence[int], option: str, index: int, count: int, dropped: set[int]
    ) -> tuple[int, ...]:
        """Resolve a list of positions, once for all inputs of the same length."""
        place_of = f"{self.listed}.{index}"
        if (option, count) not in self._resolved:
            available = f"{place_of} has {count} {self.request.level}s"
            self._resolved[option, count] = resolve(
                chosen, count, option=self.prefix + option, available=available, field=place_of
            )
        positions = self._resolved[option, count]
        if not dropped.isdisjoint(positions):
            place = next(i for i, position in enumerate(positions) if position in dropped)
            raise OutOfRange(
                f"{self.prefix}{option}.{place} is {chosen[place]}, which in {place_of} is a special token, "
                'dropped by "special_tokens": "drop": choose another position, or keep special tokens.',
                field=place_of,
                actual=chosen[place],
                allowed=(-count, count - 1),
            )
        return positions


def _is_special(encoding: Encoding, words: Words | None, unit: int) -> bool:
    return encoding.special[unit if words is None else words.starts[unit]]


def _axis_of(positions: tuple[int, ...], words: Words | None) -> Axis:
    """Build an axis of tokens, or of words and their tokens."""
    if words is None:
        return Axis(positions)
    # Each word once, however often it is listed.
    pieces = [words.pieces(word) for word in sorted(set(positions))]
    starts = accumulate(map(len, pieces), initial=0)
    return Axis(positions, tuple(chain.from_iterable(pieces)), tuple(starts)[:-1])


@cache
def _every(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def plan_attention(
    options: AttentionOptions,
    info: ModelInfo,
    embeddings: EncodePlan,
    dtype: MapDtype = "float32",
    *,
    prefix: str = "",
    listed: str = "inputs",
) -> AttentionPlan:
    """Check which attention is asked for against the model; raises OutOfRange, Unsupported or Problem.

    `embeddings` are what else is computed; `dtype` is that of maps in the response. `prefix` is where the
    options are in a body, as "attention." is, and `listed` is the field of the inputs.
    """
    check_exposes(info, "attention", "model")
    layers, heads = (
        tuple(range(count))
        if chosen == "all"
        else resolve(chosen, count, option=prefix + option, available=f"there are {count} {option}")
        for option, chosen, count in (
            ("layers", options.layers, info.layers),
            ("heads", options.heads, info.heads),
        )
    )
    return AttentionPlan(layers, heads, embeddings, options, dtype, info, prefix, listed)
