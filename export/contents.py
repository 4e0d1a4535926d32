"""The small files of an exported folder: copies of the model's own files, and the manifest."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from export.errors import ExportError
from model.checkpoints.folder import ModelFolder
from model.checkpoints.layout import MODES, Layout
from model.checkpoints.weights import weight_files
from model.files import read_json
from model.keys.files import HYBRID, SENTENCE_FILES
from model.onnx.file import MANIFEST

# Files to copy, if they exist, from the model's folder, the transformer's, and each other module's.
_GENERAL = (
    *("modules.json", "config_sentence_transformers.json", "artifact.metadata"),
    *("LICENSE", "LICENSE.txt", "NOTICE"),
)
_TRANSFORMER = (
    "config.json",
    *SENTENCE_FILES,
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "bpe.codes",
    *HYBRID,
)
_MODULE = ("config.json", "model.safetensors")
_POOLING, _PROJECTION = "1_Pooling", "projection"


def copy_contents(source: Path, layout: Layout, target: Path) -> None:
    """Copy the files that `read_layout` and the tokenizer read, to the same places as in the model's folder.

    This includes the weights of the linear layers after the pooling, but not those of the transformer.
    """
    folders = {source: _GENERAL, **dict.fromkeys(_other_modules(source), _MODULE)}
    folders[layout.transformer] = (*folders.get(layout.transformer, ()), *_TRANSFORMER)
    places = {folder: target / _within(source, folder) for folder in folders}
    for folder, names in folders.items():
        place = places[folder]
        for name in names:
            if (folder / name).is_file():
                place.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, place / name)


def add_tokenizer(folder: ModelFolder, target: Path) -> None:
    """Write the tokenizer.json of a model without one, whose tokenizer was built from older files."""
    place = target / _within(folder.path, folder.layout.transformer) / "tokenizer.json"
    if not place.exists():
        folder.tokenizer.save(place)


def add_projection(folder: ModelFolder, target: Path) -> None:
    """Write a projection that is stored among the encoder's weights as a module after the pooling.

    A folder without modules also gets a module for its pooling. Raises ExportError for modules without a
    pooling, and for files that count only beside modules.
    """
    if folder.projection is None:
        return
    file = target / "modules.json"
    modules = read_json(file, kind=list) if file.is_file() else _make_modules(folder, target)
    pooled = [str(entry["type"]).rpartition(".")[2] for entry in modules]
    if "Pooling" not in pooled:
        raise ExportError(f"{folder.path} has a projection, but no Pooling in modules.json: add a Pooling.")
    outputs, inputs = folder.projection.weight.shape
    identity = "torch.nn.modules.linear.Identity"
    config = {"in_features": inputs, "out_features": outputs, "bias": False, "activation_function": identity}
    place = target / _PROJECTION
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"linear.weight": folder.projection.weight}, place / "model.safetensors")
    entry = {"path": _PROJECTION, "type": "sentence_transformers.models.Dense"}
    modules.insert(pooled.index("Pooling") + 1, entry)
    numbered = [{**one, "idx": i, "name": str(i)} for i, one in enumerate(modules)]
    file.write_text(json.dumps(numbered, indent=2), encoding="utf-8")


def _make_modules(folder: ModelFolder, target: Path) -> list[dict[str, Any]]:
    """Write the pooling of a folder without modules; returns the modules that are equivalent to it."""
    unread = [name for name in SENTENCE_FILES if (target / name).exists()]
    if unread:
        raise ExportError(
            f"{folder.path} has a projection but no modules.json, without which {', '.join(unread)} cannot "
            f"be read: add modules.json with a Transformer and a Pooling, or remove {', '.join(unread)}."
        )
    (mode,) = folder.layout.pooling
    named = next(name for name, one in MODES.items() if one == mode)
    place = target / _POOLING
    place.mkdir()
    config = {"embedding_dimension": folder.config.hidden_size, "pooling_mode": named, "include_prompt": True}
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kinds = {"": "Transformer", _POOLING: "Pooling"}
    return [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]


def _other_modules(source: Path) -> Iterator[Path]:
    """Yield the folders of the modules after the transformer; some modules have none."""
    for entry in read_json(source / "modules.json", optional=True, kind=list):
        if entry["path"] and not str(entry["type"]).endswith("Transformer"):
            yield source / entry["path"]


def source_weights(layout: Layout) -> list[Path]:
    """List the weight files of a model, in order."""
    others = (folder / "model.safetensors" for folder in layout.weighted)
    hybrid = (layout.transformer / file for file in HYBRID if layout.hybrid)
    return [*weight_files(layout.transformer), *others, *hybrid]


def digests(files: list[Path], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the SHA-256 and the size in bytes of files, keyed by their names relative to a folder."""
    found = {}
    for file in files:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        found[_within(folder, file).as_posix()] = {"sha256": digest, "size": file.stat().st_size}
    return found


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest: what a folder contains and what it was made from."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")


def _within(folder: Path, part: Path) -> Path:
    """Return a path relative to a folder; links are not resolved, since a hub's cache consists of them."""
    return part.relative_to(folder)
