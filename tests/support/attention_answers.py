"""Answers of `POST /attention` beside what they must be."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.references.attention import DEFAULTS, Text, Trace, axes, expect, trace
from tests.references.checkpoints import Reference
from tests.references.comparing import distance
from tests.support.serving import Json, Service, answered

Array = NDArray[np.float64]

TEXT = "the quick brown fox, unbelievably antidisestablishmentarian"
PAIR = ("Unbelievable antidisestablishmentarianism?", "Unbelievably so 🙂 naïve.")
SHORT = "the man beats"
"""Five tokens of the small random models."""

EXACT = 1e-5
ROUNDING = 1e-9
"""At most half a unit of the ninth decimal, and what a sum of a few of them makes of it."""


@dataclass(frozen=True)
class Subject:
    """A served model, and the same model as `transformers` runs it in float64."""

    service: Service
    reference: Reference
    model: str | None = None
    default_prompt: str = ""
    prompts: dict[str, str] = field(default_factory=dict)
    _traces: dict[Any, Trace] = field(default_factory=dict)

    def trace(self, text: Text, options: Json | None = None) -> Trace:
        """Run one input in the reference; what was run is kept."""
        options = options or {}
        prompt = options.get("prompt", self.prompts.get(options.get("prompt_name", ""), self.default_prompt))
        key = (text, prompt, options.get("truncation_side", "right"))
        if key not in self._traces:
            self._traces[key] = trace(self.reference, text, prompt=prompt, side=key[2])
        return self._traces[key]

    def ask(self, *texts: Text, **options: Any) -> Json:
        """The whole answer, with nine decimals unless told otherwise."""
        inputs = [text if isinstance(text, str) else list(text) for text in texts]
        named = {} if self.model is None else {"model": self.model}
        body = {"inputs": inputs, "decimals": 9, **named, **options}
        return answered(self.service.http.post("/attention", json=body))

    def check(self, *texts: Text, **options: Any) -> list[Json]:
        """Ask, and hold all of the answer to the reference; returns its items."""
        answer = self.ask(*texts, **options)
        assert answer["axes"] == axes(options)
        assert len(answer["data"]) == len(texts)
        tokens, lists = 0, edges_of_each(options.get("edges"))
        for index, (text, item) in enumerate(zip(texts, answer["data"], strict=True)):
            ran = self.trace(text, options)
            tokens += len(ran)
            assert item["index"] == index
            one = options | ({"edges": lists[index]} if lists else {})
            assert_item(item, expect(ran, one), DEFAULTS | options)
        assert answer["usage"] == {"input_tokens": tokens}
        items: list[Json] = answer["data"]
        return items


def edges_of_each(edges: Any) -> Any:
    """The edges of each input: those of a single one may stand without a list around them."""
    flat = edges and edges[0] and isinstance(edges[0][0], int | float)
    return [edges] if flat else edges


def nested(value: Any, shape: tuple[int, ...]) -> Array:
    """Nested lists as an array of this shape: also where there is nothing in them."""
    array = np.array(value, dtype=np.float64)
    if 0 in shape:
        assert value == np.zeros(shape).tolist()
        return array.reshape(shape)
    assert array.shape == shape, f"{array.shape} is not {shape}"
    assert np.isfinite(array).all()
    return array


def assert_item(item: Json, expected: Json, asked: Json) -> None:
    """Every member is there, none else, and each is right; embeddings are for others to check."""
    numbers = {"attention", "thumbnails", "values", "summary", "largest", "ties"}
    names = set(expected) - {"values", "largest", "ties"}
    if "values" in expected:
        names |= {"top_keys", "top_weights", "residual"}
    outputs = {
        {"sentence": "embedding", "tokens": "token_embeddings"}[name] for name in asked.get("outputs", [])
    }
    assert set(item) == names | outputs | {"index"}
    for name in set(expected) - numbers:
        assert item[name] == expected[name], name
    for name in {"attention", "thumbnails"} & set(expected):
        values = expected[name]
        found = nested(item[name], values.shape)
        assert distance(found, values) <= tolerance(values, expected["largest"]) + ROUNDING
    if "values" in expected:
        assert_top_k(item, expected, asked["top_k"])
    if "summary" in expected:
        assert_summary(item["summary"], expected["summary"], expected["ties"])


def tolerance(values: Array, largest: float) -> float:
    """1e-5 of the largest number there is, or of 1."""
    return EXACT * max(1.0, float(largest), float(np.abs(values).max(initial=0.0)))


def assert_summary(found: Json, expected: dict[str, Array], ties: Array) -> None:
    """The statistics by their names, in the contract's order; where tied rows are largest is left open."""
    assert list(found) == list(expected)
    for name, values in expected.items():
        array = nested(found[name], values.shape)
        open_ = ties if name.startswith("argmax") else 0
        assert (np.abs(array - values) <= open_ + tolerance(values, 1.0) + ROUNDING).all(), name


def assert_top_k(item: Json, expected: Json, k: int) -> None:
    """Each row has its k largest values, largest first, under the keys they belong to, and the rest's sum.

    Which key is first of two that are closer to each other than the tolerance is left open here.
    """
    values, labels = expected["values"], expected["keys"]
    shape = (*values.shape[:-1], min(int(k), values.shape[-1]))
    keys, weights = nested(item["top_keys"], shape), nested(item["top_weights"], shape)
    residual = nested(item["residual"], values.shape[:-1])
    bound = tolerance(values, expected["largest"]) + ROUNDING
    for at in np.ndindex(values.shape[:-1]):
        row, left = values[at], list(zip(labels, values[at], strict=True))
        assert distance(weights[at], np.sort(row)[::-1][: shape[-1]]) <= bound
        assert (np.diff(weights[at]) <= 0).all()
        for key, weight in zip(keys[at], weights[at], strict=True):
            near = [one for one in left if one[0] == key and abs(one[1] - weight) <= bound]
            assert near, f"{key} has no such value in the row {at}, or not twice"
            left.remove(near[0])
        others = np.array([value for _, value in left])
        sums = bound * max(1.0, float(np.abs(others).sum()))
        assert abs(residual[at] - others.sum()) <= sums
