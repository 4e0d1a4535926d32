"""Commands that convert a model folder to a supported form; they need transformers.

Headlight never opens pickled weights, not even to list them: reading a pickle runs its code.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.files import present, read_json

_SAVED = "from transformers import {0}; {0}.from_pretrained({1}).save_pretrained({2!r})"
_DENSE = (
    "import torch; from safetensors.torch import save_file; "
    "layer = torch.load({}, weights_only=True); "
    "save_file({{k: layer[k] for k in layer if k != 'encoder.weight'}}, {!r})"
)
"""A SparseAutoEncoder stores its decoder's weights twice, in shared memory, which safetensors refuses."""
_WITH = "on a machine with transformers"


def no_weights(folder: Path) -> str:
    """Return the error for a transformer folder without weights, with the command that fixes it."""
    missing = f"{folder / 'model.safetensors'} is missing: only safetensors are read"
    found = [*sorted(p.name for p in folder.glob("*.bin")), *sorted(p.name for p in folder.glob("*.pt"))]
    if not found:
        others = sorted(p.name for pattern in _OTHER_FORMATS for p in folder.glob(pattern))
        if others:
            return f"{missing}, not {others[0][:80]}: use a copy of the model that has safetensors."
        return f"{missing}; fetch the model again, with all its files."
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    pickled = f"{', '.join(name[:80] for name in found[:4])}{more}"
    own = f"`headlight convert {shlex.quote(str(folder))} OUT_DIR`, on a machine with torch"
    other = f"{_encoder(folder)}, {_WITH}"
    return f"{missing}; to convert the pickled weights ({pickled}), run {own}; or {other}."


def no_tokenizer(folder: Path, *, weights: bool) -> str:
    """Return the error for a transformer folder without tokenizer.json, with the command that fixes it.

    With `weights`, the command also converts pickled weights, if there are any.
    """
    missing = f"{folder / 'tokenizer.json'} is missing"
    parts = [name for name in _SLOW if present(folder / name)]
    if not parts:
        return f"{missing}: fetch the model again, with all its files."
    commands = [_command(_SAVED, _tokenizer_class(folder, parts[0]), repr(str(folder)), str(folder))]
    pickled = weights and any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors*"))
    if pickled:
        commands.append(_encoder(folder))
    also = " (and to convert the pickled weights)" if pickled else ""
    return f"{missing}: to make it from {parts[0]}{also}, run {' and '.join(commands)}, {_WITH}."


def no_dense(folder: Path) -> str:
    """Return the error for a linear layer's folder without weights, with the command that fixes it."""
    missing = f"{folder / 'model.safetensors'} is missing: only safetensors are read"
    pickled = folder / "pytorch_model.bin"
    if not present(pickled):
        return f"{missing}; fetch the model again, with all its files."
    command = _command(_DENSE, repr(str(pickled)), str(folder / "model.safetensors"))
    return f"{missing}; to convert {pickled.name}, run {command}, on a machine with torch."


def of_the_hub(name: str, revision: str | None, fetched: Path) -> str:
    """Return the commands that convert a hub model with no supported weights into a folder.

    `fetched` is the folder with its other files.
    """
    own = f"./{name.rpartition('/')[2]}"
    source = repr(name) if revision is None else f"{name!r}, revision={revision!r}"
    parts = next((part for part in _SLOW if present(fetched / part)), "")
    classes = _model_class(fetched), _tokenizer_class(fetched, parts)
    commands = " and ".join(_command(_SAVED, each, source, own) for each in classes)
    return f"{commands}, {_WITH}, and HEADLIGHT_MODEL={own}"


_OTHER_FORMATS = ("*.h5", "*.msgpack", "*.gguf", "*.ot", "*.ckpt*", "*.mlmodel")
"""Weights in formats that transformers can no longer convert to safetensors."""
_SLOW = ("vocab.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model", "vocab.json")
"""The files of tokenizers that were saved without a tokenizer.json."""


_OF_PIECES = tuple(f"{name}Tokenizer" for name in ("Albert", "Camembert", "DebertaV2", "T5", "XLMRoberta"))
"""Classes that read a SentencePiece file; without one, their tokenizer has only a few special tokens."""


def _encoder(folder: Path) -> str:
    return _command(_SAVED, _model_class(folder), repr(str(folder)), str(folder))


def _model_class(folder: Path) -> str:
    """Return the class that a checkpoint was saved from: AutoModel would drop the layers it predicts with."""
    listed = _read(folder / "config.json").get("architectures")
    name = str(listed[0]) if isinstance(listed, list) and listed else ""
    return name if name.isascii() and name.isidentifier() else "AutoModel"


def _tokenizer_class(folder: Path, vocabulary: str) -> str:
    """Return the class that reads this vocabulary file; AutoTokenizer may choose one that reads another."""
    configs = (_read(folder / name) for name in ("tokenizer_config.json", "config.json"))
    named = next((str(one["tokenizer_class"]) for one in configs if one.get("tokenizer_class")), None)
    guessed = named is None or named.removesuffix("Fast") in _OF_PIECES
    return "BertTokenizer" if vocabulary == "vocab.txt" and guessed else "AutoTokenizer"


def _read(file: Path) -> Mapping[str, Any]:
    """Read an object from a file, empty if it is faulty: faults are reported elsewhere."""
    try:
        config: Mapping[str, Any] = read_json(file, optional=True)
    except CheckpointError:
        return {}
    return config


def _command(program: str, *values: str) -> str:
    return f"`python -c {shlex.quote(program.format(*values))}`"
