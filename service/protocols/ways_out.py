"""Suggestions in errors of what would make a response small enough, each checked before it is made."""

from collections.abc import Callable, Mapping

from service.protocols.exchange import Exchange
from service.replies.formats import FORMATS
from service.replies.json_arrays import TABLE_DECIMALS
from service.replies.style import ArrayType
from service.replies.too_large import Arrays, Change, TooLarge, cut, largest
from service.tasks.attend import LABELS, AttendOptions
from service.tasks.results import SUMMARY

_MAPS = ("attention", "top_keys", "top_weights", "residual")
VECTORS_OF = {"query_vectors": "query", "key_vectors": "key", "output_norms": "query"}
"""Arrays of vectors or norms per head -> the axis of a map, query or key, that is their third axis."""
_MOST_CELLS = 256
"""The most cells of a thumbnail along an axis."""


def fewer_inputs(refused: TooLarge) -> list[str]:
    """Suggest sending fewer inputs."""
    most = refused.inputs()
    return [f"send at most {most} of the inputs"] if most else []


def fewer(refused: TooLarge, field: str, axes: Mapping[str, int]) -> list[str]:
    """Suggest choosing fewer entries in `field`; `axes` has the axis of each array that this shortens."""
    most = refused.most(cut(axes), max(refused.length(*one) for one in axes.items()))
    return [f"choose at most {most} of the `{field}`"] if most else []


def smaller_maps(maps: AttendOptions, exchange: Exchange, refused: TooLarge) -> list[str]:
    """Suggest options that would make the maps and the summary of a response small enough."""
    name, axes = exchange.name, refused.style.axes or ()
    every = {array for item in refused.items for array in item.arrays}
    ways = []
    for axis, field in LABELS.items():
        cuts = {array: axes.index(axis) for array in _MAPS if axis in axes}
        if axis == "key":  # rows of top weights have no axis of keys
            cuts = {array: place for array, place in cuts.items() if array == "attention"}
        if axis in ("layer", "head"):
            cuts |= {array: ("layer", "head").index(axis) for array in every if array.startswith(SUMMARY)}
            cuts |= {"thumbnails": axes.index(axis)} if axis in axes else {}
            cuts |= {array: ("layer", "head").index(axis) for array in every if array in VECTORS_OF}
        cuts |= {array: 2 for array, rows in VECTORS_OF.items() if rows == axis and array in every}
        ways += fewer(refused, name(field), cuts) if cuts else []
    if maps.maps:
        ways += _reduced_maps(maps, exchange, refused)
        ways += _other_numbers(maps, exchange, refused)
    return ways


def _reduced_maps(maps: AttendOptions, exchange: Exchange, refused: TooLarge) -> list[str]:
    """Suggest aggregating heads, and returning thumbnails or the largest weights in place of maps."""
    name, ways = exchange.name, []
    if maps.aggregate == "none" and refused.fits(_aggregated):
        ways.append(f'set `{name("aggregate")}` to "mean"')
    if maps.thumbnail is not None:
        if most := refused.most(_thumbnails, maps.thumbnail):
            ways.append(f"lower `{name('thumbnail')}` to {most}")
    elif maps.top_k is not None:
        if most := refused.most(_top, maps.top_k):
            ways.append(f"lower `{name('top_k')}` to {most}")
    elif maps.edges is None:
        unit = refused.style.unit and maps.aggregate != "max"  # sums of largest weights may exceed 1
        rows, keys = (refused.length("attention", axis) for axis in (-2, -1))
        if most := largest(lambda k: refused.fits(_top(k), unit=unit), keys):
            ways.append(f"set `{name('top_k')}` to {most}")
        if most := refused.most(_thumbnails, 1 + min(_MOST_CELLS, max(rows, keys))):
            ways.append(f"set `{name('thumbnail')}` to {most}")
    return ways


def _other_numbers(maps: AttendOptions, exchange: Exchange, refused: TooLarge) -> list[str]:
    """Suggest writing numbers with fewer digits, as bytes, or as a smaller type."""
    parsed, style, ways = exchange.parsed, refused.style, []
    dtypes: list[ArrayType] = ["float32", "float16", "uint8"]
    if maps.weights == "score":  # may be negative
        dtypes.remove("uint8")
    if FORMATS[parsed.format].binary:
        smaller = [one for one in dtypes[dtypes.index(style.dtype) + 1 :] if refused.fits(dtype=one)]
        return [f"set ?dtype={smaller[0]}"] if smaller else []
    if style.decimals is not None:
        below = min(style.decimals, TABLE_DECIMALS + 1)
        if most := largest(lambda digits: refused.fits(decimals=digits), below):
            ways.append(f"lower `{exchange.name('decimals')}` to {most}")
    if "npz" in parsed.body.formats:
        small = [one for one in dtypes if refused.fits(format="npz", dtype=one)]
        if small:
            dtype = "" if small[0] == "float32" else f" and set ?dtype={small[0]}"
            given = exchange.decimals is not None and parsed.body.is_overridden("decimals")
            without = f" without `{exchange.name('decimals')}`" if given else ""
            ways.append(f"set Accept to application/x-npz{dtype}{without}")
    return ways


def _aggregated(arrays: Arrays) -> Arrays:
    """Drop the head axis of maps, which is their second."""
    maps = (*_MAPS, "thumbnails")
    return {name: (shape[0], *shape[2:]) if name in maps else shape for name, shape in arrays.items()}


def _thumbnails(cells: int) -> Change:
    return _instead(lambda shape: {"thumbnails": (*shape[:-2], *(min(cells, n) for n in shape[-2:]))})


def _top(k: int) -> Change:
    def top(shape: tuple[int, ...]) -> Arrays:
        found = (*shape[:-1], min(k, shape[-1]))
        return {"top_keys": found, "top_weights": found, "residual": shape[:-1]}

    return _instead(top)


def _instead(reduced: Callable[[tuple[int, ...]], Arrays]) -> Change:
    """Return the change that puts `reduced` arrays in the place of maps, or of what maps were reduced to."""

    def change(arrays: Arrays) -> Arrays:
        shape = next(arrays[name] for name in ("attention", "thumbnails", "top_weights") if name in arrays)
        others = {name: one for name, one in arrays.items() if name not in (*_MAPS, "thumbnails")}
        return {**others, **reduced(shape)}

    return change
