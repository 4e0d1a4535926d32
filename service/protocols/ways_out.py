"""What would make a response smaller: suggestions in errors."""

from collections.abc import Sequence

from service.protocols.exchange import Exchange
from service.replies.formats import FORMATS
from service.tasks.attend import AttendOptions


def smaller_maps(maps: AttendOptions, exchange: Exchange) -> list[str]:
    """Suggest options that would make the maps of a response smaller; at least one."""
    name, parsed = exchange.name, exchange.parsed
    ways = [f"choose fewer `{name('layers')}` or `{name('heads')}`"]
    if maps.maps:
        ways.append(f"choose fewer `{name('queries')}` or `{name('keys')}`")
        ways += [f"`{name('aggregate')}` the heads"] if maps.aggregate == "none" else []
        if maps.thumbnail is None:
            ways += [f"set `{name('top_k')}` or `{name('thumbnail')}`"] if maps.top_k is None else []
        else:
            ways.append(f"lower `{name('thumbnail')}`")
        if not FORMATS[parsed.format].binary:
            ways += [f"lower `{name('decimals')}`"]
            ways += ["accept application/x-npz"] if "npz" in parsed.body.formats else []
        elif parsed.dtype == "float32":
            ways.append("add ?dtype=float16" if maps.weights == "score" else "add ?dtype=uint8")
    return ways


def any_of(ways: Sequence[str]) -> str:
    """Join two or more ways out as alternatives."""
    return f"{', '.join(ways[:-1])}, or {ways[-1]}"
