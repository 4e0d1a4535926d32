"""What a page holds that needs no service: the maps of an input, as its explorer asks for them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from headlight_client.answers import AttentionMaps
from headlight_client.client import Headlight
from headlight_client.errors import HeadlightError
from headlight_client.notebook.page import LARGEST_FILE, packed, too_large

LARGEST_SAVED = 1_000_000
"""Bytes of the maps that a notebook is saved with: servers of notebooks cut off what sends 3 MB in 3 s."""
_LARGEST_ANSWERS = 250_000
"""Bytes of explanations and scores beside them."""
_MOST_ANSWERS = 50
_LARGEST_WHOLE = 1024
"""Tokens up to which the explorer reads whole maps, and has thumbnails."""
_THUMBNAIL = 64
_SMALL_THUMBNAIL = 32
_PAGE_BYTES = 300_000
"""The explorer without maps."""
_SUBJECT = ("text", "pair", "model", "prompt", "weights", "level", "special", "ablated")
"""The fields that say which maps these are."""


class Keeper:
    """Keeps what a notebook is saved with in step with what is shown."""

    def __init__(self, client: Headlight) -> None:
        self._client = client
        self._last: tuple[Mapping[str, Any], dict[str, Any]] | None = None
        self._answers: dict[str, Any] = {}
        """What other routes answered the page, by path and body, the last one last."""

    def keep(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read what is shown, unless it is there; None if the service does not give it, as the page says."""
        if not state.get("text") and not state.get("pair"):
            return None
        if self._last is None or not _holds(*self._last, state):
            try:
                self._last = dict(state), Input(self._client, state).saved(LARGEST_SAVED)
            except (HeadlightError, ValueError):
                return None
        data = self._last[1]
        own = {"model": data["state"]["model"]}
        if len(data["layers"]) < data["info"]["models"][0]["layers"] and not state.get("heads"):
            own["heads"] = data["state"].get("heads")
        return {**data, "state": {**state, **own}, "answers": self._recent_answers(state)}

    def add_answer(self, question: str, answer: Any) -> None:
        """Keep what the service answered to a question, its path and body; the oldest answers are dropped."""
        self._answers.pop(question, None)
        self._answers[question] = answer
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def _recent_answers(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The last answers about the text, within their bound."""
        text = json.dumps(state.get("text", ""), ensure_ascii=False)
        recent: dict[str, Any] = {}
        left = _LARGEST_ANSWERS
        for question, answer in reversed(self._answers.items()):
            left -= len(json.dumps(answer))
            if left >= 0 and text in question:
                recent[question] = answer
        return recent


def _holds(held: Mapping[str, Any], data: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Whether data that was read for a state has the maps of another."""
    if any(held.get(name) != state.get(name) for name in _SUBJECT):
        return False
    wanted = _chosen_layers(state)
    # Of many layers, or of a long text, not all fit: to read them again would give no others.
    return wanted == _chosen_layers(held) or {*wanted} <= {item["layers"][0] for item in data["layers"]}


def _chosen_layers(state: Mapping[str, Any]) -> list[int]:
    """The layers of the chosen heads, that of the current one first."""
    return list(dict.fromkeys(layer for layer, _ in reversed(state.get("heads", ()))))


class Input:
    """The text or pair of a state, of which maps are asked as the explorer asks."""

    def __init__(self, client: Headlight, state: Mapping[str, Any]) -> None:
        """Read `/info`. Raises ValueError if the service has no such model, and HeadlightError."""
        self._client, self._state = client, state
        document = client.info().document
        shown = [model for model in document["models"] if _shows_all(model)]
        found = [model for model in shown if model["name"] == state.get("model", model["name"])]
        if not found:
            names = ", ".join(model["name"] for model in shown) or "none"
            raise ValueError(
                f"model is {state.get('model')!r}: the models that show their attention are {names}."
            )
        self._model = found[0]
        self._info = {**document, "models": [self._model]}
        self._fields = {"model": self._model["name"], **_prompt(state.get("prompt"))}

    def page(self, layers: Literal["all"] | Sequence[int]) -> dict[str, Any]:
        """The data of a page with some layers; raises ValueError if it would have more than 25 MB."""
        first, tokens = self._overview(_THUMBNAIL)
        chosen = list(range(self._model["layers"]) if layers == "all" else layers)
        thumbnails = 0 if first.thumbnails is None else first.thumbnails.size
        size = _PAGE_BYTES + thumbnails * 2 * 4 / 3 + len(chosen) * self._layer_bytes(first)
        if size > LARGEST_FILE:
            raise too_large(size)
        return self._data(first, tokens, chosen)

    def saved(self, limit: int) -> dict[str, Any]:
        """The data of a page whose maps have at most `limit` bytes.

        That is all layers; or as many as fit, those of the chosen heads first, the current one before all; or
        thumbnails and statistics of all heads alone; or without thumbnails.
        """
        first, tokens = self._overview(_SMALL_THUMBNAIL)
        if first.thumbnails is not None and first.thumbnails.size * 2 * 4 / 3 > limit:
            first, tokens = self._overview(None)
        left = limit - (0 if first.thumbnails is None else first.thumbnails.size * 2 * 4 / 3)
        fitting = int(left // self._layer_bytes(first))
        every = list(range(self._model["layers"]))
        if fitting >= len(every):
            return self._data(first, tokens, every)
        chosen = _chosen_layers(self._state) or [_clearest_head(first, every)[0]]
        wanted = [layer for layer in chosen if layer in every]
        return self._data(first, tokens, sorted(wanted[:fitting]))

    def _overview(self, thumbnail: int | None) -> tuple[AttentionMaps, int]:
        """Tokens, statistics, and unless the input is long thumbnails; and how many tokens ran."""
        common: dict[str, Any] = {
            **self._fields,
            **_overview_weights(self._state),
            **_ablation(self._state, self._model["layers"] - 1),
            "summary": True,
        }
        if thumbnail is not None:
            maps = {**common, "thumbnail": thumbnail, "dtype": "float16"}
            if self._model["max_length"] <= _LARGEST_WHOLE or self._tokens() <= _LARGEST_WHOLE:
                answer = self._client.attention(self._inputs, **maps)
                return answer[0], answer.usage["input_tokens"]
        common.pop("weights", None)
        answer = self._client.attention(self._inputs, **common, maps=False)
        return answer[0], answer.usage["input_tokens"]

    def _tokens(self) -> int:
        return len(self._client.tokenize(self._inputs, **self._fields)[0].tokens)

    def _layer_bytes(self, first: AttentionMaps) -> float:
        """Of the maps of a layer in half precision, in base64."""
        kept = sum(not special for special in first.special) if self._drops else len(first.special)
        rows = len(first.queries) if first.queries is not None else kept
        return max(1, self._model["heads"] * rows**2 * 2 * 4 / 3)

    @property
    def _drops(self) -> bool:
        return self._state.get("special", "keep") != "keep"

    def _data(self, first: AttentionMaps, tokens: int, layers: Sequence[int]) -> dict[str, Any]:
        weights = _weights(self._state)
        maps = [
            self._client.attention(
                self._inputs,
                **self._fields,
                **weights,
                **_ablation(self._state, layer),
                layers=[layer],
                dtype="float16",
            )[0]
            for layer in layers
        ]
        state = {**self._state, "model": self._model["name"]}
        if layers and len(layers) < self._model["layers"] and not state.get("heads"):
            # The page would choose among all heads, also those that it does not hold.
            state["heads"] = [_clearest_head(first, layers)]
        return {
            "version": 1,
            "info": self._info,
            "state": state,
            "fields": {**self._fields, **weights, **_ablation(self._state)},
            "tokens": tokens,
            "overview": packed(first),
            # A rollout through a layer is of no layer alone.
            "layers": [{**packed(item), "layers": [layer]} for layer, item in zip(layers, maps, strict=True)],
        }

    @property
    def _inputs(self) -> Any:
        text, pair = self._state.get("text", ""), self._state.get("pair")
        return text if pair is None else [(text, pair)]


def _shows_all(model: Mapping[str, Any]) -> bool:
    """Whether a model shows its attention in all of its layers, as the explorer wants it."""
    layers = model["layers"]
    return bool(model["attention"]) and len(model.get("attention_layers") or range(layers)) == layers


def _clearest_head(first: AttentionMaps, layers: Sequence[int]) -> list[int]:
    """The head of some layers that looks most surely at words farther away: the page begins so."""
    summary = {name: np.nan_to_num(values) for name, values in (first.summary or {}).items()}  # (L, H) each
    near = sum(summary[name] for name in ("self", "previous", "next", "special"))
    rates = summary["confidence"] * np.maximum(0, 1 - near)  # (L, H)
    best = int(np.argmax(rates[list(layers)]))
    heads = rates.shape[1]
    return [int(layers[best // heads]), best % heads]


def _prompt(prompt: str | None) -> dict[str, Any]:
    if prompt is None:
        return {}
    return {"prompt_name": prompt} if prompt else {"prompt": ""}


def _weights(state: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request for the maps, as the explorer itself sends them."""
    weights, special = state.get("weights", "probability"), state.get("special", "keep")
    fields: dict[str, Any] = {}
    if weights == "rollout":
        fields["aggregate"] = "rollout"
    elif weights != "probability":
        fields["weights"] = weights
    if state.get("level", "token") == "word":
        fields["level"] = "word"
    if special != "keep":
        fields["special_tokens"] = "drop"
    if special == "renormalize" and weights != "score":
        fields["renormalize"] = True
    return fields


def _overview_weights(state: Mapping[str, Any]) -> dict[str, Any]:
    """Those of statistics and thumbnails: of rollout, which is one map, the probabilities behind it."""
    if state.get("weights") == "rollout":
        state = {**state, "weights": "probability"}
    return _weights(state)


def _ablation(state: Mapping[str, Any], before: int | None = None) -> dict[str, Any]:
    """The field that ablates heads: of what a layer shows only earlier ones count, and others are refused."""
    layers: dict[int, list[int]] = {}
    for layer, head in state.get("ablated", ()):
        if before is None or layer < before:
            layers.setdefault(layer, []).append(head)
    parts = [{"kind": "heads", "layer": layer, "heads": heads} for layer, heads in layers.items()]
    return {"interventions": parts} if parts else {}
