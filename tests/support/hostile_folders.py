"""Ways in which the folder of a model can be wrong: what a download, a slip or an attacker leaves behind."""

import base64
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.model.checkpoints.test_layout import BEFORE, write, write_modules
from tests.references.checkpoints import write_bert

Damage = Callable[[Path], object]

JSON_FILES = (
    "modules.json",
    "config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
)
WEIGHTS = ("model.safetensors", "2_Dense/model.safetensors")
WORDS = "embeddings.word_embeddings.weight"
QUERY = "encoder.layer.0.attention.self.query.weight"


def write_whole(folder: Path) -> Path:
    """Write a folder with all that there may be in one of sentence-transformers."""
    write_bert(folder)
    write_modules(folder, *(f"{BEFORE}.{kind}" for kind in ("Transformer", "Pooling", "Dense", "Normalize")))
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    write(folder, "2_Dense/config.json", {"in_features": 32, "out_features": 8, "bias": True})
    dense = {"linear.weight": torch.ones(8, 32), "linear.bias": torch.zeros(8)}
    save_file(dense, folder / "2_Dense/model.safetensors")
    write(folder, "sentence_bert_config.json", {"do_lower_case": False})
    general = {"prompts": {"query": "the: "}, "default_prompt_name": "query"}
    write(folder, "config_sentence_transformers.json", general)
    return folder


# ------------------------------------------------------------------------------ in the place of a file


def instead(make: Callable[[Path], object]) -> Callable[[str], Damage]:
    """Put something else in the place of a file."""

    def of(name: str) -> Damage:
        def damage(folder: Path) -> None:
            (folder / name).unlink()
            make(folder / name)

        return damage

    return of


def content(data: bytes) -> Callable[[str], Damage]:
    return instead(lambda path: path.write_bytes(data))


def sparse(size: int) -> Callable[[str], Damage]:
    def make(path: Path) -> None:
        path.touch()
        os.truncate(path, size)

    return instead(make)


