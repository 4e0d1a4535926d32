"""Writes and reads, without PyTorch, the file with the layers that an exported model predicts with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from model.activations import ACTIVATIONS
from model.contract import FloatArray, HeadInfo
from model.errors import CheckpointError
from model.files import check_regular, present, reason
from model.heads.predictor import LayerNorm, Linear, Norm, Predictor, RmsNorm

FILE = "prediction.safetensors"
LONGEST_LABEL = 1000
"""The most characters of a label, which an answer may repeat for every text or token."""
_KEY = "headlight"


def write_predictor(folder: Path, predictor: Predictor) -> None:
    """Write a predictor with numpy arrays into a folder."""
    tensors: dict[str, FloatArray] = {}
    for number, layer in enumerate(predictor.layers):
        tensors[f"{number}.weight"] = np.ascontiguousarray(layer.weight)
        if layer.bias is not None:
            tensors[f"{number}.bias"] = np.ascontiguousarray(layer.bias)
    info, norm = predictor.info, predictor.final_norm
    if norm is not None:
        tensors["final_norm.weight"] = np.ascontiguousarray(norm.weight)
        if isinstance(norm, LayerNorm) and norm.bias is not None:
            tensors["final_norm.bias"] = np.ascontiguousarray(norm.bias)
    described: dict[str, Any] = {
        "kind": info.kind,
        "labels": info.labels,
        "activation": info.activation,
        "pooling": predictor.pooling,
        "padding": predictor.padding,
        "layers": [
            {"activation": layer.activation} if isinstance(layer, Linear) else {"epsilon": layer.epsilon}
            for layer in predictor.layers
        ],
    }
    if norm is not None:
        kind = "layer" if isinstance(norm, LayerNorm) else "rms"
        described["final_norm"] = {"kind": kind, "epsilon": norm.epsilon}
    save_file(tensors, folder / FILE, {_KEY: json.dumps(described)})


def read_exported(folder: Path) -> Predictor | None:
    """Read the predictor of an exported folder; None if it has none. Raises CheckpointError."""
    path = folder / FILE
    if not present(path):
        return None
    check_regular(path)
    try:
        with safe_open(path, framework="np") as file:
            described = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        layers = tuple(_layer(i, one, tensors) for i, one in enumerate(described["layers"]))
        info = _info(described, len(layers[-1].weight))
        padding, norm = int(described.get("padding", -1)), _final_norm(described, tensors)
        return Predictor(info, described["pooling"], layers, padding, norm)
    except (SafetensorError, OSError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}; export the model again.") from error


def _info(described: dict[str, Any], outputs: int) -> HeadInfo:
    """Read the description of a head with `outputs` outputs; raises LookupError, TypeError or ValueError."""
    kind, labels = described["kind"], tuple(described["labels"])
    sized = kind in ("masked_words", "late_interaction")
    if not sized and len(labels) != outputs:
        raise ValueError(f"it names {len(labels)} labels, but has {outputs} outputs")
    if (longest := max(map(len, labels), default=0)) > LONGEST_LABEL:
        raise ValueError(f"a label has {longest} characters; the limit is {LONGEST_LABEL}")
    return HeadInfo(kind, labels, described["activation"], outputs if sized else None)


def _final_norm(described: dict[str, Any], tensors: dict[str, FloatArray]) -> Norm | None:
    """Read the norm after the last block; None if there is none, as in files of older releases."""
    if (norm := described.get("final_norm")) is None:
        return None
    weight, bias = tensors["final_norm.weight"], tensors.get("final_norm.bias")
    _check_finite("the final norm", weight, bias)
    if norm["kind"] == "rms":
        return RmsNorm(weight, float(norm["epsilon"]))
    return LayerNorm(weight, bias, float(norm["epsilon"]))


def _check_finite(what: str, *tensors: FloatArray | None) -> None:
    if not all(np.isfinite(tensor).all() for tensor in tensors if tensor is not None):
        raise ValueError(f"the weights of {what} have a NaN or an infinity")


def _layer(number: int, described: dict[str, Any], tensors: dict[str, FloatArray]) -> Linear | LayerNorm:
    weight, bias = tensors[f"{number}.weight"], tensors.get(f"{number}.bias")
    _check_finite(f"layer {number}", weight, bias)
    if "epsilon" in described:
        return LayerNorm(weight, bias, float(described["epsilon"]))
    if described["activation"] not in ACTIVATIONS:
        raise ValueError(f"layer {number} has an unknown activation")
    return Linear(weight, bias, described["activation"])
