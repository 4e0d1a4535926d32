"""The tables of keys as docs/models.md shows them; `python -m tests.support.key_table` writes them there."""

import json
from collections import defaultdict
from pathlib import Path

from model.keys.files import FILES
from model.keys.key import Key, Table

MODELS = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"


def rendered() -> str:
    """The tables in Markdown: of each file, the keys of which the same is made in a row."""
    return "".join(_table(file, table) for file, table in FILES.items())


def _table(file: str, table: Table) -> str:
    rows: dict[str, list[str]] = defaultdict(list)
    for name, key in table.items():
        rows[_told(key)].append(f"`{name}`")
    lines = [f"| {', '.join(names)} | {told} |" for told, names in rows.items()]
    return "\n".join([f"\n**`{file}`**\n", "| keys | what is made of them |", "|---|---|", *lines, ""])


def _told(key: Key) -> str:
    if key.verdict == "used":
        return f"used: {key.told}"
    if key.verdict == "harmless":
        return f"change nothing: {key.told}"
    served = " or ".join(f"`{json.dumps(value)}`" for value in key.served)
    return f"only {served}: {key.told}; {key.instead}"


def documented() -> str:
    """The tables that the document has."""
    return MODELS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    text = MODELS.read_text(encoding="utf-8")
    MODELS.write_text(text.replace(BEGIN + documented() + END, BEGIN + rendered() + END), encoding="utf-8")