NO_FILES: dict[str, Callable[[str], Damage]] = {
    "folder": instead(lambda path: path.mkdir()),
    "FIFO": instead(os.mkfifo),
    "link to a device": instead(lambda path: path.symlink_to("/dev/zero")),
    "link to itself": instead(lambda path: path.symlink_to(path.name)),
    "link to nothing": instead(lambda path: path.symlink_to("nothing")),
}
NO_JSON: dict[str, Callable[[str], Damage]] = {
    **NO_FILES,
    "empty": content(b""),
    "cut": content(b'{"a": '),
    "null": content(b"null"),
    "number": content(b"1e999"),
    "text": content(b'"text"'),
    "digits": content(b"9" * 5000),
    "no UTF-8": content(b'{"a": "\xff"}'),
    "deep": content(b"[" * 200_000),
    "deep objects": content(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "twice": content(b'{"a": 1, "a": 2}'),
    "brackets": content(b"[" + b"[]," * 4_100_000 + b"[]]"),
    "1 GiB": sparse(2**30),
}
NO_WEIGHTS: dict[str, Callable[[str], Damage]] = {
    **NO_FILES,
    "empty": content(b""),
    "seven bytes": content(b"1234567"),
    "header of 2^63 bytes": content(struct.pack("<Q", 2**63) + b"{}"),
    "header of 90 MB that is not there": content(struct.pack("<Q", 90_000_000) + b"{}"),
    "header of 20 MB": content(struct.pack("<Q", 20_000_000) + b" " * 20_000_000),
    "header that is no JSON": content(struct.pack("<Q", 4) + b"{{{{"),
    "header that is a list": content(struct.pack("<Q", 2) + b"[]"),
    "zeros": sparse(2**20),
}


# ---------------------------------------------------------------------------------- within a file


def edit(name: str, **fields: Any) -> Damage:
    """Change fields of a JSON file, also to what only Python's writer writes (NaN)."""

    def damage(folder: Path) -> None:
        parsed = json.loads((folder / name).read_text(encoding="utf-8")) | fields
        (folder / name).write_text(json.dumps(parsed), encoding="utf-8")

    return damage


def text(name: str, old: str, new: str) -> Damage:
    """Change the text of a file."""

    def damage(folder: Path) -> None:
        before = (folder / name).read_text(encoding="utf-8")
        assert old in before
        (folder / name).write_text(before.replace(old, new), encoding="utf-8")

    return damage


def config(**fields: Any) -> Damage:
    return edit("config.json", **fields)


def module(index: int, **fields: Any) -> Damage:
    """Change an entry of modules.json."""

    def damage(folder: Path) -> None:
        entries = json.loads((folder / "modules.json").read_text())
        entries[index] |= fields
        write(folder, "modules.json", entries)

    return damage


def tokenizer(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change tokenizer.json."""

    def damage(folder: Path) -> None:
        parsed = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        change(parsed)
        write(folder, "tokenizer.json", parsed)

    return damage


def normalizer(*steps: dict[str, Any]) -> Damage:
    return tokenizer(lambda t: t.update(normalizer={"type": "Sequence", "normalizers": list(steps)}))


def replaced(pattern: dict[str, str], by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": by}


def unigram(pieces: list[str]) -> dict[str, Any]:
    """A model of pieces, of which the most likely ones make up a word."""
    return {"type": "Unigram", "unk_id": 0, "vocab": [["[UNK]", 0.0], *([piece, -1.0] for piece in pieces)]}


def precompiled(by: str) -> dict[str, Any]:
    """SentencePiece's step that replaces characters: it makes each "a" what is given.

    Its index is a double array of the bytes of characters: of a node's byte, where its children lie, and
    whether a replacement ends there.
    """
    index = [0] * 512
    root, child = 256, 256 ^ ord("a")
    index[0] = root << 10
    index[child] = 1 << 10 | 1 << 8 | ord("a")  # its value, 0, is where the replacement begins
    packed = struct.pack("<513I", 4 * len(index), *index) + by.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(packed).decode()}


def nested(depth: int) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def tensors(change: Callable[[dict[str, torch.Tensor]], object], name: str = "model.safetensors") -> Damage:
    """Change the tensors of a file."""

    def damage(folder: Path) -> None:
        loaded = load_file(folder / name)
        change(loaded)
        save_file(loaded, folder / name, metadata={"format": "pt"})

    return damage


def put(name: str, number: float, file: str = "model.safetensors") -> Damage:
    """Put a number into the middle of a tensor."""
    return tensors(lambda t: t[name].view(-1).__setitem__(t[name].numel() // 2, number), file)


def as_dtype(name: str, dtype: torch.dtype) -> Damage:
    return tensors(lambda t: t.update({name: t[name].to(dtype)}))


def header(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change the header of model.safetensors and leave its data as they are."""

    def damage(folder: Path) -> None:
        data = (folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        described = json.loads(data[8 : 8 + size])
        change(described)
        made = json.dumps(described).encode()
        file = struct.pack("<Q", len(made)) + made + data[8 + size :]
        (folder / "model.safetensors").write_bytes(file)

    return damage


def shards(weight_map: Any) -> Damage:
    """Write an index in the place of the weights."""

    def damage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        write(folder, "model.safetensors.index.json", {"weight_map": weight_map})

    return damage


def two_of_each(folder: Path) -> None:
    """Write an index of two shards that have the same tensors."""
    data = (folder / "model.safetensors").read_bytes()
    (folder / "a.safetensors").write_bytes(data)
    (folder / "b.safetensors").write_bytes(data)
    shards({"x": "a.safetensors", "y": "b.safetensors"})(folder)


def outside(folder: Path) -> None:
    """Move a module out of the folder and link to it."""
    target = folder.parent / "elsewhere"
    (folder / "1_Pooling").rename(target)
    (folder / "1_Pooling").symlink_to(target)


def both_names(folder: Path) -> None:
    """Store a tensor with and without the prefix of its family."""
    tensors(lambda t: t.update({f"bert.{WORDS}": t[WORDS].clone()}))(folder)
