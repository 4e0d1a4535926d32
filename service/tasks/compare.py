"""How similar texts are to one text, or to each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from model.contract import FloatArray, Output, Similarity
from model.heads.similarity import similarity_blocks
from model.tokenization.tokenizer import Truncation

# This many products take less time than handing them to a thread.
_FEW_PRODUCTS = 2**18


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Texts to compare with `source`, or without it with each other."""

    texts: Sequence[str]
    source: str | None = None
    function: Similarity | None = None
    """The model's own if None."""
    task: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    truncation: Truncation = field(default_factory=Truncation)

    @property
    def every(self) -> list[str]:
        """The texts to encode, after the source if there is one."""
        return [*self.texts] if self.source is None else [self.source, *self.texts]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the similarities."""
        texts = len(self.texts)
        return (texts, texts) if self.source is None else (texts,)

    def place(self, index: int) -> str:
        """Name the option that has the text at an index of `every`."""
        first = self.source is not None
        return "source" if first and index == 0 else f"texts.{index - first}"


class Comparison:
    """The similarities of texts, computed some rows at a time."""

    def __init__(self, options: CompareOptions, function: Similarity, outputs: Sequence[Output]) -> None:
        vectors = np.stack([output.sentence for output in outputs if output.sentence is not None])
        sources = 0 if options.source is None else 1
        rows, others = vectors[: sources or None], vectors[sources:]
        self.short = len(rows) * others.size <= _FEW_PRODUCTS
        """Whether each step takes less time than handing it to a thread."""
        self._shape = options.shape
        self._similarities = np.empty((len(rows), len(others)), np.float32)
        self._blocks: Iterator[FloatArray] = similarity_blocks(function, rows, others)
        self._done = 0

    def step(self) -> bool:
        """Compute some rows; False if all were computed."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._similarities[self._done : self._done + len(block)] = block
        self._done += len(block)
        return True

    @property
    def similarities(self) -> FloatArray:
        """(texts,) with a source, otherwise (texts, texts)."""
        return self._similarities.reshape(self._shape)
