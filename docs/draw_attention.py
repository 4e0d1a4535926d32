"""Draw attention maps: the JSON answer of `POST /attention`, from a file or standard input, as a PNG.

With `--head` one map, its numbers written into it where they fit; without, all heads of the layer.

    curl -s localhost:8000/attention -H 'Content-Type: application/json' \
      -d '{"inputs": "The animal did not cross the street because it was too tired."}' \
      | python docs/draw_attention.py --layer 3 --output heads.png

It needs matplotlib and numpy, and nothing of headlight itself.
"""

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

_COLOURS = LinearSegmentedColormap.from_list("ink", ["#ffffff", "#b5dfe3", "#3f9fbf", "#1f5a94", "#10243f"])
_COLUMNS = 4
"""Heads in a row of the grid."""
_NUMBERED = 24
"""Up to this many tokens the cells carry their numbers."""
_INK, _PALE = "#1f2d3d", "#e4e9ee"
_STYLE = {
    "font.family": "DejaVu Sans",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _PALE,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


@dataclass(frozen=True)
class Map:
    """The maps of one layer, (heads, queries, keys), and what their indices mean."""

    model: str
    layer: int
    heads: list[int]
    queries: list[str]
    keys: list[str]
    weights: NDArray[np.float64]


def main() -> None:
    """Read an answer and write a picture."""
    arguments = parse_arguments()
    text = sys.stdin.read() if arguments.answer == "-" else Path(arguments.answer).read_text(encoding="utf-8")
    chosen = read_map(json.loads(text), arguments.index, arguments.layer, arguments.head)
    with plt.rc_context(_STYLE):
        figure = draw_one(chosen) if len(chosen.heads) == 1 else draw_grid(chosen)
        figure.savefig(arguments.output, dpi=arguments.dpi, facecolor="white", pil_kwargs={"optimize": True})


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("answer", nargs="?", default="-", help="a JSON file (default: standard input)")
    parser.add_argument("--index", type=int, default=0, help="which of the inputs")
    parser.add_argument("--layer", type=int, help="from 0 (default: the first in the answer)")
    parser.add_argument("--head", type=int, help="from 0 (default: all of them)")
    parser.add_argument("--output", type=Path, default=Path("attention.png"))
    parser.add_argument("--dpi", type=int, default=100)
    return parser.parse_args()


def read_map(answer: dict[str, Any], index: int, layer: int | None, head: int | None) -> Map:
    """Find the maps of one layer, or one head of it, in an answer; say what is wrong when it has none."""
    if "data" not in answer:
        raise SystemExit(f"This is no answer of /attention: {answer.get('detail', 'it has no data')}")
    axes, items = answer.get("axes"), answer["data"]
    if axes != ["layer", "head", "query", "key"] or any("attention" not in item for item in items):
        raise SystemExit("This is no answer of /attention with all four axes: ask without aggregate.")
    if not 0 <= index < len(items):
        raise SystemExit(f"The answer has no input {index}: it has {len(items)}.")
    item = items[index]
    layer = item["layers"][0] if layer is None else layer
    heads = item["heads"] if head is None else [head]
    for name, wanted, there in (("layer", [layer], item["layers"]), ("head", heads, item["heads"])):
        if not set(wanted) <= set(there):
            raise SystemExit(f"The answer has no {name} {wanted[0]}: it has {there}.")
    labels = item.get("words", item["tokens"])
    maps = np.asarray(item["attention"][item["layers"].index(layer)], dtype=np.float64)
    return Map(
        model=answer["model"],
        layer=layer,
        heads=heads,
        queries=[labels[i] for i in item["queries"]],
        keys=[labels[i] for i in item["keys"]],
        weights=maps[[item["heads"].index(h) for h in heads]],
    )


def draw_one(chosen: Map) -> Figure:
    """Draw the map of one head, with tokens along both axes and the weights in the cells."""
    size = (max(4.5, 0.42 * len(chosen.keys) + 2.5), max(3.0, 0.42 * len(chosen.queries) + 1.6))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.12)
    weights = chosen.weights[0]
    image = heat_map(axes, weights, float(weights.max()))
    axes.set_title(
        f"{chosen.model} · layer {chosen.layer} · head {chosen.heads[0]}", pad=12, weight="bold", size=12
    )
    axes.set_xlabel("key", labelpad=8)
    axes.set_ylabel("query", labelpad=8)
    label(axes, chosen)
    if max(weights.shape) <= _NUMBERED:
        write_numbers(axes, weights)
    colour_bar(figure, image, [axes])
    return figure


def draw_grid(chosen: Map) -> Figure:
    """Draw all heads of a layer side by side in one scale of colours, tokens on the outer edges."""
    columns = min(_COLUMNS, len(chosen.heads))
    rows = math.ceil(len(chosen.heads) / columns)
    width, height = (max(1.6, 0.17 * len(tokens) + 0.5) for tokens in (chosen.keys, chosen.queries))
    size = (width * columns + 1.8, height * rows + 1.5)
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    image = None
    for place, axes in enumerate(grid.flat):
        if place >= len(chosen.heads):
            axes.set_visible(False)
            continue
        image = heat_map(axes, chosen.weights[place], float(chosen.weights.max()))
        axes.set_title(f"head {chosen.heads[place]}", size=10)
        label(axes, chosen, size=7)
        if place % columns:
            axes.set_yticklabels([])
        if place + columns < len(chosen.heads):
            axes.set_xticklabels([])
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.1)
    figure.suptitle(f"{chosen.model} · layer {chosen.layer}", weight="bold", size=13)
    figure.supxlabel("key", size=11)
    figure.supylabel("query", size=11)
    colour_bar(figure, image, list(grid.flat))
    return figure


def heat_map(axes: Axes, weights: NDArray[np.float64], largest: float) -> Any:
    """Fill the axes with one map (queries, keys), thin lines between the cells."""
    image = axes.imshow(weights, cmap=_COLOURS, vmin=min(0.0, weights.min()), vmax=largest, aspect="equal")
    axes.set_xticks(np.arange(weights.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(weights.shape[0] + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=_PALE, linewidth=0.6)
    axes.tick_params(which="both", length=0)
    return image


def label(axes: Axes, chosen: Map, size: int = 10) -> None:
    """Write the tokens along the axes."""
    axes.set_xticks(range(len(chosen.keys)), chosen.keys, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(chosen.queries)), chosen.queries)
    axes.tick_params(labelsize=size)


def write_numbers(axes: Axes, weights: NDArray[np.float64]) -> None:
    """Write each weight into its cell, dark on light and light on dark; the smallest are left out."""
    for (row, column), weight in np.ndenumerate(weights):
        colour = "white" if weight > 0.45 * weights.max() else _INK
        number = f"{weight:.1f}" if abs(weight) >= 0.995 else f"{weight:.2f}".replace("0.", ".")
        if abs(weight) >= max(0.005, 0.01 * weights.max()):
            axes.text(column, row, number, ha="center", va="center", size=7.5, color=colour)


def colour_bar(figure: Figure, image: Any, axes: list[Axes]) -> None:
    """Put the scale of colours beside the maps."""
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.set_label("attention weight", size=9)


if __name__ == "__main__":
    main()
