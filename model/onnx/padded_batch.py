"""Sequences that run together, padded to one length: builds a graph's inputs and reads its outputs."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY
from model.contract import Batch, FloatArray, Output, SentenceWant, Want
from model.encoder.config import EncoderConfig
from model.encoder.interventions import EdgeWords
from model.heads.pooling import Bags
from model.heads.running import Heads, head_outputs
from model.heads.vectors import sentences
from model.inspection.lens import lenses_of
from model.inspection.statistics import StatisticsObserver
from model.inspection.vectors import AttentionObserver, joined, observers
from model.onnx import names as graph
from model.onnx.changes import feed_changes
from model.onnx.fetches import Fetches, is_changed
from model.onnx.graph_layer import FetchedHeads, GraphLayer
from model.progress import Progress

Array = NDArray[Any]
Arrays = dict[str, Array]

_NONE = np.zeros(0, np.int64)
_BY_DISTANCE = {
    graph.position_bias: "bias",
    graph.position_keys: "position_keys",
    graph.position_queries: "position_queries",
}
"""The outputs by distance, and the fields of a `GraphLayer` that they fill."""
_NO_CELLS = np.zeros((1, 1), np.int64)


class PaddedBatch:
    """Some sequences of a batch with the same fetches, padded to `length` tokens each.

    `config` is that of the graph's encoder.
    """

    def __init__(
        self, batch: Batch, members: Sequence[int], fetches: Fetches, length: int, config: EncoderConfig
    ) -> None:
        self.members = members
        self._config = config
        self.fetches = fetches
        self._wants = [batch.wants[i] for i in members]
        self._lengths = (batch.cu_seqlens[1:] - batch.cu_seqlens[:-1])[list(members)]
        self._real = np.arange(length) < self._lengths[:, None]  # (B, N)
        hidden = np.array([batch.unattended[i] for i in members] if batch.unattended else 0, np.int64)
        self._attended = np.arange(length) < (self._lengths - hidden)[:, None]  # (B, N)
        tokens = np.concatenate([np.arange(*batch.cu_seqlens[i : i + 2]) for i in members])
        self._input_ids, self._segment_ids = (
            self._laid_out(x[tokens]) for x in (batch.input_ids, batch.segment_ids)
        )
        self._wanting: dict[int, list[int]] = defaultdict(list)
        """Hidden state -> indices of the members that want it."""
        for i, want in enumerate(self._wants):
            for state in want.states(config.num_layers):
                self._wanting[state].append(i)

    def _laid_out(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        table = np.zeros(self._real.shape, np.int64)
        table[self._real] = tokens
        return table

    # --------------------------------------------------------------------------------------- in

    def tokens(self) -> Arrays:
        """Return the inputs that every exported BERT has, each int64 (B, N)."""
        return {
            graph.INPUT_IDS: self._input_ids,
            graph.ATTENTION_MASK: self._attended.astype(np.int64),
            graph.TOKEN_TYPE_IDS: self._segment_ids,
        }

    def feed(self) -> Arrays:
        """Return all inputs of a graph that headlight exported."""
        feed, config = self.tokens(), self._config
        feed.update((graph.tokens(i), self._cells(i)) for i in range(config.num_layers + 1))
        feed.update((name, _NONE) for i in config.attending for name in graph.layer_lists(i))
        cells = np.arange(self._real.size).reshape(self._real.shape)
        for i in range(config.num_layers):
            feed[graph.cells(i)] = cells if i < self.fetches.depth else _NO_CELLS
        if graph.reads_sequence_mask(config):
            feed[graph.SEQUENCE_MASK] = self._real.astype(np.int64)
        every = np.arange(self._real.shape[1])
        for layer, heads, rows in self.fetches.maps:
            feed[graph.heads(layer)] = np.array(heads, np.int64)
            feed[graph.rows(layer)] = every if rows is None else np.array(rows, np.int64)
        for layer, heads, _ in self.fetches.pairs:
            feed[graph.pair_heads(layer)] = np.array(heads, np.int64)
        for layer, heads, _ in self.fetches.norms:
            feed[graph.norm_heads(layer)] = np.array(heads, np.int64)
        if self.is_changed:
            changes = [want.interventions for want in self._wants]
            depth, layers = self.fetches.depth, config.attending
            feed |= feed_changes(changes, self._real, depth, layers=layers, heads=config.num_heads)
        return feed

    @property
    def is_changed(self) -> bool:
        """Whether the run of some member is changed."""
        return any(map(is_changed, self._wants))

    def _cells(self, state: int) -> NDArray[np.int64]:
        """List the cells of the tokens whose hidden state is wanted, one sequence after another."""
        wanting = self._wanting.get(state)
        if wanting is None:
            return _NONE
        real = np.zeros_like(self._real)
        real[wanting] = self._real[wanting]
        return np.flatnonzero(real)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs to fetch."""
        return [
            *(graph.state(state) for state in self._wanting),
            *(graph.attention(layer) for layer, *_ in self.fetches.maps),
            *(name(layer) for layer, *_ in self.fetches.pairs for name in self._pair_outputs),
            *(graph.value_norms(layer) for layer, *_ in self.fetches.norms),
        ]

    @property
    def _pair_outputs(self) -> tuple[Callable[[int], str], ...]:
        """The names of the outputs from which scores are computed."""
        return (graph.queries, graph.keys, *graph.by_distance(self._config))

    def choose_states(self, last: int, states: FloatArray) -> Arrays:
        """Select the wanted tokens from (B, N, C), as a graph exported by headlight does itself."""
        return {graph.state(last): states.reshape(-1, states.shape[-1])[self._cells(last)]}

    # -------------------------------------------------------------------------------------- out

    def take(self, results: Mapping[str, Array], heads: Heads, progress: Progress) -> list[Output]:
        """Compute the outputs of the members; `heads` are what the model has above its encoder.

        Observed blocks of attention count as steps of `progress`; raises Stopped if it is to stop.
        """
        vectors = sentences(
            [want.sentence for want in self._wants], lambda *which: self._pool(results, *which), heads.dense
        )
        predicted = head_outputs(
            self._wants,
            lambda i: self._state(i, self._config.num_layers, results),
            lambda i: self._input_ids[i, : self._lengths[i]],
            heads,
        )
        lenses = lenses_of(
            [want.lens for want in self._wants],
            lambda i, layer: self._state(i, layer, results),
            self._config.num_layers,
            heads,
            progress,
        )
        return [
            joined(
                Output(
                    vectors.get(i),
                    self._states(i, want.token_layers, results),
                    heads=predicted.get(i, {}) | lenses.get(i, {}),
                ),
                self._observe(i, want, results, progress),
            )
            for i, want in enumerate(self._wants)
        ]

    def _span(self, state: int, member: int) -> slice:
        """Return where a member's tokens are among those whose hidden state was returned."""
        wanting = self._wanting[state]
        index = wanting.index(member)
        start = int(self._lengths[wanting[:index]].sum())
        return slice(start, start + int(self._lengths[member]))

    def _states(self, member: int, layers: Sequence[int], results: Mapping[str, Array]) -> FloatArray | None:
        """Extract one sequence's hidden states: (layers, N, C)."""
        if not layers:
            return None
        return np.stack([self._state(member, i, results) for i in layers])

    def _state(self, member: int, layer: int, results: Mapping[str, Array]) -> FloatArray:
        """Extract one hidden state of one sequence: (N, C)."""
        return results[graph.state(layer)][self._span(layer, member)]

    def _pool(self, results: Mapping[str, Array], want: SentenceWant, some: list[int]) -> FloatArray:
        """Pool some members with the same want: (members, C′)."""
        if graph.SENTENCE in results:
            vectors: FloatArray = results[graph.SENTENCE][some]
            return vectors

        def read(layer: int) -> Array:
            hidden = results[graph.state(layer)]
            if some == self._wanting[layer]:
                return hidden
            return np.concatenate([hidden[self._span(layer, i)] for i in some])

        lengths = self._lengths[some].tolist()
        return Bags([0, *accumulate(lengths[:-1])], lengths, want.skip, NUMPY).pool(read, want)

    def _observe(self, member: int, want: Want, results: Mapping[str, Array], progress: Progress) -> Output:
        """Compute the attention results that a sequence wants."""
        output = Output()
        if want.attention is None and want.summary is None:
            return output
        layers = self._layers(member, want, results, progress)
        length = int(self._lengths[member])
        if want.attention is not None:
            for one in observers(want.attention, 1, length, NUMPY):
                _observe_layers(one, layers)
                output = joined(output, one.output(0))
        if want.summary is not None:
            statistics = StatisticsObserver(want.summary, 1, length, NUMPY)
            _observe_layers(statistics, layers)
            output = replace(output, summary=statistics.output(0))
        return output

    def _layers(
        self, member: int, want: Want, results: Mapping[str, Array], progress: Progress
    ) -> dict[int, GraphLayer]:
        """Extract one sequence's attention from every fetched layer."""
        n, longest = self._lengths[member], self._real.shape[1]
        layers = _Layers(self._config, progress)
        edges = EdgeWords(want.interventions.edges if want.interventions is not None else (), n)
        for number, heads, rows in self.fetches.maps:
            weights = results[graph.attention(number)][member, :, :, :n]
            listed = None if rows is None else np.array(rows, np.int64)
            maps = FetchedHeads(np.array(heads, np.int64), (weights,))
            layers[number] = replace(layers[number], maps=maps, rows=listed)
        for number, heads, _ in self.fetches.pairs:
            q, k = (results[name(number)][member, :, :n] for name in (graph.queries, graph.keys))
            listed = np.array(heads, np.int64)
            near = slice(longest - n, longest + n - 1)
            fetched: dict[str, Any] = {
                field: FetchedHeads(listed, (results[name(number)][..., near],))
                for name, field in _BY_DISTANCE.items()
                if name(number) in results
            }
            fetched |= {"pairs": FetchedHeads(listed, (q, k)), "edges": edges.layer(number) or None}
            layers[number] = replace(layers[number], **fetched)
        for number, heads, _ in self.fetches.norms:
            norms = results[graph.value_norms(number)][member, :, :n]
            layers[number] = replace(layers[number], norms=FetchedHeads(np.array(heads, np.int64), (norms,)))
        return layers


class _Layers(dict[int, GraphLayer]):
    """The layers of a sequence; one that was not fetched is empty."""

    def __init__(self, config: EncoderConfig, progress: Progress) -> None:
        super().__init__()
        self._config = config
        self._progress = progress

    def __missing__(self, number: int) -> GraphLayer:
        """Make an empty layer."""
        config = self._config
        self[number] = layer = GraphLayer(
            similarity=config.similarity,
            scale=config.scale,
            causal=config.causal,
            window=config.layer(number).window,
            progress=self._progress,
        )
        return layer


def _observe_layers(
    observer: AttentionObserver | StatisticsObserver, layers: Mapping[int, GraphLayer]
) -> None:
    for number in observer.layers:
        observer.observe(number, layers[number])
