"""Reads the modules of a sentence-transformers folder that follow its transformer."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from model.activations import CLASSES
from model.checkpoints.conversion import no_dense
from model.contract import FloatArray, SentenceWant
from model.errors import CheckpointError
from model.fields import switch_of
from model.files import present, read_bytes, read_json, reason, shown
from model.heads.dense import Dense, LayerNorm, Step, UnitLength, WholeNumbers
from model.heads.sparse import AutoEncoder, Splade

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MOST_FEATURES = 2**17
_TORCH = "torch.nn"
_HEADER_BYTES = 2**20
_COUNTS = "stats_last_nonzero"
"""A tensor of a SparseAutoEncoder, in int64: for how long each feature had been 0 in training."""
_STRATEGIES = ("max", "sum")
_ACTIVATIONS = ("relu", "log1p_relu")


def read_steps(modules: Sequence[tuple[str, Path]], size: int) -> tuple[Step, ...]:
    """Load modules by kind and folder, the first of which takes vectors of `size`; raises CheckpointError."""
    steps: list[Step] = []
    for kind, folder in modules:
        step: Step
        match kind:
            case "Dense":
                (step,) = read_dense([folder], size)
            case "LayerNorm":
                step = _read_norm(folder, size)
            case "FlexibleQuantizer":
                step = WholeNumbers()
            case _:
                step = UnitLength()
        steps.append(step)
        size = step.size(size)
    return tuple(steps)


def _read_norm(folder: Path, size: int) -> LayerNorm:
    file = folder / "config.json"
    if (given := read_json(file).get("dimension")) != size:
        raise CheckpointError(
            f"{file}: dimension is {shown(given)}; it must be {size}: use files from the same model."
        )
    tensors = _weights(folder, {"norm.weight": (size,), "norm.bias": (size,)})
    return LayerNorm(tensors["norm.weight"], tensors["norm.bias"])


def read_dense(folders: Sequence[Path], size: int, *, level: str = "sentence_embedding") -> tuple[Dense, ...]:
    """Load the layers in these folders, the first of which takes vectors of `size`; raises CheckpointError.

    `level` is what they map: sentence_embedding, or token_embeddings.
    """
    layers = []
    for folder in folders:
        config = read_json(folder / "config.json")
        inputs, outputs = config.get("in_features"), config.get("out_features")
        if not (_is_size(inputs) and _is_size(outputs)) or inputs != size:
            raise CheckpointError(
                f"{folder / 'config.json'}: in_features is {shown(inputs)} and out_features {shown(outputs)}"
                f"; in_features must be {size}, and out_features from 1 to {_MOST_FEATURES}."
            )
        layers.append(_read(folder, config, level))
        size = config["out_features"]
    return tuple(layers)


def read_splade(folder: Path) -> Splade:
    """Read how a SpladePooling, in this folder, pools predicted words; raises CheckpointError."""
    file = folder / "config.json"
    config = read_json(file)
    strategy, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    for name, value, known in (
        ("pooling_strategy", strategy, _STRATEGIES),
        ("activation_function", activation, _ACTIVATIONS),
    ):
        if value not in known:
            raise CheckpointError(f"{file}: {name} is {shown(value)}; it must be one of {', '.join(known)}.")
    return Splade(strategy, twice=activation == "log1p_relu")


def read_autoencoder(
    folder: Path | None, size: int, own: SentenceWant, most: int | None
) -> AutoEncoder | None:
    """Load the encoder of a SparseAutoEncoder, which takes vectors of `size`; None without its folder.

    `own` and `most` are as in `AutoEncoder`; if `most` is None, its `k` is used. Raises CheckpointError.
    """
    if folder is None:
        return None
    file = folder / "config.json"
    config = read_json(file)
    inputs, outputs, k = (config.get(name) for name in ("input_dim", "hidden_dim", "k"))
    if inputs != size or not (_is_size(outputs) and _is_size(k)) or k > outputs:
        raise CheckpointError(
            f"{file}: input_dim is {shown(inputs)}, hidden_dim {shown(outputs)} and k {shown(k)}; input_dim "
            f"must be {size}, hidden_dim 1 to {_MOST_FEATURES}, and k 1 to hidden_dim: use files from the "
            "same model."
        )
    shapes = {"decoder.linear.weight": (outputs, size), "latent_bias": (outputs,), "pre_bias": (size,)}
    tensors = _weights(folder, shapes, unread=_COUNTS)
    # The encoder's as well: the decoder multiplies by its transpose.
    weight = tensors["decoder.linear.weight"]
    bias = tensors["latent_bias"] - weight @ tensors["pre_bias"].astype(np.float64)
    dense = Dense(weight, bias.astype(np.float32), "ReLU")
    return AutoEncoder(dense, own, most or k, switch_of(file, config, "normalize", default=False))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_FEATURES


def _read(folder: Path, config: Mapping[str, Any], level: str) -> Dense:
    file = folder / "config.json"
    activation = _activation(file, config.get("activation_function", f"{_TORCH}.modules.activation.Tanh"))
    names = [config.get(key) for key in ("module_input_name", "module_output_name")]
    if any(name not in (None, level) for name in names):
        raise CheckpointError(
            f"{file}: a Dense layer from {_plain(names[0])} to {_plain(names[1])} is not supported, only one "
            f"from {level} to {level}."
        )
    inputs, outputs = config["in_features"], config["out_features"]
    expected: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
    biased = switch_of(file, config, "bias", default=True)
    residual = switch_of(file, config, "use_residual", default=False)
    if biased:
        expected["linear.bias"] = (outputs,)
    if residual and inputs != outputs:  # sizes that differ cannot be added: a matrix maps one to the other
        expected["residual.weight"] = (outputs, inputs)
    tensors = _weights(folder, expected)
    bias = tensors.get("linear.bias", np.zeros(outputs, np.float32))
    return Dense(tensors["linear.weight"], bias, activation, residual, tensors.get("residual.weight"))


def _activation(file: Path, dotted: object) -> str:
    """Return the class at the end of a dotted name of PyTorch; raises CheckpointError for other names."""
    module, _, name = dotted.rpartition(".") if isinstance(dotted, str) else ("", "", "")
    home = "linear" if name == "Identity" else "activation"
    if name not in CLASSES or module not in (_TORCH, f"{_TORCH}.modules", f"{_TORCH}.modules.{home}"):
        raise CheckpointError(
            f"{file}: activation_function {shown(dotted)} is not supported; it must be {_TORCH}.modules."
            f"activation.… or {_TORCH}.modules.linear.Identity, of the classes {', '.join(CLASSES)}."
        )
    return name


def _weights(
    folder: Path, expected: Mapping[str, tuple[int, ...]], unread: str | None = None
) -> dict[str, FloatArray]:
    """Read a layer's tensors, which must have the expected names and shapes; raises CheckpointError.

    A tensor named `unread` is ignored.
    """
    if not present(folder / "model.safetensors"):
        raise CheckpointError(no_dense(folder))
    most = sum(map(math.prod, expected.values()))
    tensors = read_layer(folder / "model.safetensors", most, unread=unread)
    shapes = {name: array.shape for name, array in tensors.items()}
    if shapes != expected:
        raise CheckpointError(
            f"{folder}: the weights do not match config.json; their shapes are {shown(shapes)} instead of "
            f"{expected}."
        )
    return tensors


def read_layer(file: Path, most: int, *, unread: str | None = None) -> dict[str, FloatArray]:
    """Read the tensors of a layer, at most `most` numbers in all, except the one named `unread`.

    Raises CheckpointError, also for a NaN or an infinity.
    """
    tensors = _tensors(file, 8 * most + _HEADER_BYTES, unread)  # at most eight bytes a number, and a header
    if not all(np.isfinite(array).all() for array in tensors.values()):
        raise CheckpointError(
            f"{file} has a NaN or an infinity: fetch the file again, or train from a sound checkpoint."
        )
    return tensors


def _plain(name: object) -> str:
    return name if isinstance(name, str) and len(name) < 80 else shown(name)


def _tensors(path: Path, most: int, unread: str | None) -> dict[str, FloatArray]:
    content = read_bytes(path, most)
    try:
        tensors: list[tuple[str, Any]] = deserialize(content)  # type: ignore[no-untyped-call]
        return {name: _widened(**tensor) for name, tensor in tensors if name != unread}
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}; fetch it again.") from error
    except KeyError as error:
        raise CheckpointError(
            f"{path} has a tensor of dtype {error}, which is not one of {', '.join(_DTYPES)}."
        ) from error


def _widened(dtype: str, shape: Sequence[int], data: bytes) -> FloatArray:
    """Convert a stored tensor to float32; numpy lacks bfloat16, which is the upper half of a float32."""
    array = np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)
