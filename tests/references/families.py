"""Small checkpoints of random weights of any family, and their hidden states and maps in `transformers`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.checkpoints import write_tokenizer

Array = NDArray[np.float64]

VOCABULARY = 100
"""Ids below this are tokens of the tokenizer that every checkpoint gets."""


@dataclass(frozen=True)
class Written:
    """A checkpoint in a folder, and the model of `transformers` that was saved there."""

    folder: Path
    model: Any
    takes_segments: bool

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        inputs = {"input_ids": torch.tensor([list(ids)]), "attention_mask": torch.ones(1, len(ids)).long()}
        if self.takes_segments:
            inputs["token_type_ids"] = torch.tensor([list(segments)])
        with torch.inference_mode():
            output = self.model(**inputs, output_hidden_states=True, output_attentions=True)
        assert output.attentions, "the reference computed no attention"
        assert all(map_ is not None and map_.numel() for map_ in output.attentions)
        return torch.cat(output.hidden_states).numpy(), torch.cat(output.attentions).numpy()


def write_model(
    folder: Path,
    name: str,
    *,
    architecture: str | None = None,
    seed: int = 0,
    spread: float = 1.0,
    **options: Any,
) -> Written:
    """Save a small model of random weights, in which every parameter counts, with a tokenizer.

    `name` is what the names of its classes begin with, such as "Roberta"; `options` go to its config.
    `spread` is the deviation of a product's outputs, for inputs of deviation 1.
    """
    import transformers

    write_tokenizer(folder)
    special = {"pad_token_id": 0} if name in ("EuroBert", "ModernBert") else {}
    config = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, **special, **options)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(transformers, architecture or f"{name}Model")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.add_(noise * (0.3 if parameter.dim() == 1 else spread * parameter.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    segments = (getattr(config, "type_vocab_size", 0) or 0) > 1  # of one, it takes the only row itself
    return Written(folder, model, takes_segments=segments)


def change_config(folder: Path, **changes: Any) -> None:
    """Change fields of a folder's config.json; None removes one."""
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | changes
    kept = {name: value for name, value in config.items() if value is not None}
    file.write_text(json.dumps(kept), encoding="utf-8")
