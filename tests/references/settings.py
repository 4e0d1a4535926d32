"""Folders with unusual settings, and the vectors that sentence-transformers 6.2 makes with them, recorded."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.references.checkpoints import write_bert

RECORDED = Path(__file__).with_name("settings.json")
TEXTS = (
    "Hello World, the man. " + "hello " * 40,
    "Crème the [MASK] x",
    "日本 theman beats it, Hello",
    "a",
    "",
    "the boy [PAD] beats",
)
COMPONENTS = 4
"""Recorded of each vector."""


@dataclass(frozen=True)
class Case:
    """Fields that a file of the folder has besides its own, and the first components of vectors of `TEXTS`.

    No vectors: sentence-transformers refuses the folder.
    """

    file: str
    fields: dict[str, Any]
    vectors: list[list[float]] | None
    size: int


def recorded() -> list[Case]:
    """All cases."""
    return [Case(**case) for case in json.loads(RECORDED.read_text(encoding="utf-8"))]


def write_folder(folder: Path, file: str, fields: dict[str, Any]) -> None:
    """Save a small BERT of random weights as sentence-transformers does, with these fields in a file."""
    write_bert(folder)
    _edit(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries), encoding="utf-8")
    _edit(folder / "1_Pooling/config.json", {"embedding_dimension": 32, "pooling_mode": "mean"})
    _edit(folder / "2_Normalize/config.json", {})
    _edit(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})
    if not file.startswith("sentence_") or file == "sentence_bert_config.json":
        _edit(folder / "sentence_bert_config.json", {"max_seq_length": 48})
    _edit(folder / file, fields)


def _edit(file: Path, fields: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**content, **fields}), encoding="utf-8")
