"""Runs a batch on a table of token vectors: a text's vector is the mean of its tokens' vectors."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model.arrays import NUMPY
from model.checkpoints.folder import ModelFolder
from model.contract import Batch, ChunksWant, FloatArray, ModelInfo, Output, SentenceWant
from model.errors import OutOfMemory, Unsupported
from model.heads.chunks import finish_means
from model.heads.pooling import Bags
from model.heads.running import Heads, head_outputs
from model.heads.vectors import sentences
from model.lanes import choose_lanes, count_cores
from model.progress import Progress
from model.static.table import TokenTable

_BUDGET = 8192
"""Tokens: a batch of them takes a millisecond."""
_MEAN = ("mean",)
_PIECE = 512
"""How many tokens are added up in float32."""
_MOST_NUMBERS = 2**26
"""The most numbers of a text that is pooled as a whole."""


class StaticBackend:
    """A table of token vectors, ready to run. Safe to call from several threads at a time.

    It always runs on the CPU, with numpy. `dtype` may be "auto" or "float32", in which results are computed;
    the table keeps its own dtype. Raises Unsupported for any other.
    """

    def __init__(
        self, folder: ModelFolder, table: TokenTable, *, dtype: str = "auto", threads: int | None = None
    ) -> None:
        if dtype not in ("auto", "float32"):
            raise Unsupported(
                f"dtype is {dtype}, but {folder.path} is a table of token vectors, which is computed in "
                "float32: choose auto or float32.",
                field="dtype",
            )
        self.budget = _BUDGET
        self._table = table
        self._heads = Heads(NUMPY, folder.dense)
        self.use_threads(threads or count_cores())
        # There are no layers: hidden state 0, the tokens' vectors from the table, is also the last one.
        self.info: ModelInfo = replace(
            folder.describe(backend="static", device="cpu", dtype="float32", exposes_attention=False),
            layers=0,
            heads=0,
            weight_bytes=table.nbytes,
            parameters=table.rows.size,
            differentiable=False,
            interventions=(),
        )

    def use_threads(self, threads: int) -> None:
        """Run on this many cores from now on."""
        self.lanes = choose_lanes(threads)

    def cost(self, lengths: Sequence[int]) -> int:
        """Return the tokens: nothing is padded."""
        return sum(lengths)

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        """Run one packed batch; see `Backend.run`. The mean of no tokens is 0."""
        del lanes  # one thread reads the table as fast as memory is
        (progress or Progress()).check()
        try:
            return self._run(batch)
        except MemoryError as error:
            raise OutOfMemory(str(error)) from error

    def _run(self, batch: Batch) -> list[Output]:
        bounds = [*pairwise(batch.cu_seqlens.tolist())]
        wants = batch.wants

        def ids(i: int) -> NDArray[np.int64]:
            start, stop = bounds[i]
            return batch.input_ids[start:stop]

        def states(i: int) -> FloatArray:
            return self._table.vectors(ids(i))

        def pool(want: SentenceWant, members: list[int]) -> FloatArray:
            return np.stack([self._pool(ids(i), want) for i in members])

        vectors = sentences([want.sentence for want in wants], pool, self._heads.dense)
        heads = head_outputs(wants, states, ids, self._heads)
        return [
            Output(vectors.get(i), _of_layers(want.token_layers, partial(states, i)), heads=heads.get(i, {}))
            for i, want in enumerate(wants)
        ]

    def _pool(self, ids: NDArray[np.int64], want: SentenceWant) -> FloatArray:
        """Pool the vectors of one text's tokens (N,): (C′,), 0 for a text without tokens."""
        count = len(ids) - want.skip
        if count <= 0:
            return np.zeros(self._table.size * len(want.modes) * len(want.layers), np.float32)
        if want.modes == _MEAN and len(want.layers) == 1:
            # In pieces: vectors of a long text may take gigabytes, and their sum in float32 is not exact.
            starts = range(want.skip, len(ids), _PIECE)
            parts = [np.add.reduce(self._table.vectors(ids[at : at + _PIECE]), axis=0) for at in starts]
            total: FloatArray = np.add.reduce(parts, axis=0, dtype=np.float64).astype(np.float32)
            return total / np.float32(count)
        if len(ids) * self._table.size > _MOST_NUMBERS:
            raise OutOfMemory(
                f"pooling {len(ids)} tokens of {self._table.size} numbers at once takes too much memory"
            )
        states = self._table.vectors(ids)
        pooled: FloatArray = Bags([0], [len(states)], want.skip, NUMPY).pool(lambda _: states, want)[0]
        return pooled

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        """Make the vectors of chunks from the means of their tokens; see `Backend.finish`."""
        return finish_means(means, want, self._heads.dense)

    def trim_memory(self) -> None:
        """Do nothing: no memory is kept for later batches."""

    @property
    def prepares_short(self) -> bool:
        """True: a short text takes some microseconds, and no thread has to be woken for it."""
        return True

    def end_helpers(self) -> None:
        """Do nothing: there are no other threads."""


def _of_layers(layers: Sequence[int], states: "partial[FloatArray]") -> FloatArray | None:
    """Return the vectors of tokens once for each wanted layer, (layers, N, C); None if none is wanted."""
    return np.stack([states()] * len(layers)) if layers else None
