"""`Explorer`: the page that shows attention, in a notebook or as a file."""

import html
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headlight_client.answers import AttentionMaps
from headlight_client.client import Headlight
from headlight_client.notebook.assets import assets
from headlight_client.notebook.page import LARGEST_FILE, document, framed, packed, too_large

if TYPE_CHECKING:
    from headlight_client.notebook.widget import ExplorerWidget

_THUMBNAIL = 64
_PAGE_BYTES = 300_000
"""The explorer without maps."""


class Explorer:
    """The attention of a text, or of a pair of texts, in every view of the service's `/explorer`.

        Explorer(client, "The animal did not cross the street because it was too tired.")

    As the last line of a cell it is a widget, with the extra `notebook`, which asks for maps when a view
    needs them; without it, a page that holds the maps. `state` are fields of the explorer's links, such as
    `view="heads"`, `heads=[(3, 1)]`, `pinned=[8]` and `weights="rollout"`.
    """

    def __init__(self, client: Headlight, *texts: str, model: str | None = None, **state: Any) -> None:
        """Raise ValueError unless there are one or two texts."""
        if len(texts) not in (1, 2):
            raise ValueError(
                f"Explorer(client, …) has {len(texts)} texts: pass a text, or the two texts of a pair."
            )
        self._client = client
        self._widget: ExplorerWidget | None = None
        given = {"text": texts[0], "pair": texts[1] if len(texts) > 1 else None, "model": model, **state}
        self._state = {name: value for name, value in given.items() if value is not None}

    @property
    def state(self) -> dict[str, Any]:
        """The fields of the explorer's links that are chosen now; those left out are initial."""
        return dict(self._state if self._widget is None else self._widget.state)

    @property
    def widget(self) -> "ExplorerWidget":
        """The anywidget; marimo shows it by `mo.ui.anywidget(explorer.widget)`.

        Raises ModuleNotFoundError without anywidget.
        """
        if self._widget is None:
            from headlight_client.notebook.widget import ExplorerWidget  # noqa: PLC0415

            self._widget = ExplorerWidget(self._client, self._state)
        return self._widget

    def html(self, layers: Literal["all"] | Sequence[int] = "all") -> str:
        """Write a page that holds the maps of some layers, and needs neither the service nor a network.

        Raises ValueError if it has more than 25 MB, about what one layer of 12 heads has for 850 tokens, and
        HeadlightError.
        """
        state = self.state
        info = self._client.info()
        name = state.get("model") or next(model.name for model in info.models if model.attention)
        (model,) = (model for model in info.document["models"] if model["name"] == name)
        fields = {"model": name, **_prompt(state.get("prompt"))}
        first = self._client.attention(
            self._inputs,
            **fields,
            **_overview_weights(state),
            thumbnail=_THUMBNAIL,
            summary=True,
            dtype="float16",
        )
        chosen = range(model["layers"]) if layers == "all" else layers
        self._check_size(first[0], len(chosen), model["heads"])
        maps = [
            self._client.attention(
                self._inputs, **fields, **_weights(state), layers=[layer], dtype="float16"
            )[0]
            for layer in chosen
        ]
        data = {
            "version": 1,
            "info": {**info.document, "models": [model]},
            "state": {**state, "model": name},
            "fields": {**fields, **_weights(state)},
            "tokens": first.usage["input_tokens"],
            "overview": packed(first[0]),
            "layers": [packed(item) for item in maps],
        }
        return document(data, assets())

    def save(self, path: str | Path, layers: Literal["all"] | Sequence[int] = "all") -> None:
        """Write the page of `html` to a file; raises as it does, and OSError."""
        Path(path).write_text(self.html(layers), encoding="utf-8")

    @property
    def _inputs(self) -> Any:
        text, pair = self.state.get("text", ""), self.state.get("pair")
        return text if pair is None else [(text, pair)]

    def _check_size(self, item: AttentionMaps, layers: int, heads: int) -> None:
        """Raise ValueError before maps are loaded for nothing."""
        rows = len(item.queries or ())
        weights = layers * heads * rows**2 + (0 if item.thumbnails is None else item.thumbnails.size)
        if (size := _PAGE_BYTES + weights * 2 * 4 / 3) > LARGEST_FILE:
            raise too_large(size)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Show the widget where anywidget is installed."""
        if (page := self._repr_html_()) is not None:
            return {"text/html": page, "text/plain": repr(self)}
        return self.widget._repr_mimebundle_(include=include, exclude=exclude)

    def _repr_html_(self) -> str | None:
        """Show the page in a frame: with all layers, or if they are too large, that of the chosen head.

        None where anywidget is installed: IPython would save the page, with its maps, beside the widget.
        """
        if find_spec("anywidget") is not None:
            return None
        heads = self.state.get("heads") or [(0, 0)]
        try:
            try:
                return framed(self.html())
            except ValueError:
                return framed(self.html([heads[-1][0]]))
        except ValueError as error:
            return f"<p>{html.escape(str(error))}</p>"

    def __repr__(self) -> str:
        """Show the texts."""
        texts = [repr(self.state[name]) for name in ("text", "pair") if name in self.state]
        return f"Explorer({', '.join(texts)})"


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
