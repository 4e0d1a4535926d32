"""Fetches the needed files of a hub repository, and explains a failure in one sentence.

`huggingface_hub` reads its endpoint, token and cache from the environment: HF_ENDPOINT, HF_TOKEN, HF_HOME and
HF_HUB_OFFLINE.
"""

import glob
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from model.checkpoints.layout import read_layout
from model.checkpoints.peft.tasks import FOLDER, WEIGHTS
from model.errors import CheckpointError
from model.files import present, read_json, reason
from model.keys.files import ADAPTERS, HYBRID, OTHER_GRAPHS, SENTENCE_FILES
from model.modules.listing import ROUTES

log = logging.getLogger(__name__)

_SMALL = (
    *("config.json", "modules.json", "config_sentence_transformers.json", *SENTENCE_FILES),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", ROUTES, "bpe.codes"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model"),
    *(ADAPTERS, "model.safetensors.index.json", "manifest.json", "artifact.metadata"),
    *HYBRID,
    f"{FOLDER}/*/{ADAPTERS}",
)
"""The files to fetch first: what is read besides the weights, and what says which weights there are."""
_EXPORTED = ("model.onnx", "model.onnx.data", "interventions.onnx", "prediction.safetensors")
"""The graphs of an exported folder and the layers it predicts with, which are beside its tokenizer."""
_REPORT_S = 10.0


def fetch_model(name: str, revision: str | None, *, graph: bool) -> Path:
    """Fetch the files of a model that are needed, or find them in the cache; raises CheckpointError.

    `revision` is a branch, a tag or a commit; None is the newest commit of the main branch. With `graph`, the
    graph is fetched instead of the weights. Pickles and weights of other frameworks are never fetched.
    """
    fetched = _fetch(name, revision, _SMALL)
    if _offline():
        return fetched
    commit = fetched.name  # so that all files are of one commit, even if the branch moves
    first, *others = _modules(fetched)
    if first or others:
        folders = [f"{folder}/" for folder in (first, *others) if folder]
        _fetch(name, commit, [folder + file for folder in map(glob.escape, folders) for file in _SMALL])
    adapters = glob.escape(f"{first}/" if first else "") + f"{FOLDER}/*/{WEIGHTS}"
    # A table of token vectors needs no graph, whichever backend runs other models.
    weights = [] if graph and not _is_table(fetched) else [_below(first, "model.safetensors"), adapters]
    dense = [_below(folder, "model.safetensors") for folder in others]
    fetched = _fetch(name, commit, [*weights, *dense, *_EXPORTED, *(_graph("model.onnx") if graph else ())])
    if weights and not present(fetched / first / "model.safetensors"):
        shards = [_below(first, file) for file in _shards(fetched / first)]
        fetched = _fetch(name, commit, shards) if shards else fetched
    # Another exporter may have made many graphs: only the one to run is fetched.
    for file in OTHER_GRAPHS if graph else ():
        if any(fetched.glob("*.onnx")) or any(fetched.glob("onnx/*.onnx")):
            break
        fetched = _fetch(name, commit, _graph(file))
    return fetched


def _graph(file: str) -> tuple[str, ...]:
    """Return the paths at which a graph of this name, and weights beside it, may be."""
    return tuple(f"{folder}{file}{part}" for folder in ("", "onnx/") for part in ("", "_data", ".data"))


def _modules(fetched: Path) -> Iterator[str]:
    """Yield the folders of the modules, the transformer's first; faults in the files are reported later."""
    try:
        entries = read_json(fetched / "modules.json", optional=True, kind=list)
        routes = read_json(fetched / ROUTES, optional=True).get("structure")
    except CheckpointError:
        entries, routes = [], None
    paths = [str(entry.get("path", "")) for entry in entries if isinstance(entry, dict)]
    if isinstance(routes, dict):  # in a Router, those for documents come first
        both = (routes.get("document"), routes.get("query"))
        paths = [str(path) for route in both if isinstance(route, list) for path in route]
    yield from (path.removeprefix("./").removeprefix(".") for path in paths or [""])


