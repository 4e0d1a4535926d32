"""Plans which tokens must be computed for the rows, columns and words that a request selects.

The options apply one after another: special tokens are dropped, pieces merged into words, rows and columns
selected. Applied in reverse, they yield the tokens of each selected row and column, and only those parts of
the maps are computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import Any, Literal, cast

from model.choices import VECTOR_NAMES, Axis, HeadVector, Statistic
from model.contract import (
    STATISTICS,
    Aggregate,
    AttentionWant,
    Encoding,
    MapDtype,
    ModelInfo,
    SummaryWant,
    Weights,
)
from model.tokenization.decoding import json_bytes
from model.tokenization.tokenizer import Text
from service.tasks.embed import EncodePlan
from service.tasks.errors import OptionError
from service.tasks.indices import Chosen, Edges, check_exposes, choose, choose_layers, dropped, resolve
from service.tasks.results import SUMMARY, Expected, columns
from service.tasks.view import View
from service.tasks.words import Words

_SCALE_BYTES = 40
"""Bytes of `score_scale`, with its name."""
_AXES = {
    "none": ("layer", "head", "query", "key"),
    "mean": ("layer", "query", "key"),
    "max": ("layer", "query", "key"),
    "rollout": ("query", "key"),
}
LABELS = {"layer": "layers", "head": "heads", "query": "queries", "key": "keys", "edge": "edges"}
"""The field of an item that lists the indices of each axis."""


@dataclass(frozen=True, slots=True)
class AttendOptions:
    """Which attention to return: maps, statistics, or both."""

    layers: Chosen = "all"
    heads: Chosen = "all"
    weights: Weights = "probability"
    aggregate: Aggregate = "none"
    special_tokens: Literal["keep", "drop"] = "keep"
    level: Literal["token", "word"] = "token"
    queries: Chosen = "all"
    keys: Chosen = "all"
    renormalize: bool = False
    top_k: int | None = None
    thumbnail: int | None = None
    edges: Edges | None = None
    """Single edges instead of whole maps, without `queries`, `keys`, `top_k` and `thumbnail`."""
    summary: bool = False
    statistics: Sequence[Statistic] | None = None
    """All if None."""
    maps: bool = True
    vectors: tuple[HeadVector, ...] = ()
    """The vectors to return for each head and token, whatever the maps are."""


@dataclass(frozen=True)
class AttentionPlan:
    """The part of the plan common to all sequences of a request."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    embeddings: EncodePlan
    options: AttendOptions
    dtype: MapDtype
    info: ModelInfo

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of a map, or without maps those of the statistics."""
        if not self.options.maps:
            return ("layer", "head")
        axes = _AXES[self.options.aggregate]
        return axes if self.options.edges is None else (*axes[:-2], "edge")

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics of the summary, in order; empty without a summary."""
        chosen = STATISTICS if self.options.statistics is None else self.options.statistics
        return tuple(name for name in STATISTICS if self.options.summary and name in chosen)

    @cached_property
    def unit(self) -> bool:
        """Whether all numbers are in [0, 1]: sums of maxima over heads may exceed 1."""
        options = self.options
        sums = options.level == "word" or options.top_k is not None
        return options.weights == "probability" and (
            options.aggregate != "max" or options.renormalize or not sums
        )

    def view(self, index: int, encoding: Encoding, text: Text) -> View:
        """Plan one sequence; raises OptionError for rows and columns that it lacks or drops."""
        words = Words.of(encoding, text) if self.options.level == "word" else None
        shapes, token_columns = self.embeddings.shapes(encoding), self.embeddings.columns
        item_columns = columns(index, encoding, token_columns)
        if words is not None:
            item_columns |= {"words": words.texts, "word_offsets": words.offsets}
        named: dict[str, Sequence[Any]] = {}
        of_heads = self.options.summary or bool(self.options.vectors)
        if of_heads or "layer" in self.axes:
            named["layers"] = self.layers
        if of_heads or "head" in self.axes:
            named["heads"] = self.heads
        want = self.embeddings.want(encoding)
        special = encoding.special if words is None else [encoding.special[i] for i in words.starts[:-1]]
        kept = _every(len(special))
        if self.options.special_tokens == "drop":
            kept = tuple(i for i in kept if not special[i])
        remaining = None if words is None and len(kept) == len(special) else _axis_of(kept, words)
        if self.options.maps or self.options.vectors:
            select = self._edges if self.options.edges is not None else self._rows_and_keys
            attention, labelled = select(index, special, remaining, words)
            want, named = replace(want, attention=attention), named | labelled
            shapes |= self._map_shapes(named) if self.options.maps else {}
            shapes |= self._vector_shapes(named) if self.options.vectors else {}
            if self.score_scale is not None:
                item_columns |= {"score_scale": self.score_scale}
        if self.options.summary:
            places = tuple(place for place, i in enumerate(kept) if special[i])
            # If nothing is left out, rows sum to 1 anyway.
            renormalize = self.options.renormalize and len(kept) < len(special)
            want = replace(
                want,
                summary=SummaryWant(
                    self.layers, self.heads, places, self.statistics, remaining, renormalize=renormalize
                ),
            )
        shapes |= {SUMMARY + name: (len(self.layers), len(self.heads)) for name in self.statistics}
        labels, text_bytes = sum(map(len, named.values())), 0 if self.score_scale is None else _SCALE_BYTES
        labels += 2 * len(named.get("edges", ()))  # An edge is a list of two numbers.
        if words is not None:
            labels += 3 * len(words)  # An offset is a list of two numbers.
            text_bytes += 3 * len(words) + json_bytes("".join(words.texts))
        expected = Expected(shapes, encoding, labels, text_bytes, columns=token_columns)
        return View(want, item_columns | named, expected)

    def _rows_and_keys(
        self, index: int, special: Sequence[bool], remaining: Axis | None, words: Words | None
    ) -> tuple[AttentionWant, dict[str, Sequence[Any]]]:
        """Return the want for a map of the `remaining` or the chosen rows and columns, and their labels."""
        queries, keys = (
            remaining
            if (chosen := getattr(self.options, option)) == "all"
            else _axis_of(self._chosen(chosen, option, index, special), words)
            for option in ("queries", "keys")
        )
        every = _every(len(special))
        labels = [every if axis is None else axis.positions for axis in (queries, keys)]
        return self._attention(queries, keys), dict(zip(("queries", "keys"), labels, strict=True))

    def _edges(
        self, index: int, special: Sequence[bool], remaining: Axis | None, words: Words | None
    ) -> tuple[AttentionWant, dict[str, Sequence[Any]]]:
        """Return the want for the chosen edges, and the edges; only their rows and columns are computed.

        With `renormalize`, all `remaining` columns are computed, since rows are divided by their sums.
        """
        options = self.options
        keep = options.special_tokens == "keep"
        edges = cast(Edges, options.edges).resolve(index, special, options.level, keep=keep)
        rows, keys = (_axis_of(tuple(sorted({edge[end] for edge in edges})), words) for end in (0, 1))
        want = self._attention(rows, remaining if options.renormalize else keys)
        return replace(want, edges=edges), {"edges": edges}

    def _attention(self, queries: Axis | None, keys: Axis | None) -> AttentionWant:
        options = self.options
        return AttentionWant(
            self.layers,
            self.heads,
            weights=options.weights,
            aggregate=options.aggregate,
            queries=queries,
            keys=keys,
            renormalize=options.renormalize,
            top_k=options.top_k,
            thumbnail=options.thumbnail,
            dtype=self.dtype if self.unit and options.top_k is None else "float32",
            vectors=options.vectors,
            maps=options.maps,
        )

    @cached_property
    def score_scale(self) -> float | None:
        """What the dot products of the returned queries and keys are multiplied by; None without any."""
        if {"query", "key"}.isdisjoint(self.options.vectors):
            return None
        scale = self.info.score_scale
        return self.info.head_sizes[self.layers[0]] ** -0.5 if scale is None else scale

    def _vector_shapes(self, named: Mapping[str, Sequence[Any]]) -> dict[str, tuple[int, ...]]:
        heads = (len(self.layers), len(self.heads))
        rows, columns = (len(named[name]) for name in ("queries", "keys"))
        size = self.info.head_sizes[self.layers[0]]
        shapes = {
            "query": (*heads, rows, size),
            "key": (*heads, columns, size),
            "output_norm": (*heads, rows),
        }
        return {VECTOR_NAMES[name]: shapes[name] for name in self.options.vectors}

    def _map_shapes(self, named: Mapping[str, Sequence[Any]]) -> dict[str, tuple[int, ...]]:
        shape = tuple(len(named[LABELS[axis]]) for axis in self.axes)
        if self.options.thumbnail is not None:
            cells = (min(self.options.thumbnail, count) for count in shape[-2:])
            return {"thumbnails": (*shape[:-2], *cells)}
        if self.options.top_k is None:
            return {"attention": shape}
        rows = shape[:-1]
        top = (*rows, min(self.options.top_k, len(named["keys"])))
        return {"top_keys": top, "top_weights": top, "residual": rows}

    def _chosen(
        self, chosen: Sequence[int], option: str, index: int, special: Sequence[bool]
    ) -> tuple[int, ...]:
        """Resolve a list of positions; raises OptionError."""
        input_, count = f"inputs.{index}", len(special)
        positions = resolve(chosen, count, what=f"{self.options.level}s", option=option, input_=input_)
        if self.options.special_tokens == "drop" and any(special[i] for i in positions):
            place = next(place for place, i in enumerate(positions) if special[i])
            raise dropped(f"{option}.{place}", chosen[place], count, input_)
        return positions


