"""The parsed answers of `/explain`, as arrays, data frames and coloured words."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headlight_client.answers import FloatArray, IntArray, Json, Tokens, token_columns
from headlight_client.frames import Row, data_frame, matrix_frame

# Blue adds to the score, red takes from it: told apart with every kind of colour vision.
_MORE, _LESS = "33, 102, 220", "220, 60, 40"


@dataclass(frozen=True, eq=False)
class Units:
    """The words, sentences or tokens that an explanation speaks of: U, those of the first text first."""

    text: list[str]
    """For special and prompt tokens, the token; "bias" for what layers after the pooling add."""
    offsets: IntArray
    """(U, 2): [start, end) in the unit's text, as for Python slices; 0, 0 for special and prompt tokens."""
    segment: IntArray
    """(U,): the text of a pair that each is of, 0 or 1."""
    token_spans: IntArray
    """(U, 2): its tokens, [first, after)."""

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True, eq=False, repr=False)
class Explained(Tokens):
    """What makes the score of one input; in a notebook it shows the words, coloured by what they add to it.

    One of `parts`, `attributions` and `heads` is there, by the method of the call.
    """

    score: float
    """What is explained: a similarity, or a logit."""
    function: str | None
    """How the two texts are compared."""
    label: str | None
    """The label whose logit it is."""
    token: int | None
    """The position of the token that has the label."""
    probability: float | None
    """The score of the label in `predict`."""
    sigmoid: float | None
    """Of a cross-encoder's logit."""
    replacement: str | None
    """What the tokens of a unit became: "mask", or "remove"."""
    baseline: str | None
    """With method="gradient": the token in the place of those of the texts, "mask" or "padding"."""
    baseline_scores: list[float] | None
    """The score of the baseline; of two texts that run apart, one of each, beside the whole other text."""
    residual: float | None
    """What `attributions` miss of `score` less each of `baseline_scores`, added up."""
    units: Units | None
    """Those of both texts; None with method="heads"."""
    parts: FloatArray | None
    """(units of the first text, units of the second), with the sum `score`."""
    attributions: FloatArray | None
    """(U,): `score` less the score without the unit; with "gradient", what it adds to the baseline's."""
    heads: FloatArray | None
    """(L, H): `score` less the score without the head."""
    faithfulness: dict[str, FloatArray] | None
    """With `faithfulness`: comprehensiveness and sufficiency for each of `shares`, and of random units."""

    @property
    def by_unit(self) -> FloatArray:
        """What each unit adds, (U,): the attributions, or the sums of its parts.

        Raises ValueError for an explanation by heads.
        """
        if self.attributions is not None:
            return self.attributions
        if self.parts is None:
            raise ValueError('An explanation with method="heads" has no units.')
        return np.concatenate([self.parts.sum(1), self.parts.sum(0)])

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame: the matrix of parts, a row for each unit, or the matrix of heads.

        Raises ModuleNotFoundError without pandas.
        """
        if self.heads is not None:
            return matrix_frame(self.heads, None, None)
        if self.parts is not None and self.units is not None:
            rows = self.parts.shape[0]
            return matrix_frame(self.parts, self.units.text[:rows], self.units.text[rows:])
        return data_frame([{name: row[name] for name in row if name != "index"} for row in self._rows()])

    def _rows(self) -> list[Row]:
        """The rows of `Answer.to_pandas`: one for each head, for each unit, or for each pair of units."""
        if self.heads is not None:
            return [
                {"index": self.index, "layer": i, "head": j, "effect": float(effect)}
                for (i, j), effect in np.ndenumerate(self.heads)
            ]
        texts = [] if self.units is None else self.units.text
        if self.parts is not None:
            first = len(self.parts)
            return [
                {"index": self.index, "unit": texts[i], "other": texts[first + j], "part": float(part)}
                for (i, j), part in np.ndenumerate(self.parts)
            ]
        return [
            {
                "index": self.index,
                "unit": text,
                "segment": segment,
                "start": start,
                "end": end,
                "effect": effect,
            }
            for text, segment, start, end, effect in self._columns()
        ]

    def _columns(self) -> Iterator[tuple[str, int, int, int, float]]:
        """Yield of each unit its text, segment, start, end, and what it adds."""
        if self.units is not None:
            units = self.units
            columns = (units.segment.tolist(), *units.offsets.T.tolist(), self.by_unit.tolist())
            yield from zip(units.text, *columns, strict=True)

    def _more(self) -> list[str]:
        shown = [f"score={self.score:.4g}"]
        shown += [] if self.label is None else [f"label={self.label!r}"]
        shown += [] if self.units is None else [f"units={len(self.units)}"]
        return shown + super()._more()

    def _repr_html_(self) -> str:
        """Show the words of each text in the colour of what they add, or the grid of heads."""
        name = self.label or self.function or "score"
        title = f"<div><b>{html.escape(name)}</b> {self.score:.4g}</div>"
        body = self._grid(self.heads) if self.heads is not None else self._texts()
        return f'<div style="font-family: sans-serif; line-height: 1.9">{title}{body}</div>'

    def _texts(self) -> str:
        columns = list(self._columns())
        largest = max((abs(effect) for *_, effect in columns), default=0.0)
        texts: dict[int, list[str]] = {}
        ends: dict[int, int] = {}
        for text, segment, start, end, effect in columns:
            words = texts.setdefault(segment, [])
            if words and not (end and start == ends[segment]):
                words.append(" ")
            words.append(_coloured("span", text, effect, largest))
            ends[segment] = end
        return "".join(f"<p>{''.join(texts[segment])}</p>" for segment in sorted(texts))

    @staticmethod
    def _grid(heads: FloatArray) -> str:
        largest = float(np.abs(heads).max(initial=0))
        rows = [
            f"<tr><th>{layer}</th>{''.join(_coloured('td', '', float(x), largest) for x in row)}</tr>"
            for layer, row in enumerate(heads)
        ]
        numbers = "".join(f"<th>{head}</th>" for head in range(heads.shape[1]))
        return f"<table><tr><th></th>{numbers}</tr>{''.join(rows)}</table>"


def _coloured(tag: str, text: str, effect: float, largest: float) -> str:
    """Write an element whose colour says how much it adds, and whose title says it as a number."""
    colour = _MORE if effect >= 0 else _LESS
    share = abs(effect) / largest if largest else 0.0
    style = f"background: rgba({colour}, {0.75 * share:.2f}); padding: 2px"
    return f'<{tag} title="{effect:+.4g}" style="{style}">{html.escape(text)}</{tag}>'


def explained(item: Json, _axes: Sequence[str], scale: float) -> Explained:
    """Parse an item of `/explain`; raises KeyError, TypeError or ValueError if it is invalid."""
    units, faithful = item.get("units"), item.get("faithfulness")
    of_score = ("function", "label", "token", "probability", "sigmoid")
    of_method = ("replacement", "baseline", "baseline_scores", "residual")
    more: dict[str, Any] = {name: item.get(name) for name in (*of_score, *of_method)}
    found = None if units is None else _units(units)
    parts, attributions, heads = (_floats(item.get(name)) for name in ("parts", "attributions", "heads"))
    counts = {len(array.shape) for array in (parts, heads) if array is not None}
    values = (0 if parts is None else sum(parts.shape)) + (0 if attributions is None else len(attributions))
    if counts - {2} or values != (0 if found is None else len(found)):
        raise ValueError("its arrays do not have the shapes that its units say")
    return Explained(
        **token_columns(item, scale),
        score=float(item["score"]),
        **more,
        units=found,
        parts=parts,
        attributions=attributions,
        heads=heads,
        faithfulness=None
        if faithful is None
        else {name: np.asarray(x, np.float32) for name, x in faithful.items()},
    )


def _units(units: Json) -> Units:
    text = list(units["text"])
    return Units(
        text,
        np.asarray(units["offsets"], np.int64).reshape(len(text), 2),
        np.asarray(units["segment"], np.int64).reshape(len(text)),
        np.asarray(units["token_spans"], np.int64).reshape(len(text), 2),
    )


def _floats(value: Any) -> FloatArray | None:
    return None if value is None else np.asarray(value, np.float32)
