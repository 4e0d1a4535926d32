"""Lists what becomes of each setting in a model's files, by the tables of `model/keys/`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from model.checkpoints.layout import read_layout
from model.errors import CheckpointError
from model.families.own.headlight import HEADLIGHT
from model.families.table import find_family
from model.files import read_json
from model.keys.files import judge_files
from model.keys.key import Judged

_VERDICTS = ("refused", "unknown", "used", "harmless")


def list_settings(folder: Path, *, graph: bool) -> Iterator[str]:
    """Yield lines about each file; none if the folder is not a model's, which loading then reports."""
    try:
        layout = read_layout(folder)
        family = None if layout.static else find_family(read_json(layout.transformer / "config.json"))
        own = graph or family is HEADLIGHT  # for a graph, and for our own format, all of config.json is read
        judged = list(judge_files(folder, layout.transformer, layout.modules, config=not own))
    except CheckpointError:
        return
    for file, keys in judged:
        if keys:
            yield from _file(str(file.relative_to(folder)), keys)


def _file(name: str, keys: Sequence[Judged]) -> Iterator[str]:
    counts = {verdict: sum(key.verdict == verdict for key in keys) for verdict in _VERDICTS}
    yield f"{name}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}"
    groups: dict[tuple[str, str], list[str]] = {}
    for key in sorted(keys, key=lambda key: _VERDICTS.index(key.verdict)):
        groups.setdefault((key.verdict, key.told), []).append(key.name)
    for (verdict, told), names in groups.items():
        yield f"  {verdict:<9} {', '.join(names)}: {told}"