def _is_table(fetched: Path) -> bool:
    """Return whether the small files of a model say that it is a table; faults are reported later."""
    try:
        return read_layout(fetched).static
    except CheckpointError:
        return False


def _shards(folder: Path) -> list[str]:
    """List the shards that a folder's index names; faults in it are reported later."""
    index = folder / "model.safetensors.index.json"
    try:
        shards = read_json(index).get("weight_map") if present(index) else None
    except CheckpointError:
        shards = None
    return sorted({*map(str, shards.values())}) if isinstance(shards, dict) else []


def _below(folder: str, file: str) -> str:
    """Return a pattern for one file of a folder, whatever characters their names have."""
    return glob.escape(f"{folder}/{file}" if folder else file)


def _offline() -> bool:
    from huggingface_hub import constants  # noqa: PLC0415

    return bool(constants.HF_HUB_OFFLINE)


def _progress() -> type[Any]:
    """Return a class of progress bars: on a terminal the library's, else one that writes lines to the log."""
    from huggingface_hub.utils.tqdm import tqdm  # noqa: PLC0415

    if sys.stderr.isatty():
        return tqdm

    class Lines(tqdm):  # type: ignore[misc, unused-ignore]
        """Logs how many bytes have been written, at most every _REPORT_S seconds."""

        def __init__(self, *args: Any, **options: Any) -> None:
            written = options.get("name") == "huggingface_hub.snapshot_download"
            options |= {"disable": not written, "mininterval": _REPORT_S}
            super().__init__(*args, **options)  # type: ignore[no-untyped-call, unused-ignore]

        def display(self, *_: Any, **__: Any) -> None:
            """Log a line where a bar would be redrawn."""
            if self.n:
                log.info("downloaded %.1f of %.1f MB", self.n / 1e6, (self.total or self.n) / 1e6)

    return Lines


def _fetch(name: str, revision: str | None, files: Sequence[str]) -> Path:
    """Fetch the files that match a pattern, or find them in the cache; raises CheckpointError."""
    # Imported here: most starts do not need it, and it takes longer to import than the rest of model/.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    logging.getLogger("huggingface_hub").handlers.clear()  # which would write each warning a second time
    try:
        return Path(
            snapshot_download(name, revision=revision, allow_patterns=list(files), tqdm_class=_progress())
        )
    except Exception as error:  # its own errors, HTTP and file errors, and ValueError for a bad name
        called = name if revision is None else f"{name}@{revision}"
        raise CheckpointError(
            f"{called} is neither a folder nor a model that could be fetched from the hub: {_why(error)}."
        ) from error


def _why(error: BaseException) -> str:
    """Return what went wrong and what to do about it."""
    from huggingface_hub import constants, errors  # noqa: PLC0415

    token = "set HF_TOKEN to a token of an account"  # noqa: S105 - an instruction
    cause = error
    if isinstance(error, errors.LocalEntryNotFoundError):
        if constants.HF_HUB_OFFLINE:
            return "it is not in the cache, and HF_HUB_OFFLINE is set; set HF_HUB_OFFLINE=0, or name a folder"
        cause = error.__cause__ or error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    if isinstance(cause, errors.GatedRepoError):
        told = f"it is gated; accept its terms on the hub, and {token} that has accepted them"
    elif isinstance(cause, errors.RevisionNotFoundError):
        told = "it has no such revision; name one of its branches, tags or commits after the @"
    elif isinstance(cause, errors.RepositoryNotFoundError) or status in (401, 403):
        told = f"the hub has no model of this name, or it is private; check it, or {token} that may read it"
    elif isinstance(cause, errors.HFValidationError):
        told = f"{reason(cause)}; a hub name has the form org/name or org/name@revision"
    elif isinstance(cause, OSError) and cause.filename is not None:
        told = f"{reason(cause)}; set HF_HOME to a folder that can be written, or name a folder"
    elif status is not None:
        told = f"the hub answered {status}; try again later, or name a folder"
    else:
        told = f"{reason(cause)}; check the network, HF_ENDPOINT and HTTPS_PROXY, or name a folder"
    return told
