"""The plan for one input, and the sequences that run for the plans of a request."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from numpy.typing import NDArray

from model.contract import Encoding, Output, Want
from service.engine.engine import Arrivals
from service.tasks.chunking.windows import Finish, WindowedChunks
from service.tasks.precision import Precision, quantize
from service.tasks.results import SUMMARY, VECTORS, Expected, Item


@dataclass(slots=True)
class View:
    """What must be computed for one input, and the columns of its response item."""

    want: Want
    columns: Mapping[str, Any]
    expected: Expected
    precision: Precision = field(default="float32", kw_only=True)
    """The precision of the item's vectors."""
    finish: Callable[[Item], Item] | None = field(default=None, kw_only=True)
    """Turns the item, whose arrays include those of the wanted heads, into the one that is returned."""
    windowed: WindowedChunks | None = field(default=None, kw_only=True)
    """The chunks of a text that is read in windows; `want` is then that of the truncated text."""

    def then(self, finish: Callable[[Item], Item]) -> "View":
        """Return the view with a further step that its item goes through."""
        before = self.finish
        return replace(self, finish=finish if before is None else lambda item: finish(before(item)))

    def item(self, output: Output) -> Item:
        """Build this input's response item."""
        found: dict[str, NDArray[Any] | None] = {
            "embedding": output.sentence,
            "token_embeddings": output.tokens,
            "attention": output.attention,
        }
        if output.top is not None:
            top = output.top
            found |= {"top_keys": top.keys, "top_weights": top.weights, "residual": top.residual}
        found |= {"thumbnails": output.thumbnails, **output.heads}
        if output.summary is not None:
            found |= {SUMMARY + name: array for name, array in output.summary.items()}
        arrays = {name: array for name, array in found.items() if array is not None}
        if self.precision != "float32":
            arrays |= {name: quantize(arrays[name], self.precision) for name in VECTORS & arrays.keys()}
        item = Item(self.columns, arrays)
        return item if self.finish is None else self.finish(item)


class Sequences:
    """What runs for the views of a request: a sequence for each, or several for a text read in windows.

    `finish` is the backend's.
    """

    def __init__(self, encodings: Sequence[Encoding], views: Sequence[View], finish: Finish) -> None:
        self._views = views
        self._finish = finish
        self.windowed = any(view.windowed is not None for view in views)
        self.encodings: Sequence[Encoding] = encodings
        self.wants = [view.want for view in views]
        if self.windowed:
            self._spread()

    def _spread(self) -> None:
        """Replace each text that is read in windows by its windows."""
        self._inputs = self.encodings
        runs = [
            [(encoding, view.want)] if view.windowed is None else view.windowed.sequences(view.want)
            for encoding, view in zip(self.encodings, self._views, strict=True)
        ]
        self.encodings = [encoding for run in runs for encoding, _ in run]
        self.wants = [want for run in runs for _, want in run]
        self._firsts = [*accumulate(map(len, runs), initial=0)]
        self._owners = [index for index, run in enumerate(runs) for _ in run]
        self._waiting: dict[int, list[Output | None]] = {}

    @property
    def read(self) -> list[Encoding]:
        """The tokens of each input that are read for the parts of its item that concern the whole input."""
        return [
            view.windowed.windows.truncated if view.windowed and view.columns.get("truncated") else one
            for one, view in zip(self._inputs, self._views, strict=True)
        ]

    def items(self, outputs: Sequence[Output]) -> Iterator[Item]:
        """Build the items of all outputs, in order."""
        for index, view in enumerate(self._views):
            if self.windowed:
                first, after = self._firsts[index : index + 2]
                yield self._joined(view, outputs[first:after])
            else:
                yield view.item(outputs[index])

    def item(self, index: int, output: Output) -> Item:
        """Build the item of a view whose outputs have all arrived; `output` was the last one."""
        found = self._waiting.pop(index) if self.windowed else [output]
        return self._joined(self._views[index], [one for one in found if one is not None])

    async def gathered(self, stream: AsyncGenerator[Arrivals, None]) -> AsyncGenerator[Arrivals, None]:
        """Yield the last output of each view, with the view's index, once all of them have arrived."""
        async with aclosing(stream):
            async for arrived in stream:
                complete = [found for one in arrived.outputs if (found := self._complete(*one))]
                if complete:
                    yield replace(arrived, outputs=complete)

    def _complete(self, number: int, output: Output) -> tuple[int, Output] | None:
        index = self._owners[number]
        first, after = self._firsts[index : index + 2]
        waiting = self._waiting.setdefault(index, [None] * (after - first))
        waiting[number - first] = output
        return None if any(one is None for one in waiting) else (index, output)

    def _joined(self, view: View, outputs: Sequence[Output]) -> Item:
        if view.windowed is None:
            return view.item(outputs[0])
        return view.item(view.windowed.join(outputs, view.want, self._finish))
