"""Checkpoints under the names of code that is not in `transformers`, and their encoders in numpy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.references.checkpoints import write_tokenizer
from tests.references.encoder import NaiveEncoder

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Original:
    """A checkpoint in a folder, and the encoder in it."""

    folder: Path
    encoder: NaiveEncoder

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        several = self.encoder.config.segments > 1
        states, maps = self.encoder(ids, segments if several else [0] * len(ids))
        return np.stack(states), maps


def random_tensors(shapes: Mapping[str, tuple[int, ...]], *, seed: int = 0) -> dict[str, Array]:
    """Tensors of float32 values, spread so that products keep the size of their inputs; norms are near 1."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes.items():
        spread = 0.3 if len(shape) == 1 else shape[-1] ** -0.5
        centre = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
        tensor = centre + spread * generator.standard_normal(shape)
        tensors[name] = tensor.astype(np.float32).astype(np.float64)
    return tensors


def write_original(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Array],
    encoder: Any,
    names: Mapping[str, Sequence[str]],
) -> Original:
    """Save a config.json and tensors, with a tokenizer.

    `encoder` has the fields of an encoder's config. `names` maps its parameters to tensors, whose rows are
    put one below the other. Tensors called "name:0", "name:1" and so on are saved as one, "name".
    """
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    parts: dict[str, list[Array]] = {}
    for name in sorted(tensors):
        parts.setdefault(name.partition(":")[0], []).append(tensors[name])
    stored = {name: np.concatenate(some).astype(np.float32) for name, some in parts.items()}
    save_file(stored, folder / "model.safetensors")
    weights = {ours: np.concatenate([tensors[name] for name in theirs]) for ours, theirs in names.items()}
    return Original(folder, NaiveEncoder(encoder, weights))
