"""Prints facts, tables of figures, and checks of figures against their targets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print a heading and lines of names and values."""
    width = max(len(name) for name, _ in facts)
    print(f"\n{title}")
    for name, value in facts:
        print(f"  {name:<{width}}  {value}")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as its cells, the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    print(f"\n{title}")
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            f"{cell:>{width}}" if i else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip(), flush=True)


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> str:
    """Divide round by round, and show the median and in brackets the quartiles: `1.42 [1.40–1.45]`."""
    low, middle, high = np.quantile(np.divide(numerator, denominator), [0.25, 0.5, 0.75])
    return f"{middle:.2f} [{low:.2f}–{high:.2f}]"


@dataclass(frozen=True)
class Check:
    """A figure with one value per round, and the target for their median."""

    name: str
    values: Sequence[float]
    bound: float
    at_most: bool = False
    digits: int = 2

    @property
    def median(self) -> float:
        """The value that counts."""
        return float(np.median(self.values))

    @property
    def held(self) -> bool:
        """Whether the bound is."""
        return self.median <= self.bound if self.at_most else self.median >= self.bound


def print_checks(checks: Sequence[Check]) -> None:
    """Print the figures that have a target, and whether they reach it."""
    rows = []
    for check in checks:
        shown = [f"{v:.{check.digits}f}" for v in (check.median, min(check.values), max(check.values))]
        if len(check.values) == 1:
            shown[1:] = ["", ""]
        bound = f"{'≤' if check.at_most else '≥'} {check.bound:.{check.digits}f}"
        rows.append([check.name, *shown, bound, "yes" if check.held else "NO"])
    header = ["check", "median", "lowest", "highest", "bound", "held"]
    print_table("Checks", header, rows)
