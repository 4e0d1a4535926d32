"""Merges the adapters of one task into the weights, for a model that serves this task alone."""

from dataclasses import replace

import torch

from model.encoder.encoder import Encoder
from model.encoder.linear import Linear


def merge_task(encoder: Encoder, task: int | None) -> Encoder:
    """Return an encoder without adapters whose weights are W + s·BA of a task, or W if it is None.

    It shares the tensors that have no update with `encoder`, which must not be prepacked.
    """
    with torch.device("meta"):
        merged = Encoder(replace(encoder.config, adapters=None))
    weights = {name: x for name, x in encoder.state_dict().items() if name in merged.state_dict()}
    if task is not None:
        for name, module in encoder.named_modules(remove_duplicate=False):
            if isinstance(module, Linear) and module.adapters is not None:
                weights[f"{name}.weight"] = module.weight + module.adapters.update(task)
        for name, adapters in encoder.embeddings.table_adapters.items():
            weights[f"embeddings.{name}"] = weights[f"embeddings.{name}"] + adapters.update(task)
    merged.load_state_dict(weights, assign=True)
    return merged.requires_grad_(requires_grad=False).eval()
