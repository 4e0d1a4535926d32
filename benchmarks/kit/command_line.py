"""Reads the arguments of the programs."""

import argparse
from collections.abc import Callable, Sequence


def parser_for(docstring: str | None) -> argparse.ArgumentParser:
    """Make the parser of a program, whose `--help` begins with the program's docstring."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def some_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Make a reader of an argument that lists some of these names, with commas between them."""

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in names]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(names)}")
        return chosen

    return read


def numbers(text: str) -> list[int]:
    """Read whole numbers separated by commas, for `argparse`."""
    return [int(number) for number in text.split(",") if number]
