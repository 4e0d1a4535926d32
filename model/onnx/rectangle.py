"""Sequences that run together as a rectangle: what they feed a graph, and what they make of its answer."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract import AttentionWant, Batch, FloatArray, Output, SentenceWant, Want
from model.heads.vectors import pool, sentences
from model.inspection.array_layer import ArrayLayer, Listed
from model.inspection.array_summaries import summarize
from model.inspection.asking import Ask
from model.inspection.maps import Maps, Rollout
from model.onnx import names as graph

Array = NDArray[Any]
Arrays = dict[str, Array]

_NONE = np.zeros(0, np.int64)
_NO_CELLS = np.zeros((1, 1), np.int64)


class Rectangle:
    """Some sequences of a batch that ask for the same, padded to `length` tokens each."""

    def __init__(self, batch: Batch, members: Sequence[int], ask: Ask, length: int) -> None:
        self.members = members
        self.ask = ask
        self._wants = [batch.wants[i] for i in members]
        self._lengths = (batch.cu_seqlens[1:] - batch.cu_seqlens[:-1])[list(members)]
        self._real = np.arange(length) < self._lengths[:, None]  # (B, N)
        place = np.concatenate([np.arange(*batch.cu_seqlens[i : i + 2]) for i in members])
        self._input_ids, self._segment_ids = (
            self._laid_out(x[place]) for x in (batch.input_ids, batch.segment_ids)
        )
        self._wanting: dict[int, list[int]] = defaultdict(list)
        """Hidden state -> which of the members want it."""
        for i, want in enumerate(self._wants):
            sentence = want.sentence.layers if want.sentence is not None else ()
            for state in {*want.token_layers, *sentence}:
                self._wanting[state].append(i)

    def _laid_out(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        table = np.zeros(self._real.shape, np.int64)
        table[self._real] = tokens
        return table

    # --------------------------------------------------------------------------------------- in

    def tokens(self) -> Arrays:
        """The inputs that every exported BERT has, each int64 (B, N)."""
        return {
            graph.INPUT_IDS: self._input_ids,
            graph.ATTENTION_MASK: self._real.astype(np.int64),
            graph.TOKEN_TYPE_IDS: self._segment_ids,
        }

    def feed(self, layers: int) -> Arrays:
        """The inputs of one of our graphs."""
        feed = self.tokens()
        feed.update((graph.tokens(i), self._cells(i)) for i in range(layers + 1))
        cells = np.arange(self._real.size).reshape(self._real.shape)
        for i in range(layers):
            feed.update((name, _NONE) for name in graph.layer_inputs(i))
            feed[graph.cells(i)] = cells if i < self.ask.depth else _NO_CELLS
        every = np.arange(self._real.shape[1])
        for layer, heads, rows in self.ask.maps:
            feed[graph.heads(layer)] = np.array(heads, np.int64)
            feed[graph.rows(layer)] = every if rows is None else np.array(rows, np.int64)
        feed.update((graph.pair_heads(layer), np.array(heads, np.int64)) for layer, heads in self.ask.pairs)
        feed.update((graph.norm_heads(layer), np.array(heads, np.int64)) for layer, heads in self.ask.norms)
        return feed

    def _cells(self, state: int) -> NDArray[np.int64]:
        """List the tokens whose hidden state is wanted, sequence after sequence."""
        wanting = self._wanting.get(state)
        if wanting is None:
            return _NONE
        real = np.zeros_like(self._real)
        real[wanting] = self._real[wanting]
        return np.flatnonzero(real)

    @property
    def outputs(self) -> list[str]:
        """The names of what is fetched."""
        return [
            *(graph.state(state) for state in self._wanting),
            *(graph.attention(layer) for layer, *_ in self.ask.maps),
            *(name(layer) for layer, _ in self.ask.pairs for name in (graph.queries, graph.keys)),
            *(graph.value_norms(layer) for layer, _ in self.ask.norms),
        ]

    def choose_states(self, last: int, states: FloatArray) -> Arrays:
        """Make of the last hidden state of every cell, (B, N, C), what our graphs give of it."""
        return {graph.state(last): states.reshape(-1, states.shape[-1])[self._cells(last)]}

    # -------------------------------------------------------------------------------------- out

    def take(
        self, results: Mapping[str, Array], dense: Sequence[Callable[[FloatArray], FloatArray]]
    ) -> list[Output]:
        """Make the outputs of the members; `dense` are the layers that follow the pooling."""
        vectors = sentences(
            [want.sentence for want in self._wants], lambda *which: self._pool(results, *which), dense
        )
        return [
            replace(
                self._looked(i, want, results),
                sentence=vectors.get(i),
                tokens=self._states(i, want.token_layers, results),
            )
            for i, want in enumerate(self._wants)
        ]

    def _span(self, state: int, member: int) -> slice:
        """Say where a member's tokens lie among those whose hidden state was given."""
        wanting = self._wanting[state]
        place = wanting.index(member)
        start = int(self._lengths[wanting[:place]].sum())
        return slice(start, start + int(self._lengths[member]))

    def _states(self, member: int, layers: Sequence[int], results: Mapping[str, Array]) -> FloatArray | None:
        """Cut one sequence's hidden states out: (layers, N, C)."""
        if not layers:
            return None
        return np.stack([results[graph.state(i)][self._span(i, member)] for i in layers])

    def _pool(self, results: Mapping[str, Array], want: SentenceWant, some: list[int]) -> FloatArray:
        """Pool some of the members, which want the same: (members, C′)."""
        by_layer = {i: self._pool_layer(results, i, some, want) for i in set(want.layers)}
        return np.concatenate([by_layer[i] for i in want.layers], axis=-1)

    def _pool_layer(
        self, results: Mapping[str, Array], layer: int, some: list[int], want: SentenceWant
    ) -> FloatArray:
        hidden = results[graph.state(layer)]
        if some != self._wanting[layer]:
            hidden = np.concatenate([hidden[self._span(layer, i)] for i in some])
        return pool(hidden, self._lengths[some], want.skip, want.modes)

    def _looked(self, member: int, want: Want, results: Mapping[str, Array]) -> Output:
        """Compute what a sequence wants of its attention."""
        output = Output()
        if want.attention is None and want.summary is None:
            return output
        layers = self._layers(member, results)
        length = int(self._lengths[member])
        if want.attention is not None:
            output = _maps(want.attention, layers, length)
        if want.summary is not None:
            output = replace(output, summary=summarize(want.summary, layers, length))
        return output

    def _layers(self, member: int, results: Mapping[str, Array]) -> dict[int, ArrayLayer]:
        """Cut one sequence's attention out of every layer that was looked at."""
        n = self._lengths[member]
        layers: dict[int, ArrayLayer] = defaultdict(ArrayLayer)
        for number, heads, rows in self.ask.maps:
            weights = results[graph.attention(number)][member, :, :, :n]
            listed = None if rows is None else np.array(rows, np.int64)
            layers[number] = ArrayLayer(maps=Listed(np.array(heads, np.int64), (weights,)), rows=listed)
        for number, heads in self.ask.pairs:
            q, k = (results[name(number)][member, :, :n] for name in (graph.queries, graph.keys))
            layers[number] = replace(layers[number], pairs=Listed(np.array(heads, np.int64), (q, k)))
        for number, heads in self.ask.norms:
            norms = results[graph.value_norms(number)][member, :, :n]
            layers[number] = replace(layers[number], norms=Listed(np.array(heads, np.int64), (norms,)))
        return layers


def _maps(want: AttentionWant, layers: Mapping[int, ArrayLayer], length: int) -> Output:
    look = (Rollout if want.aggregate == "rollout" else Maps)(want, 1, length)
    for number in look.layers:
        look.look(number, layers[number])
    return look.of(0)
