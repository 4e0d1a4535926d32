"""The logit lens by its definition: the head of a model of `transformers` on each of its hidden states."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.families import Written

_FINAL_NORMS = ("final_norm", "norm", "LayerNorm", "ln")
"""What the norm after the last block is called, of the base model or of its encoder."""


def lens_logits(written: Written, ids: Sequence[int], segments: Sequence[int]) -> NDArray[np.float64]:
    """The logits (L + 1, N, V) of a model for masked words, whose head reads each hidden state in turn.

    The last are those of the model itself; a final norm is applied to all states before.
    """
    model = written.model
    inputs = {"input_ids": torch.tensor([list(ids)]), "attention_mask": torch.ones(1, len(ids)).long()}
    if written.takes_segments:
        inputs["token_type_ids"] = torch.tensor([list(segments)])
    norm = final_norm(model.base_model)
    with torch.inference_mode():
        whole = model(**inputs, output_hidden_states=True)
        found = []
        for state in whole.hidden_states[:-1]:
            seen = state if norm is None else norm(state)

            def replaced(_module: Any, _args: Any, output: Any, seen: Any = seen) -> Any:
                output.last_hidden_state = seen
                return output

            handle = model.base_model.register_forward_hook(replaced)
            try:
                found.append(model(**inputs).logits[0])
            finally:
                handle.remove()
    return torch.stack([*found, whole.logits[0]]).double().numpy()


def final_norm(base: Any) -> Any:
    """The norm that a model applies after its last block; None if it has none."""
    for owner in (base, getattr(base, "encoder", None)):
        for name in _FINAL_NORMS:
            if owner is not None and hasattr(owner, name):
                return getattr(owner, name)
    return None


def largest_words(logits: NDArray[np.float64], top_k: int) -> NDArray[np.int64]:
    """The ids of the largest logits along the last axis, largest first, ties by id."""
    return np.argsort(-logits, axis=-1, kind="stable")[..., :top_k]


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of words along the last axis."""
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))
