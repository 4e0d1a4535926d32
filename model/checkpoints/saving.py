"""Saves an encoder as a checkpoint folder, which is then loaded, served and exported like any other."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoints.checkpoint import load_checkpoint
from model.checkpoints.layout import MODES
from model.checkpoints.weights import is_finite
from model.contract import PoolingMode
from model.encoder.encoder import Encoder
from model.errors import CheckpointError
from model.families.own.headlight import HEADLIGHT
from model.families.own.literal import write_config

_MODULES = "sentence_transformers.models"


def save_encoder(
    encoder: Encoder,
    tokenizer: Tokenizer,
    folder: Path | str,
    *,
    pooling: Sequence[PoolingMode] = (),
    normalize: bool = False,
) -> None:
    """Save an encoder with float32 weights and its tokenizer to a new or empty `folder`.

    `pooling` says how the last hidden state becomes a sentence vector (by default its mean; several modes are
    concatenated), and `normalize` whether that vector gets unit length. The folder is then loaded as the
    service would load it, so that none is left that cannot be served. The loaded encoder gives the same
    hidden states and maps, bit for bit. Raises CheckpointError for an encoder, a tokenizer or a folder that
    cannot be used, and OSError if nothing can be written there.
    """
    folder = Path(folder)
    weights = _weights(encoder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(
            f"{folder} is not empty, and a service may be reading it: save to a new folder, or delete it."
        )
    existed = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _write_json(folder / "config.json", {"model_type": HEADLIGHT.name, **write_config(encoder.config)})
        # Not `save_file`, which allows no other user to read the file.
        (folder / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))
        tokenizer.save(str(folder / "tokenizer.json"))
        if pooling or normalize:
            _write_modules(folder, pooling or ("mean",), normalize=normalize)
        load_checkpoint(folder)
    except BaseException:
        shutil.rmtree(folder)
        if existed:
            folder.mkdir()
        raise


def _weights(encoder: Encoder) -> dict[str, Tensor]:
    """Return the parameters by name, shared ones only once; raises CheckpointError."""
    with torch.device("meta"):
        expected = {name: one.shape for name, one in Encoder(encoder.config).named_parameters()}
    found = {name: one.detach() for name, one in encoder.named_parameters()}
    if odd := sorted(expected.keys() ^ found.keys()):
        raise CheckpointError(
            f"{odd[0]} is a parameter of the encoder or of its config, but not of both: keep further layers "
            "in modules of their own."
        )
    for name, one in found.items():
        if one.shape != expected[name]:
            raise CheckpointError(
                f"{name} is {tuple(one.shape)} instead of {tuple(expected[name])}: save the encoder before a "
                "backend lays out its weights."
            )
        if one.dtype != torch.float32:
            raise CheckpointError(
                f"{name} is {one.dtype}, and only float32 is saved: convert the encoder with `.float()`, and "
                "let the service choose the precision in which it runs."
            )
        if not is_finite(one.cpu()):
            raise CheckpointError(f"{name} has a NaN or an infinity: train with a smaller learning rate.")
    return {name: one.cpu().contiguous() for name, one in found.items()}


def _write_modules(folder: Path, pooling: Sequence[PoolingMode], *, normalize: bool) -> None:
    """Write the files in which sentence-transformers describes how sentence vectors are made."""
    named = {mode: name for name, mode in MODES.items()}
    if odd := [mode for mode in pooling if mode not in named]:
        raise CheckpointError(f"pooling has {odd[0]!r}; the modes that can be saved are {', '.join(named)}.")
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] * normalize)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"{_MODULES}.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    _write_json(folder / "modules.json", modules)
    for _, path in kinds[1:]:
        (folder / path).mkdir()
    _write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": [named[mode] for mode in pooling]})


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
