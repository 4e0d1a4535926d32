"""Finds the graph of a folder and checks that its files are complete."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from model.errors import CheckpointError
from model.files import open_regular, present, read_json, reason
from model.keys.files import OTHER_GRAPHS

GRAPH = "model.onnx"
CHANGED = "interventions.onnx"
"""The graph beside GRAPH that runs interventions, and reads its weights from the same file."""
MANIFEST = "manifest.json"
"""Written beside an exported graph; `files` has the size in bytes and the SHA-256 of each file."""
_NAMES = (GRAPH, *OTHER_GRAPHS)


@dataclass(frozen=True)
class OnnxFile:
    """A graph, and the folder of its model."""

    path: Path
    folder: Path

    @property
    def interventions(self) -> Path:
        """Where the graph for interventions is, if there is one."""
        return self.path.with_name(CHANGED)

    @property
    def size(self) -> int:
        """How many bytes the graph and the files beside it with its constants have."""
        beside = (one for one in self.path.parent.iterdir() if one.name.startswith(self.path.name))
        return sum(one.stat().st_size for one in beside if one.is_file())


def find_graph(source: Path) -> OnnxFile | None:
    """Find the graph of a folder, or of a path to an .onnx file; None if there is none.

    An exported folder has model.onnx beside its tokenizer; a sentence-transformers folder has
    onnx/model.onnx. Other names count only if there is neither.
    """
    if source.is_file() and source.suffix == ".onnx":
        folder = source.parent
        return OnnxFile(source, folder.parent if folder.name == "onnx" else folder)
    candidates = (folder / name for name in _NAMES for folder in (source, source / "onnx"))
    return next((OnnxFile(path, source) for path in candidates if path.is_file()), None)


def list_beside(file: OnnxFile) -> list[Path]:
    """List the other graphs beside one, under the names that `find_graph` knows, in its order."""
    beside = (file.path.with_name(name) for name in _NAMES)
    return [path for path in beside if path != file.path and path.is_file()]


def check_whole(file: OnnxFile) -> None:
    """Check the files of an exported graph against its manifest, if any; raises CheckpointError."""
    manifest = file.folder / MANIFEST
    if not present(manifest) or file.path != file.folder / GRAPH:
        return
    files = read_json(manifest).get("files")
    if not isinstance(files, dict):
        raise CheckpointError(f"{manifest} has no list of files: export the model again.")
    # By file name: a file listed under many paths is read only once.
    for name, facts in {Path(name).name: facts for name, facts in files.items()}.items():
        path = file.folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: export the model again.")
        if not isinstance(facts, dict) or _sha256(path) != facts.get("sha256"):
            raise CheckpointError(
                f"{path} is damaged or was changed; its SHA-256 differs from the one in {MANIFEST}: "
                "export the model again."
            )


def _sha256(path: Path) -> str:
    with open_regular(path) as descriptor:
        try:
            with open(descriptor, "rb", closefd=False) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {reason(error)}.") from error
