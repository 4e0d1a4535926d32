"""From the rows, columns and words that are asked for at the end to the tokens that must be computed.

The options apply one after another: special tokens are dropped, pieces merged to words, rows and columns
chosen. Read backwards, that is for each kept row and column the tokens it is made of, and nothing else of
the maps is ever computed.
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
from service.protocols.native.encode_plan import EncodePlan, check_opens, plan_encode, resolve
from service.protocols.native.schemas import AttentionRequest
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
    """What the sequences of `/attention` have in common."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    embeddings: EncodePlan
    request: AttentionRequest
    dtype: MapDtype
    info: ModelInfo
    _resolved: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Name the axes of a map, or of what there is without maps."""
        return _AXES[self.request.aggregate] if self.request.maps else ("layer", "head")

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """Name the statistics of the summary, in their order; none without one."""
        chosen = STATISTICS if self.request.statistics is None else self.request.statistics
        return tuple(name for name in STATISTICS if self.request.summary and name in chosen)

    @cached_property
    def unit(self) -> bool:
        """Whether all numbers are in [0, 1]: sums of what is the largest of several heads are not."""
        request = self.request
        sums = request.level == "word" or request.top_k is not None
        return request.weights == "probability" and (
            request.aggregate != "max" or request.renormalize or not sums
        )

    def view(self, index: int, encoding: Encoding, text: Text) -> View:
        """Plan one sequence; raises OutOfRange for rows and columns it does not have or keep."""
        words = Words.of(encoding, text) if self.request.level == "word" else None
        said, shapes = columns(index, encoding), self.embeddings.shapes(encoding)
        if words is not None:
            said |= {"words": words.texts, "word_offsets": words.offsets}
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
            # An offset is two numbers in brackets of their own.
            labels=sum(map(len, named.values())) + (0 if words is None else 3 * len(words)),
            text_bytes=0 if words is None else len("".join(words.texts).encode()),
            summary=dict.fromkeys(self.statistics, (len(self.layers), len(self.heads))),
        )
        return View(want, said | named, expected)

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
            dtype=self.dtype if self.unit and request.top_k is None else "float32",
        )

    def _summary(self, encoding: Encoding, words: Words | None, remaining: Axis | None) -> SummaryWant:
        every = range(len(encoding) if words is None else len(words))
        positions = every if remaining is None else remaining.positions
        special = (i for i, unit in enumerate(positions) if _is_special(encoding, words, unit))
        # Where nothing is left out, rows sum to 1 anyway.
        renormalize = self.request.renormalize and len(positions) < len(every)
        return SummaryWant(
            self.layers, self.heads, tuple(special), self.statistics, remaining, renormalize=renormalize
        )

    def _map_shapes(self, named: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        lists = {"layer": "layers", "head": "heads", "query": "queries", "key": "keys"}
        shape = tuple(len(named[lists[axis]]) for axis in self.axes)
        if self.request.top_k is None:
            return {"attention": shape}
        rows = shape[:-1]
        top = (*rows, min(self.request.top_k, len(named["keys"])))
        return {"top_keys": top, "top_weights": top, "residual": rows}

    def _remaining(self, encoding: Encoding, words: Words | None) -> Axis | None:
        """Find the rows and columns that `special_tokens` and `level` leave; None when it is every token."""
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
        """Find the rows or columns that are listed."""
        count = len(encoding) if words is None else len(words)
        dropped = self._dropped(encoding, words)
        return _axis_of(self._chosen(getattr(self.request, option), option, index, count, dropped), words)

    def _chosen(
        self, chosen: Sequence[int], option: str, index: int, count: int, dropped: set[int]
    ) -> tuple[int, ...]:
        """Count a list from the start, once for all inputs of the same length."""
        place_of = f"inputs.{index}"
        if (option, count) not in self._resolved:
            there = f"{place_of} has {count} {self.request.level}s"
            self._resolved[option, count] = resolve(chosen, count, option=option, there=there, field=place_of)
        positions = self._resolved[option, count]
        if not dropped.isdisjoint(positions):
            place = next(i for i, position in enumerate(positions) if position in dropped)
            raise OutOfRange(
                f"{option}.{place} is {chosen[place]}, and in {place_of} that is a special token, which "
                '"special_tokens": "drop" leaves out: choose another position, or keep them.',
                field=place_of,
                actual=chosen[place],
                allowed=(-count, count - 1),
            )
        return positions


def _is_special(encoding: Encoding, words: Words | None, unit: int) -> bool:
    return encoding.special[unit if words is None else words.starts[unit]]


def _axis_of(positions: tuple[int, ...], words: Words | None) -> Axis:
    """Make an axis of tokens, or of words and their pieces."""
    if words is None:
        return Axis(positions)
    # Each word once, however often it is listed.
    pieces = [words.pieces(word) for word in sorted(set(positions))]
    starts = accumulate(map(len, pieces), initial=0)
    return Axis(positions, tuple(chain.from_iterable(pieces)), tuple(starts)[:-1])


@cache
def _every(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def plan_attention(request: AttentionRequest, info: ModelInfo, dtype: MapDtype = "float32") -> AttentionPlan:
    """Check what `/attention` was asked against the model; raises OutOfRange or Unsupported.

    `dtype` is that of maps in the answer.
    """
    check_opens(info, "attention", "model")
    layers, heads = (
        tuple(range(count))
        if chosen == "all"
        else resolve(chosen, count, option=option, there=f"there are {count} {option}")
        for option, chosen, count in (
            ("layers", request.layers, info.layers),
            ("heads", request.heads, info.heads),
        )
    )
    return AttentionPlan(layers, heads, plan_encode(request.embeddings, info), request, dtype, info)
