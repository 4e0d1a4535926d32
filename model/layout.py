"""What a checkpoint folder says of itself: a Hugging Face folder, or a sentence-transformers one.

sentence-transformers adds `modules.json`, a list of modules and their folders, and writes it in two
ways: before its release 5.4 with dotted types such as `sentence_transformers.models.Pooling` and
booleans `pooling_mode_*`, since then with other dotted types and `pooling_mode` as a word or a list.
The last part of the type is what both have in common.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.types import PoolingMode

# In the order in which sentence-transformers concatenates them.
_MODES_BEFORE_5_4: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
_MODES: dict[str, PoolingMode] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")


@dataclass(frozen=True)
class Layout:
    """Where the parts of a model lie, and how its sentence vectors are made.

    `transformer` holds config.json, the weights and the tokenizer; `dense` are the folders of linear
    layers after the pooling; `max_length` is the model's own limit in tokens, special ones included,
    None when the folder does not name one; `lower_case` asks for lower-casing before tokenizing.
    """

    transformer: Path
    pooling: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True
    dense: tuple[Path, ...] = ()
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None


def read_layout(folder: Path) -> Layout:
    """Read the folder of a checkpoint; raises CheckpointError when it is not one."""
    modules_file = folder / "modules.json"
    if not modules_file.exists():
        return Layout(transformer=folder, max_length=_max_length(folder, {}))
    modules = _modules(folder, modules_file)
    paths = dict(modules)
    transformer = paths["Transformer"]
    sentence_config = read_json(transformer / "sentence_bert_config.json", optional=True)
    pooling, include_prompt = _pooling(paths.get("Pooling"))
    general = read_json(folder / "config_sentence_transformers.json", optional=True)
    return Layout(
        transformer=transformer,
        pooling=pooling,
        include_prompt=include_prompt,
        dense=tuple(path for kind, path in modules if kind == "Dense"),
        normalize="Normalize" in paths,
        max_length=_max_length(transformer, sentence_config),
        lower_case=bool(sentence_config.get("do_lower_case", False)),
        prompts=dict(general.get("prompts") or {}),
        default_prompt_name=general.get("default_prompt_name"),
    )


def read_json(path: Path, *, optional: bool = False, kind: type = dict) -> Any:
    """Read a JSON file that holds a `kind`, empty when `optional` and missing. Raises CheckpointError."""
    if optional and not path.exists():
        return kind()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if not isinstance(content, kind):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a {kind.__name__}.")
    return content


def _modules(folder: Path, file: Path) -> list[tuple[str, Path]]:
    """Read the kinds and folders of modules.json, which must stand in the order of _ORDER."""
    entries = read_json(file, kind=list)
    try:
        modules = [(str(entry["type"]).rpartition(".")[2], folder / entry["path"]) for entry in entries]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{file}: every module needs a type and a path ({error}).") from error
    kinds = [kind for kind, _ in modules]
    expected = [kind for kind in _ORDER for _ in range(kinds.count(kind))]
    once = all(kinds.count(kind) <= 1 for kind in _ORDER if kind != "Dense")
    if "Transformer" not in kinds or kinds != expected or not once:
        raise CheckpointError(
            f"{file} lists {', '.join(kinds) or 'nothing'}: headlight serves one Transformer, then one "
            "Pooling, any number of Dense and one Normalize, in this order."
        )
    return modules


def _pooling(folder: Path | None) -> tuple[tuple[PoolingMode, ...], bool]:
    if folder is None:
        return ("mean",), True
    config = read_json(folder / "config.json")
    named = config.get("pooling_mode")
    if named is None:
        modes = tuple(mode for key, mode in _MODES_BEFORE_5_4.items() if config.get(key))
        return modes or ("mean",), bool(config.get("include_prompt", True))
    names = [named] if isinstance(named, str) else list(named)
    unknown = [name for name in names if name not in _MODES]
    if unknown or not names:
        raise CheckpointError(
            f"{folder / 'config.json'}: pooling_mode {named!r} is not made of {list(_MODES)}."
        )
    return tuple(_MODES[name] for name in names), bool(config.get("include_prompt", True))


def _max_length(transformer: Path, sentence_config: Mapping[str, Any]) -> int | None:
    """The model's own limit: sentence-transformers' where it is given, else the tokenizer's."""
    own = sentence_config.get("max_seq_length")
    if own is None:
        own = read_json(transformer / "tokenizer_config.json", optional=True).get("model_max_length")
    if own is not None and not isinstance(own, int | float):
        raise CheckpointError(f"{transformer}: the maximum length {own!r} is not a number.")
    # Tokenizers without a limit store a number of thirty digits.
    return int(own) if own is not None and own < 10**9 else None
