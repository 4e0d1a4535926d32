"""Attention maps as BertViz takes them: https://github.com/jessevig/bertviz."""

import importlib
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from service.client_answers import AttentionMaps

_WHOLE = ("layer", "head", "query", "key")


class BertViz(NamedTuple):
    """The arguments of `bertviz.head_view` and `bertviz.model_view`, in their order."""

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


def to_bertviz(item: "AttentionMaps") -> BertViz:
    """See `AttentionMaps.to_bertviz`."""
    maps, names = item.attention, item.tokens if item.words is None else item.words
    if maps is None or item.axes != _WHOLE:
        raise ValueError(
            "BertViz shows the whole map of each head: leave aggregate, top_k and maps out of the request."
        )
    segments, special = _of_names(item)
    every = list(range(len(names)))
    ordinary = [i for i in every if not special[i]]
    shown = item.queries
    if shown is None or shown != item.keys or shown not in (every, ordinary):
        raise ValueError(
            "BertViz shows a row and a column for each token or word, with or without the special ones: "
            "leave queries and keys out of the request."
        )
    try:
        torch = importlib.import_module("torch")  # BertViz stacks tensors; nothing else here needs torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError("BertViz reads torch tensors: install torch, as it says itself.") from None
    second = np.flatnonzero(np.asarray(segments)[shown] == 1)
    return BertViz(
        attention=[torch.tensor(layer)[None] for layer in maps],  # (1, H, N, N) each
        tokens=[names[i] for i in shown],
        sentence_b_start=int(second[0]) if second.size else None,
    )


def _of_names(item: "AttentionMaps") -> tuple[list[int], list[bool]]:
    """Say of each token, or word, which text of a pair it is in, and whether it is special."""
    segments, special = item.segment_ids.tolist(), item.special.tolist()
    if item.words is None:
        return segments, special
    # A token that belongs to no word, special or of a prompt, is a word of its own.
    keys = [
        (s, w, -1 if w is not None else i)
        for i, (s, w) in enumerate(zip(segments, item.word_ids, strict=True))
    ]
    firsts = [next(pieces)[0] for _, pieces in groupby(enumerate(keys), key=lambda token: token[1])]
    return [segments[i] for i in firsts], [special[i] for i in firsts]
