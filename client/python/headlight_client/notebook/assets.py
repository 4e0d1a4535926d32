"""The built explorer, which the service also serves at `/explorer`."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PACKAGED = Path(__file__).parent / "static"
"""Where a wheel has it; `pyproject.toml` copies it there."""
_SOURCE = Path(__file__).parents[4] / "service" / "explorer" / "static"
"""Where a checkout has it, for installations of the folder itself: one copy serves both."""


@dataclass(frozen=True)
class Assets:
    """The explorer's module and its stylesheet."""

    script: str
    style: str


@cache
def assets() -> Assets:
    """Read them; raises FileNotFoundError if this installation lacks them."""
    for folder in (_PACKAGED, _SOURCE):
        script = folder / "explorer.js"
        if script.is_file():
            style = folder / "explorer.css"
            return Assets(script.read_text(encoding="utf-8"), style.read_text(encoding="utf-8"))
    raise FileNotFoundError(
        f"{_PACKAGED} lacks the explorer: install headlight-client from its wheel or checkout."
    )