def _axis_of(positions: tuple[int, ...], words: Words | None) -> Axis:
    """Build an axis of tokens, or of words and their tokens."""
    if words is None:
        return Axis(positions)
    # Each word once, however often it is listed.
    pieces = [words.pieces(word) for word in sorted(set(positions))]
    starts = accumulate(map(len, pieces), initial=0)
    return Axis(positions, tuple(chain.from_iterable(pieces)), tuple(starts)[:-1])


@lru_cache(maxsize=64)
def _every(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def plan_attention(
    options: AttendOptions, info: ModelInfo, embeddings: EncodePlan, dtype: MapDtype = "float32"
) -> AttentionPlan:
    """Check the requested attention against the model; raises OptionError.

    `embeddings` says what else is computed; `dtype` is that of the maps that are returned.
    """
    check_exposes(info, "attention", "model")
    layers = choose_layers(options.layers, info, "layers")
    heads = choose(options.heads, info.heads, what="heads", option="heads")
    if options.aggregate == "rollout" and len(info.attention_layers) < info.layers:
        attending = ", ".join(map(str, info.attention_layers))
        raise OptionError(
            lambda name: (
                f'{name("aggregate")} is "rollout", which follows attention through every layer, but only '
                f"layers {attending} of this model have attention: choose another {name('aggregate')}."
            ),
            option="aggregate",
            kind="unsupported",
        )
    if options.vectors:
        _check_vectors(options, layers, info)
    return AttentionPlan(layers, heads, embeddings, options, dtype, info)


def _check_vectors(options: AttendOptions, layers: Sequence[int], info: ModelInfo) -> None:
    """Check that the vectors of heads can be returned; raises OptionError."""
    if options.level == "word":
        raise OptionError(
            lambda name: (
                f'{name("level")} is "word", but the head vectors in {name("outputs")} are for single '
                f'tokens: set {name("level")} to "token", or request the vectors separately.'
            ),
            option="level",
            actual="word",
            allowed=["token"],
        )
    missing = next((one for one in options.vectors if one not in info.head_vectors), None)
    if missing is not None:
        raise OptionError(
            lambda name: (
                f'"{missing}" in {name("outputs")} needs the value vectors of tokens, but this model runs as '
                "an ONNX graph, which returns only their norms: leave it out, or serve the model's weights "
                'with PyTorch (HEADLIGHT_BACKEND="torch").'
            ),
            option="outputs",
            kind="unsupported",
        )
    sizes = {info.head_sizes[layer] for layer in layers}
    if len(sizes) > 1 and {"query", "key"} & {*options.vectors}:
        same = [layer for layer in layers if info.head_sizes[layer] == info.head_sizes[layers[0]]]
        raise OptionError(
            lambda name: (
                f"{name('layers')} have heads of {' and '.join(map(str, sorted(sizes)))} components, but all "
                f"vectors of a response must have one size: choose layers of one size, such as {same}."
            ),
            option="layers",
            actual=sorted(sizes),
        )
