"""Reads modules.json, and the routes of a Router: the kinds of a model's modules, and their folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.files import is_inside, read_json, reason, shown

STATIC = "StaticEmbedding"
"""A table of token vectors, whose mean is a text's vector: model2vec's or that of sentence-transformers."""
AFTER = ("Dense", "LayerNorm", "Normalize", "Dropout", "FlexibleQuantizer")
"""What may follow the pooling, in any order; Dropout does nothing outside of training.

The last one rounds vectors to whole numbers; it is perplexity's own, and its code comes with its models.
"""
_MODULES = 64
_SPARSE = ["Transformer", "SpladePooling"]
_PREDICTING = (_SPARSE, ["Transformer", "LogitScore"])
"""Lists of modules whose last one reads the words that the transformer predicts."""
_TRANSFORMERS = {"MLMTransformer": "Transformer"}
"""Kinds of modules that hold a transformer under another name."""
MASK, TOKEN_POOLING = "MultiVectorMask", "HierarchicalTokenPooling"
"""Modules of a MultiVectorEncoder: one says which tokens have vectors, the other merges some of these."""
AUTOENCODER = "SparseAutoEncoder"
"""The last module of a model whose sparse vectors are made from its text vectors."""
_ROUTER, _TABLE = "Router", "SparseStaticEmbedding"
ROUTES = "router_config.json"
"""The file of a Router, in its folder."""


@dataclass(frozen=True)
class Modules:
    """The kinds and folders of modules, in their order.

    For a Router, they are the modules for documents; `queries` is the folder with the weights of words in
    queries, and `plain_queries` says that a text without a role is a query.
    """

    listed: tuple[tuple[str, Path], ...]
    queries: Path | None = None
    plain_queries: bool = False


def read_modules(folder: Path, file: Path) -> Modules:
    """Read the modules.json of a folder; raises CheckpointError for modules that are not served."""
    entries = read_json(file, kind=list)
    try:
        named = [(entry["type"], entry["path"]) for entry in entries]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{file}: every module needs a type and a path ({reason(error)}).") from error
    if any(not isinstance(part, str) for both in named for part in both):
        raise CheckpointError(f"{file}: the type and the path of every module must be strings.")
    last, kinds = _kinds([kind for kind, _ in named])
    if kinds == [_ROUTER]:
        return _read_routes(_inside(folder, named[0][1], file))
    if not _served(kinds):
        raise CheckpointError(
            f"{file} lists {_listed(last)}: headlight serves a Transformer and at most one Pooling, or a "
            f"{STATIC}, then any of {', '.join(AFTER)}, and after a Pooling, at the end, a {AUTOENCODER}, "
            f"at most {_MODULES} modules in all; or a Transformer and a SpladePooling or a LogitScore; or a "
            f"Transformer, Dense layers, {MASK} and Normalize; or a Router. To serve other modules, export "
            "the model as an ONNX graph that returns sentence_embedding, to a folder without modules.json."
        )
    # The folders come last: following the links of one takes longer than reading its kind.
    subfolders = [_inside(folder, path, file) for _, path in named]
    return Modules(tuple(zip(kinds, subfolders, strict=True)))


def _kinds(types: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the last parts of dotted types, and the kinds of modules that they stand for."""
    last = [kind.rpartition(".")[2] for kind in types]
    return last, [_TRANSFORMERS.get(kind, kind) for kind in last]


def _served(kinds: Sequence[str]) -> bool:
    if MASK in kinds:
        return _serves_tokens(kinds)
    pooled = kinds.index("Pooling") if "Pooling" in kinds else 0
    after = kinds[pooled + 1 :]
    if pooled and after[-1:] == [AUTOENCODER]:
        after = after[:-1]
    # Before the pooling there is no sentence vector that a Normalize or a Dropout could change.
    first = all(kind in ("Normalize", "Dropout") for kind in kinds[1:pooled])
    begins = (kinds[:1] == ["Transformer"] and first) or (kinds[:1] == [STATIC] and not pooled)
    served = begins and all(kind in AFTER for kind in after)
    return (served or kinds in _PREDICTING) and len(kinds) <= _MODULES


def _serves_tokens(kinds: Sequence[str]) -> bool:
    """Return whether modules make token vectors of unit length, with or without linear layers."""
    others = [kind for kind in kinds[1:] if kind not in (MASK, "Dropout")]
    if others and others[-1] == TOKEN_POOLING:
        others.pop()
    layers = others[: len(others) - 1]
    served = kinds[0] == "Transformer" and others[-1:] == ["Normalize"] and {*layers} <= {"Dense"}
    if TOKEN_POOLING in kinds[: kinds.index(MASK)]:  # it would also pool tokens that the mask leaves out
        return False
    return served and kinds.count(MASK) == 1 and len(kinds) <= _MODULES


def _read_routes(folder: Path) -> Modules:
    """Read the routes of a Router: queries by a table of weights, documents by SPLADE."""
    file = folder / ROUTES
    config = read_json(file)
    structure, types, parameters = (config.get(name) for name in ("structure", "types", "parameters"))
    if not (isinstance(structure, dict) and isinstance(types, dict) and isinstance(parameters, dict)):
        raise CheckpointError(
            f"{file} must have the objects types, structure and parameters: save the model again with "
            "sentence-transformers."
        )
    kinds = {name: _kinds_of(file, places, types) for name, places in structure.items()}
    if kinds != {"query": [_TABLE], "document": _SPARSE}:
        told = "; ".join(f"{shown(name)}: {_listed(modules)}" for name, modules in list(kinds.items())[:8])
        raise CheckpointError(
            f"{file}: structure routes {told}; headlight serves a Router with query: {_TABLE} and document: "
            f"{', '.join(_SPARSE)}: save the two routes as separate models."
        )
    if parameters.get("route_mappings"):
        raise CheckpointError(
            f"{file}: route_mappings is {shown(parameters['route_mappings'])}; headlight routes by query and "
            "document alone: save the model without them."
        )
    default = parameters.get("default_route") or next(iter(structure))
    if not isinstance(default, str) or default not in kinds:
        raise CheckpointError(f"{file}: default_route is {shown(default)}; it must be query or document.")
    places = {name: [_inside(folder, str(place), file) for place in structure[name]] for name in kinds}
    documents = tuple(zip(kinds["document"], places["document"], strict=True))
    return Modules(documents, places["query"][0], default == "query")


def _kinds_of(file: Path, places: object, types: Mapping[str, Any]) -> list[str]:
    """Return the kinds of the modules of a route."""
    if not isinstance(places, list) or not all(isinstance(types.get(str(place)), str) for place in places):
        raise CheckpointError(
            f"{file}: structure has {shown(places)}; each route must be a list of modules with a "
            "type in types: save the model again with sentence-transformers."
        )
    return _kinds([types[str(place)] for place in places])[1]


def _inside(folder: Path, path: str, file: Path) -> Path:
    """Find the folder of a module, which must be inside the model's folder; raises CheckpointError."""
    subfolder = folder / path
    leads_out = Path(path).is_absolute() or ".." in Path(path).parts or len(path) > 255
    if leads_out or not is_inside(subfolder, folder):
        raise CheckpointError(
            f"{file}: the path {shown(path)} of a module is not a folder inside {folder}: move it there."
        )
    return subfolder


def _listed(kinds: Sequence[str]) -> str:
    """Format the kinds of modules for an error message."""
    more = f" and {len(kinds) - 10} more" if len(kinds) > 10 else ""
    return (", ".join(kind[:80] for kind in kinds[:10]) or "nothing") + more
