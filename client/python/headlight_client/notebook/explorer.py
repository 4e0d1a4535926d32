"""`Explorer`: the page that shows attention, in a notebook or as a file."""

import html
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headlight_client.client import Headlight
from headlight_client.notebook.assets import assets
from headlight_client.notebook.fields import checked
from headlight_client.notebook.held import Input
from headlight_client.notebook.page import document, framed, told

if TYPE_CHECKING:
    from headlight_client.notebook.widget import ExplorerWidget

_LEAST_HEIGHT, _LARGEST_HEIGHT = 100, 10_000
"""Pixels."""


class Explorer:
    """The attention of a text, or of a pair of texts, in every view of the service's `/explorer`.

        Explorer(client, "The animal did not cross the street because it was too tired.")

    As the last line of a cell it is a widget, with the extra `notebook`, which asks for maps when a view
    needs them; without it, a page that holds the maps. `state` are fields of the explorer's links, such as
    `view="heads"`, `heads=[(3, 1)]`, `pinned=[8]` and `weights="rollout"`.

    `embed` saves at most 1 MB of maps with the notebook, which shows them where no kernel runs: all layers,
    or those of the chosen heads; None does so for one text. `height` is in pixels: what needs more scrolls.
    `compact` shows the view alone, without the fields and the tabs around it.
    """

    def __init__(
        self,
        client: Headlight,
        *texts: str,
        model: str | None = None,
        embed: bool | None = None,
        height: int | None = None,
        compact: bool = False,
        **state: Any,
    ) -> None:
        """Raise ValueError unless there are one or two texts, and for a field or a value that links lack."""
        if len(texts) not in (1, 2):
            raise ValueError(
                f"Explorer(client, …) has {len(texts)} texts: pass a text, or the two texts of a pair."
            )
        if embed not in (None, True, False):
            raise ValueError(f"embed is {embed!r}: pass True, False, or None, which is True for one text.")
        self._client = client
        self._widget: ExplorerWidget | None = None
        self._embed = len(texts) == 1 if embed is None else embed
        self._height, self._compact = _checked_height(height), bool(compact)
        given = {"text": texts[0], "pair": texts[1] if len(texts) > 1 else None, "model": model}
        self._state = checked({**given, **state})

    @property
    def state(self) -> dict[str, Any]:
        """The fields of the explorer's links that are chosen now; those left out are initial.

        Assigning them all moves the page. Raises ValueError for a field or a value that links do not have.
        """
        return dict(self._state if self._widget is None else self._widget.state)

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        self._state = checked(state)
        if self._widget is not None:
            self._widget.state = self._state

    def update(self, **fields: Any) -> None:
        """Choose some fields, and leave the others as they are; None makes one initial.

        Pins are of the tokens of a text: another text or level takes them out. Raises as `state` does.
        """
        before = self.state
        moved = any(name in fields and fields[name] != before.get(name) for name in ("text", "pair", "level"))
        self.state = {**before, **({"pinned": None} if moved else {}), **fields}

    def observe(self, handler: Callable[[Any], None]) -> None:
        """Call `handler(change)` whenever another state is chosen, in the page or here.

        `change["new"]` and `change["old"]` are states. `explorer.widget.unobserve(handler, "state")` ends it.
        Raises ModuleNotFoundError without anywidget.
        """
        self.widget.observe(handler, "state")

    @property
    def widget(self) -> "ExplorerWidget":
        """The anywidget; marimo shows it by `mo.ui.anywidget(explorer.widget)`.

        Raises ModuleNotFoundError without anywidget.
        """
        if self._widget is None:
            from headlight_client.notebook.widget import ExplorerWidget  # noqa: PLC0415

            self._widget = ExplorerWidget(
                self._client, self._state, embed=self._embed, height=self._height, compact=self._compact
            )
        return self._widget

    def html(self, layers: Literal["all"] | Sequence[int] = "all") -> str:
        """Write a page that holds the maps of some layers, and needs neither the service nor a network.

        Raises ValueError if it has more than 25 MB, about what one layer of 12 heads has for 850 tokens, and
        HeadlightError.
        """
        return self._document(Input(self._client, self.state).page(layers))

    def save(self, path: str | Path, layers: Literal["all"] | Sequence[int] = "all") -> None:
        """Write the page of `html` to a file; raises as it does, and OSError."""
        Path(path).write_text(self.html(layers), encoding="utf-8")

    def _document(self, data: Mapping[str, Any]) -> str:
        return document(data, assets(), self._compact)

    def _frame(self, data: Mapping[str, Any]) -> str:
        return framed(self._document(data), told(data), self._height)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Show the widget where anywidget is installed, and beside it what it embeds."""
        if (page := self._repr_html_()) is not None:
            return {"text/html": page, "text/plain": repr(self)}
        bundle = self.widget._repr_mimebundle_(include=include, exclude=exclude)
        if bundle is None:  # ipywidgets does not show it
            return None
        shown, metadata = bundle
        shown["text/plain"] = repr(self)
        self.widget.keep()
        if self.widget.saved is not None:
            shown["text/html"] = self._frame(self.widget.saved)
        return shown, metadata

    def _repr_html_(self) -> str | None:
        """Show the page in a frame: with all layers, or if they are too large, that of the chosen head.

        None where anywidget is installed: the widget comes with its own.
        """
        if find_spec("anywidget") is not None:
            return None
        heads = self.state.get("heads") or [(0, 0)]
        try:
            held = Input(self._client, self.state)
            try:
                return self._frame(held.page("all"))
            except ValueError:
                return self._frame(held.page([heads[-1][0]]))
        except ValueError as error:
            return f"<p>{html.escape(str(error))}</p>"

    def __repr__(self) -> str:
        """Show the texts."""
        texts = [repr(self.state[name]) for name in ("text", "pair") if name in self.state]
        return f"Explorer({', '.join(texts)})"


def _checked_height(height: int | None) -> int | None:
    """Raise ValueError for what is no height in pixels."""
    if height is None:
        return None
    if (
        isinstance(height, bool)
        or not isinstance(height, int)
        or not (_LEAST_HEIGHT <= height <= _LARGEST_HEIGHT)
    ):
        raise ValueError(
            f"height is {height!r}: pass whole pixels from {_LEAST_HEIGHT} to {_LARGEST_HEIGHT:,}, or None."
        )
    return height
