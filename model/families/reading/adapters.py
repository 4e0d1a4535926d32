"""Reads the adapters of jina-embeddings-v3 in a `config.json`."""

from collections.abc import Mapping
from typing import Any

from model.encoder.parts import Adapters
from model.errors import CheckpointError
from model.families.reading.rotary import positive
from model.fields import switch, whole
from model.files import shown

_TASKS = 64


def read_adapters(config: Mapping[str, Any]) -> Adapters | None:
    """Read the tasks and the size of adapters, None if the checkpoint has none; raises CheckpointError."""
    tasks = config.get("lora_adaptations")
    if tasks is None or not switch(config, "load_trained_adapters", default=False):
        return None
    named = isinstance(tasks, list) and all(isinstance(task, str) and task for task in tasks)
    if not named or not 0 < len(tasks) <= _TASKS or len(set(tasks)) < len(tasks):
        raise CheckpointError(
            f"lora_adaptations is {shown(tasks)}; it must be a list of 1 to {_TASKS} names, each once."
        )
    rank = whole(config, "lora_rank", like="hidden_size", default=4)
    return Adapters(tuple(tasks), rank, positive({"lora_alpha": 1, **config}, "lora_alpha"))
