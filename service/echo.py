"""Client input in errors."""

ECHO = 100
"""Characters of a client's input that an error echoes at most."""


def cut(text: str, most: int = ECHO) -> str:
    """Cut client input to a readable length."""
    return text if len(text) <= most else f"{text[:most]}…"
