"""Writes one HTML file with the explorer and the maps of an input, as the explorer's own export does."""

import base64
import html
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from headlight_client.answers import AttentionMaps, FloatArray
from headlight_client.notebook.assets import Assets

LARGEST_FILE = 25_000_000
"""Bytes."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_TITLE_CHARACTERS = 120
HEIGHT = 860
"""Pixels of a frame, unless it is given."""
_TOLD_ROWS = 10
_PLAIN = {"level": "token", "special": "keep", "weights": "probability", "direction": "from"}


def packed(item: AttentionMaps) -> dict[str, Any]:
    """Convert an item to JSON: maps in half precision, as base64, and statistics as numbers."""
    return {name: _packed(value) for name, value in vars(item).items()}


def _packed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _numbers(statistic) for name, statistic in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype != np.float32:
        return value.tolist()
    with np.errstate(over="ignore"):
        half = value.astype("<f2")
    return {"shape": list(value.shape), "float16": base64.b64encode(half.tobytes()).decode("ascii")}


def _numbers(statistic: FloatArray) -> dict[str, Any]:
    values = [None if np.isnan(value) else float(value) for value in statistic.ravel()]
    return {"shape": list(statistic.shape), "values": values}


def document(data: Mapping[str, Any], assets: Assets, compact: bool = False) -> str:
    """Write the file, with `compact` of a view alone. Nothing in the texts can end the elements around them.

    Raises ValueError if it has more than 25 MB.
    """
    content = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    title = html.escape(f"{data['state'].get('text', '')} – headlight explorer"[:_TITLE_CHARACTERS])
    style = re.sub("<(?=/style)", r"\\3c ", assets.style, flags=re.IGNORECASE)
    script = re.sub("<(?=/script|!--)", r"\\x3c", assets.script, flags=re.IGNORECASE)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="headlight-explorer"{" data-compact" if compact else ""}></div>
<script type="application/json" id="headlight-data">{content}</script>
<script type="module">{script}</script>
</body>
</html>
"""
    if (size := len(page.encode("utf-8", "replace"))) > LARGEST_FILE:
        raise too_large(size)
    return page


def too_large(size: float) -> ValueError:
    """Say how large the file would be, and what to do."""
    return ValueError(
        f"The file would have {size / 1e6:.0f} MB, more than 25 MB: choose fewer layers, or a shorter text."
    )


def framed(page: str, told: str, height: int | None = None) -> str:
    """Put a page into a frame, which reaches neither the notebook around it nor the network.

    It lies over `told`, HTML without scripts, which is left where frames are taken out, as on GitHub.
    """
    content = html.escape(page, quote=True)
    high = height or HEIGHT
    return (
        f'<div style="position:relative;overflow:hidden;height:{high}px">{told}'
        f'<iframe srcdoc="{content}" sandbox="allow-scripts allow-downloads allow-modals" '
        f'title="headlight explorer" width="100%" height="{high}" frameborder="0" '
        'style="position:absolute;left:0;top:0"></iframe></div>'
    )


def told(data: Mapping[str, Any]) -> str:
    """Say in HTML without scripts what a page shows: its input, and the pinned token's largest weights."""
    state, item = data["state"], data["overview"]
    texts = "; ".join(html.escape(state[name]) for name in ("text", "pair") if state.get(name))
    lines = [f"<p><b>headlight explorer</b>, {html.escape(state['model'])}: {texts}</p>"]
    row = _row(data)
    if row is not None:
        (layer, head), query, weights = row
        name = html.escape(item["tokens"][query])
        lines.append(f"<p>Where “{name}” looks, layer {layer}, head {head}, most first:</p><table>")
        for key in np.argsort(-weights, kind="stable")[:_TOLD_ROWS]:
            token = html.escape(item["tokens"][key])
            lines.append(f"<tr><td>{key}</td><td>{token}</td><td>{weights[key]:.3f}</td></tr>")
        lines.append("</table>")
    lines.append("<p>To see all maps, allow scripts on this page.</p>")
    return "".join(lines)


def _row(data: Mapping[str, Any]) -> tuple[list[int], int, FloatArray] | None:
    """The current head, the pinned token and its weights, (N,); None if these are not of every token."""
    state = data["state"]
    heads, pinned = state.get("heads"), state.get("pinned")
    plain = all(state.get(name, usual) == usual for name, usual in _PLAIN.items())
    if not heads or not pinned or not plain:
        return None
    layer, head = heads[-1]
    for item in data["layers"]:
        shape = item["attention"]["shape"]
        if item["layers"] == [layer] and head < shape[1] and pinned[0] < shape[2]:
            maps = np.frombuffer(base64.b64decode(item["attention"]["float16"]), "<f2").reshape(shape)
            return [layer, head], pinned[0], maps[0, head, pinned[0]].astype(np.float32)
    return None
