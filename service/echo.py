"""Shortens what errors echo of a client's input."""

ECHO = 100
"""The most characters of a client's input that an error echoes."""


def cut(text: str, most: int = ECHO) -> str:
    """Cut client input to a readable length."""
    return text if len(text) <= most else f"{text[:most]}…"
