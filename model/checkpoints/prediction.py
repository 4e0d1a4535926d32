"""Loads the layers above the encoder that a checkpoint predicts with, if its architecture has any."""

from collections.abc import Mapping
from typing import Any

from model.checkpoints.cross_encoder import LogitScore, is_cross_encoder, read_activation
from model.checkpoints.exported_prediction import LONGEST_LABEL
from model.checkpoints.folder import ModelFolder
from model.checkpoints.late_interaction import STANFORD
from model.checkpoints.weights import FLOATS, Stored, read_rows, read_tensors
from model.contract import FloatArray, HeadInfo, HeadKind, ScoreFunction
from model.errors import CheckpointError
from model.families.family import Family
from model.families.predictors import LATE_INTERACTION, NEXT_WORD, LinearNames, NormNames, PredictorTable
from model.files import shown
from model.heads.predictor import LayerNorm, Linear, Predictor

_KINDS: dict[str, HeadKind] = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "token_classification",
    "ForMaskedLM": "masked_words",
    "ForPreTraining": "masked_words",
    STANFORD: "late_interaction",
}
"""The endings of architectures' names, and what such architectures predict."""
_PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
_MOST_LABELS = 2**16


def find_kind(config: Mapping[str, Any]) -> HeadKind | None:
    """Return what a checkpoint with this config.json predicts; None if it is an encoder alone."""
    listed = config.get("architectures")
    name = str(listed[0]) if isinstance(listed, list) and listed else ""
    return next((kind for end, kind in _KINDS.items() if name.endswith(end)), None)


def read_predictor(folder: ModelFolder, stored: Mapping[str, Stored]) -> Predictor | None:
    """Load the layers that a checkpoint predicts with; `stored` has its tensors by the family's names.

    Returns None for a plain encoder, and for a kind of prediction that its family has no table for. Words are
    predicted only if all tensors for this are stored: encoders that were trained to predict words may name
    that architecture without them. Raises CheckpointError, also for a cross-encoder that is not supported:
    run as a sentence encoder, it would rank texts by meaningless vectors.
    """
    if folder.layout.logit_score is not None:
        return _read_logit_score(folder, folder.layout.logit_score, stored)
    kind = find_kind(folder.raw)
    table = None if kind is None else find_table(folder.family, kind)
    if (kind != "classification" or table is None) and is_cross_encoder(folder.path, folder.raw):
        raise CheckpointError(
            f"{folder.path} says that it is a CrossEncoder of sentence-transformers. headlight runs a "
            "CrossEncoder only if its architecture in config.json ends in ForSequenceClassification (in "
            "most families), or if it has the module LogitScore: use the files as CrossEncoder saved them."
        )
    if kind is None or table is None or folder.layout.token_dense:
        return None
    if missing := [layer.weight[0] for layer in table.layers if _stored(layer.weight, stored) is None]:
        if kind == "masked_words":
            return None
        raise CheckpointError(
            f"{folder.layout.transformer}: config.json says {folder.raw['architectures'][0]}, but the "
            f"weights lack {', '.join(missing)}: use files from the same checkpoint."
        )
    try:
        layers = tuple(_layer(layer, stored, folder.raw) for layer in table.layers)
        outputs = len(layers[-1].weight)
        chosen = read_activation(folder.path, folder.raw, outputs) if kind == "classification" else None
        info = _describe(kind, folder.raw, outputs, chosen)
        pooling, padding = table.pooling(folder.raw), table.padding(folder.raw)
    except CheckpointError as error:
        raise CheckpointError(f"{folder.layout.transformer}: {error}") from error
    _check_shapes(folder, layers)
    return Predictor(info, pooling, layers, padding)


def _read_logit_score(folder: ModelFolder, score: LogitScore, stored: Mapping[str, Stored]) -> Predictor:
    """Load the rows of the vocabulary's matrix that make a score, as one layer; raises CheckpointError.

    With two rows, the difference of their products with a vector is the product with their difference.
    """
    file, config = folder.layout.transformer / "config.json", folder.raw
    listed = config.get("architectures")
    if not (isinstance(listed, list) and listed and str(listed[0]).endswith("ForCausalLM")):
        raise CheckpointError(
            f"{file}: architectures is {shown(listed)}; LogitScore needs a model that predicts the next "
            "token, whose architecture ends in ForCausalLM: use the files as CrossEncoder saved them."
        )
    if (cap := config.get("final_logit_softcapping")) is not None:
        raise CheckpointError(
            f"{file}: final_logit_softcapping is {shown(cap)}; headlight serves LogitScore only without it: "
            "use a model without softcapping."
        )
    names = NEXT_WORD.layers[0].weight
    matrix = _stored(names, stored)
    if matrix is None or (matrix.name.endswith(names[1]) and config.get("tie_word_embeddings") is False):
        raise CheckpointError(
            f"{folder.layout.transformer}: config.json says {listed[0]}, but the weights lack {names[0]}: "
            "use files from the same checkpoint."
        )
    for name, number in score.tokens.items():
        if number >= matrix.shape[0]:
            raise CheckpointError(
                f"{score.file}: {name} is {number}, but the model has only {matrix.shape[0]} tokens: use "
                "files from the same model."
            )
    weight = read_rows(matrix, list(score.tokens.values()))
    if len(weight) > 1:
        weight = weight[:1] - weight[1:]
    layers = (Linear(weight, None),)
    _check_shapes(folder, layers)
    chosen = read_activation(folder.path, config, 1) or "sigmoid"
    return Predictor(HeadInfo("classification", ("LABEL_0",), chosen), "last", layers)


