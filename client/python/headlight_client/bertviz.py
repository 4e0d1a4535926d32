"""Converts attention maps for BertViz: https://github.com/jessevig/bertviz."""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_WHOLE = ("layer", "head", "query", "key")


class BertViz(NamedTuple):
    """The arguments of `bertviz.head_view` and `bertviz.model_view`, in order."""

    attention: list[Any]
    """One torch tensor per layer, (1, H, N, N), float32."""
    tokens: list[str]
    """N tokens, or words."""
    sentence_b_start: int | None
    """The first token of the second text of a pair."""

    def __repr__(self) -> str:
        shape = tuple(self.attention[0].shape) if self.attention else ()
        return (
            f"BertViz(attention={len(self.attention)} × {shape}, tokens={len(self.tokens)}, "
            f"sentence_b_start={self.sentence_b_start})"
        )


def to_bertviz(
    maps: NDArray[np.float32] | None,
    axes: Sequence[str],
    shown: tuple[list[int] | None, list[int] | None],
    names: Sequence[tuple[str, int, bool]],
) -> BertViz:
    """Convert maps, (L, H, Q, K), to BertViz's arguments; raises ValueError and ModuleNotFoundError.

    `shown` are the positions of the rows and of the columns in `names`: tokens or words, each with its
    segment id and whether it is special.
    """
    if maps is None or tuple(axes) != _WHOLE:
        raise ValueError(
            "BertViz shows complete maps of single heads: leave aggregate, edges, top_k, thumbnail and maps "
            "out of the request."
        )
    rows, columns = shown
    every = list(range(len(names)))
    ordinary = [i for i, (_, _, special) in enumerate(names) if not special]
    if rows is None or rows != columns or rows not in (every, ordinary):
        raise ValueError(
            "BertViz shows maps of all tokens or words, with or without the special ones: leave queries and "
            "keys out of the request."
        )
    try:
        torch = importlib.import_module("torch")  # BertViz stacks tensors; nothing else here needs torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError("BertViz requires torch tensors: install torch.") from None
    return BertViz(
        attention=[torch.tensor(layer)[None] for layer in maps],  # (1, H, N, N) each
        tokens=[names[i][0] for i in rows],
        sentence_b_start=next((at for at, i in enumerate(rows) if names[i][1] == 1), None),
    )
