"""EmbeddingGemma 2 in `transformers`, with the hidden states before its projection."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.families import Written, write_model

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TextModel(Written):
    """The part for texts."""

    def run(self, ids: Sequence[int], segments: Sequence[int]) -> tuple[Array, Array]:
        """Hidden states (L + 1, N, C) and attention weights (L, H, N, N) of one input, alone."""
        states: list[torch.Tensor] = []
        model = self.model

        def read(_: Any, args: Any) -> None:
            states.append(args[0])

        keep = [layer.register_forward_pre_hook(read) for layer in model.layers]
        keep += [model.norm.register_forward_hook(lambda _, __, output: states.append(output))]
        try:
            with torch.inference_mode():
                output = model(torch.tensor([list(ids)]), output_attentions=True)
        finally:
            for hook in keep:
                hook.remove()
        return torch.cat(states).numpy(), torch.cat(output.attentions).numpy()


def write_text(folder: Path, **options: Any) -> TextModel:
    """Save a small one of random weights, in which every parameter and every scale counts."""
    written = write_model(folder, "EmbeddingGemma2Text", **options)
    with torch.no_grad():
        for number, layer in enumerate(written.model.layers):
            layer.layer_scalar.fill_(0.7 + 0.2 * number)
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                norm.weight.mul_(0.5)  # as trained ones: they are in the place of a scale
    written.model.save_pretrained(folder)
    return TextModel(folder, written.model, takes_segments=False)