def find_table(family: Family, kind: HeadKind) -> PredictorTable | None:
    """Return the table of the layers that predict this kind in a family, None if there is none."""
    return LATE_INTERACTION if kind == "late_interaction" else family.predictors.get(kind)


def has_classifier(family: Family, stored: Mapping[str, Stored]) -> bool:
    """Whether a checkpoint has all weights of a classifier of texts, whatever its config.json says."""
    table = find_table(family, "classification")
    return table is not None and all(_stored(layer.weight, stored) for layer in table.layers)


def used_names(folder: ModelFolder, kind: HeadKind, stored: Mapping[str, Stored]) -> set[str]:
    """Return the keys of `stored` from which the layers that predict this kind are read."""
    table = NEXT_WORD if folder.layout.logit_score else find_table(folder.family, kind)
    if table is None:
        return set()
    found = (_find(names, stored) for layer in table.layers for names in (layer.weight, layer.bias))
    return {name for name in found if name is not None}


def _stored(names: tuple[str, ...], stored: Mapping[str, Stored]) -> Stored | None:
    name = _find(names, stored)
    return None if name is None else stored[name]


def _find(names: tuple[str, ...], stored: Mapping[str, Stored]) -> str | None:
    return next((name for name in names if name in stored), None)


def _layer(
    names: LinearNames | NormNames, stored: Mapping[str, Stored], config: Mapping[str, Any]
) -> Linear | LayerNorm:
    weight, bias = (_read(_stored(listed, stored)) for listed in (names.weight, names.bias))
    if isinstance(names, NormNames):
        return LayerNorm(weight, bias, names.epsilon(config))
    activation = names.activation
    return Linear(weight, bias, activation if isinstance(activation, str) else activation(config))


def _read(one: Stored | None) -> FloatArray | None:
    """Read a tensor as float32; without a copy if it is float32."""
    if one is None:
        return None
    if one.dtype not in FLOATS:
        raise CheckpointError(f"{one.name} is {one.dtype}; it must be one of {', '.join(FLOATS)}.")
    array: FloatArray = read_tensors([one])[one.name].float().numpy()
    return array


def _check_shapes(folder: ModelFolder, layers: tuple[Linear | LayerNorm, ...]) -> None:
    """Raise CheckpointError unless each layer takes the size that the one before it returns."""
    size = folder.config.hidden_size
    for number, layer in enumerate(layers):
        shape, rows = layer.weight.shape, len(layer.weight)
        expected = (size,) if isinstance(layer, LayerNorm) else (rows, size)
        if shape != expected or (layer.bias is not None and layer.bias.shape != (rows,)):
            raise CheckpointError(
                f"{folder.layout.transformer}: layer {number} of the prediction head has the shape {shape} "
                f"instead of {expected}: use files from the same checkpoint."
            )
        size = rows


def _describe(
    kind: HeadKind, config: Mapping[str, Any], outputs: int, activation: ScoreFunction | None
) -> HeadInfo:
    """Describe a head; `activation` is the function that a cross-encoder's folder names, None for others."""
    if kind in ("masked_words", "late_interaction"):
        return HeadInfo(kind, size=outputs)
    labels = _labels(config, outputs)
    if kind == "token_classification":
        return HeadInfo(kind, labels, "softmax")
    problem = config.get("problem_type")
    if problem is not None and problem not in _PROBLEMS:
        raise CheckpointError(f"problem_type is {shown(problem)}; it must be one of {', '.join(_PROBLEMS)}.")
    if activation is not None:
        return HeadInfo(kind, labels, activation)
    if problem == "regression":
        return HeadInfo(kind, labels, "identity")
    several = problem == "multi_label_classification" or outputs == 1
    return HeadInfo(kind, labels, "sigmoid" if several else "softmax")


def _labels(config: Mapping[str, Any], outputs: int) -> tuple[str, ...]:
    """Read the names of the classes; raises CheckpointError."""
    given, count = config.get("id2label"), config.get("num_labels")
    if isinstance(given, dict) and count == outputs != len(given):
        given = None  # transformers then makes new labels
    if given is None:
        return tuple(f"LABEL_{i}" for i in range(outputs))
    if not isinstance(given, dict) or len(given) > _MOST_LABELS:
        raise CheckpointError(
            f"id2label is {shown(given)}; it must map numbers to at most {_MOST_LABELS} names."
        )
    names = [given.get(str(i), given.get(i)) for i in range(outputs)]
    if len(given) != outputs or not all(isinstance(name, str | int) for name in names):
        raise CheckpointError(
            f"id2label names {len(given)} labels, but the weights predict {outputs}: it must map each number "
            f"from 0 to {outputs - 1} to a name."
        )
    labels = tuple(map(str, names))
    if (longest := max(map(len, labels))) > LONGEST_LABEL:
        raise CheckpointError(
            f"id2label has a name of {longest} characters; the limit is {LONGEST_LABEL}: shorten it."
        )
    return labels
