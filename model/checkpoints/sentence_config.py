"""Reads what sentence-transformers writes about a transformer: longest text, output and loading."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from model.errors import CheckpointError
from model.fields import switch_of
from model.files import read_json, shown
from model.keys.config import CONFIG
from model.keys.files import LOADING, find_sentence_file
from model.keys.key import find_key
from model.tokenization.tokenizer import Side

_NO_LIMIT = 10**9
"""Limits from here on mean that there is none: tokenizers without one store a number of thirty digits."""
_OUTPUTS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "fill-mask": ("logits", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
    "text-generation": ("logits", "causal_logits"),
}
"""By task: the output of the transformer and the `module_output_name` that are served; no others are."""
_LAST = (["last_hidden_state"], ["hidden_states", -1])
_CALLING = ("padding", "padding_side", "pad_to_multiple_of", "max_length", "verbose", "return_tensors")
_CALLED = {"add_special_tokens": (True,), "truncation": (True, "longest_first"), "stride": (0,)}
"""Arguments of a tokenizer's call, and the only values of them that are served."""


@dataclass(frozen=True)
class SentenceConfig:
    """The longest text in tokens (None: no limit), lower-casing, and the tokenizer's settings.

    Longer texts are truncated at `truncation_side`; None leaves the side to the tokenizer's file. `task` is
    what the transformer was saved for. If inputs are messages of a chat template, `messages` is the form of
    their content, and `template` has the variables that the template is rendered with.
    """

    max_length: int | None
    lower_case: bool = False
    tokenizer_settings: Mapping[str, Any] = field(default_factory=dict)
    truncation_side: Side | None = None
    task: str = "feature-extraction"
    messages: Literal["flat", "structured"] | None = None
    template: Mapping[str, Any] = field(default_factory=dict)


def read_sentence_config(transformer: Path, *, plain: bool = False) -> SentenceConfig:
    """Read a transformer's sentence_*_config.json and its tokenizer's settings; raises CheckpointError.

    In a `plain` folder that file is missing, or sentence-transformers does not read it.
    """
    tokenizer_file = transformer / "tokenizer_config.json"
    settings = read_json(tokenizer_file, optional=True)
    file = find_sentence_file(transformer)
    config = {} if plain else read_json(file, optional=True)
    given = _arguments(file, config, "processor_kwargs", "tokenizer_args")
    messages = _check_output(file, config)
    _check_loading(file, transformer, config)
    limits = [
        (file, "processing_kwargs.text.max_length", _calling(file, config).get("max_length")),
        (file, "model_max_length", given.get("model_max_length")),
        (file, "max_seq_length", config.get("max_seq_length")),
        (tokenizer_file, "model_max_length", settings.get("model_max_length")),
        (tokenizer_file, "max_len", settings.get("max_len")),
    ]
    limit = next((one for one in limits if one[2] is not None), None)
    merged = settings | {name: value for name, value in given.items() if name not in LOADING}
    side = merged.get("truncation_side")
    if side not in (None, "left", "right"):
        raise CheckpointError(
            f"{tokenizer_file}: truncation_side is {shown(side)}; it must be left or right."
        )
    return SentenceConfig(
        None if limit is None else _length(*limit),
        switch_of(file, config, "do_lower_case", default=False),
        merged,
        side,
        config.get("transformer_task", "feature-extraction"),
        messages,
        _rendering(file, config),
    )


def _length(file: Path, name: str, value: Any) -> int | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or math.isnan(value) or value < 1 or (value < _NO_LIMIT and value != int(value)):
        raise CheckpointError(
            f"{file}: {name} is {shown(value)}; it must be a whole number of tokens, at least 1."
        )
    return int(value) if value < _NO_LIMIT else None


def _arguments(file: Path, config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Read an object of arguments; if it has several names, the last one that is not empty counts."""
    found: dict[str, Any] = {}
    for name in names:
        value = config.get(name) or {}
        if not isinstance(value, dict):
            raise CheckpointError(f"{file}: {name} is {shown(value)}; it must be an object.")
        found = value or found
    return found


def _check_output(file: Path, config: Mapping[str, Any]) -> Literal["flat", "structured"] | None:
    """Return the form of the messages that inputs consist of, None for plain texts.

    Raises CheckpointError for modalities and outputs that are not served.
    """
    task = config.get("transformer_task", "feature-extraction")
    if not isinstance(task, str) or task not in _OUTPUTS:
        raise CheckpointError(
            f"{file}: transformer_task is {shown(task)}; it must be one of {', '.join(_OUTPUTS)}."
        )
    output, name = _OUTPUTS[task]
    modalities = config.get("modality_config")
    if modalities is None:
        return None
    text = modalities.get("text") if isinstance(modalities, dict) else None
    read = text.get("method_output_name") if isinstance(text, dict) else None
    path = read if isinstance(read, list) else [read]
    right = path in _LAST if output == "last_hidden_state" else path == [output]
    messages = modalities.get("message") if isinstance(modalities, dict) else None
    form = messages.get("format") if isinstance(messages, dict) else None
    pairs = form in ("flat", "structured") and task == "text-generation"
    if (
        not isinstance(text, dict)
        or ("message" in modalities and not pairs)
        or text.get("method") != "forward"
        or not right
    ):
        raise CheckpointError(
            f"{file}: modality_config is {shown(modalities)}; only the modality text, with the method "
            f"forward and the output {output}, is served: export the model as an ONNX graph that ends at "
            f"the output it was trained with, or train it with {output}."
        )
    if (given := config.get("module_output_name")) != name:
        raise CheckpointError(
            f"{file}: module_output_name is {shown(given)}; for {task} only {name} is served: set it to "
            f"{name}, and have the next module read {name}."
        )
    return form if pairs else None


def _rendering(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the variables for a chat template; raises CheckpointError for settings of the tokenizer."""
    given = _arguments(file, _arguments(file, config, "processing_kwargs"), "chat_template")
    for name in ("padding", "truncation", "max_length", "return_tensors"):
        if name in given:
            raise CheckpointError(
                f"{file}: processing_kwargs.chat_template has {name} {shown(given[name])}; the tokenizer's "
                "settings belong in processing_kwargs.text: move it there."
            )
    return given


def _check_loading(file: Path, transformer: Path, config: Mapping[str, Any]) -> None:
    """Raise CheckpointError for arguments of loading that change the encoder."""
    raw = read_json(transformer / "config.json", optional=True)
    for given in ("config_kwargs", "config_args", "model_kwargs", "model_args"):
        for name, value in _arguments(file, config, given).items():
            key = find_key(name, CONFIG)
            same = raw.get(name) == value or (key is not None and key.verdict == "harmless")
            if name in LOADING or (same and given.startswith("config")):
                continue
            raise CheckpointError(
                f"{file}: {given} has {name} {shown(value)}, but config.json has {shown(raw.get(name))}: "
                "load the model with sentence-transformers, and save its weights and its config.json again."
            )


def _calling(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Read the arguments that the tokenizer is called with; raises CheckpointError for unserved ones."""
    given = _arguments(file, config, "processing_kwargs")
    called = {**_arguments(file, given, "text"), **_arguments(file, given, "common")}
    for name, value in called.items():
        allowed = _CALLED.get(name)
        if name in _CALLING or name.startswith("return_") or (allowed is not None and value in allowed):
            continue
        served = f"only {' or '.join(map(shown, allowed))} is served" if allowed else "this is not served"
        raise CheckpointError(
            f"{file}: processing_kwargs has {name} {shown(value)}; {served}: remove it, and if its vectors "
            "depend on it, save the model again."
        )
    return called
