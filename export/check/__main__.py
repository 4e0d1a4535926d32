"""`headlight check MODEL`: says whether a model can be served, and how."""

import argparse
import logging
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from export.check.comparison import CannotCompare, compare
from export.check.settings import list_settings
from model.choices import Dtype, Kind
from model.contract import HeadKind, ModelInfo
from model.errors import ModelError
from model.loading import find_model, load_model

_DESCRIPTION = """\
Say whether the service can serve MODEL, how it would run here, and how each setting in its files is used.
The flags are settings of the service; its environment variables, such as HEADLIGHT_DTYPE, count as well.
Where sentence-transformers is installed, the vectors of twenty texts are compared with its vectors. The exit
code is 0 if the model can be served, and 1 if it cannot be served or its vectors differ.
"""
_SETTINGS: dict[str, Sequence[str] | None] = {
    "backend": get_args(Kind),
    "device": None,
    "dtype": get_args(Dtype),
    "native": ("on", "off"),
    "strict": ("on", "off"),
}
"""Settings of the service that decide how a model is loaded, and their values."""
_ROUTES: dict[HeadKind, str] = {
    "classification": "/predict",
    "token_classification": "/predict",
    "masked_words": '"sparse" in the outputs of /encode',
    "autoencoder": '"sparse" in the outputs of /encode',
    "late_interaction": "/rerank, and the role of /encode",
    "hybrid": 'the weights of /rerank, and "sparse" in the outputs and the role of /encode',
}
"""Where a client asks for what a head predicts; a classifier with one label also ranks."""
_SAME = 0.99
"""The lowest cosine of two vectors of one text that differ only by rounding, int8 included."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a model, and print what was found."""
    parser = argparse.ArgumentParser(prog="headlight check", description=_DESCRIPTION)
    parser.add_argument("model", metavar="MODEL", help="a folder, an .onnx file, or a hub name")
    variables = []
    for name, choices in _SETTINGS.items():
        parser.add_argument(f"--{name}", choices=choices, help="same as the service's setting")
        if (value := os.environ.get(f"HEADLIGHT_{name.upper()}")) is not None:
            variables.append(f"--{name}={value}")
    parser.set_defaults(backend="auto", device="auto", dtype="auto", native="on", strict="off")
    options = parser.parse_args([*variables, *(sys.argv[1:] if arguments is None else arguments)])
    logging.basicConfig(level=logging.ERROR)  # what is logged while loading is in the report
    try:
        path, graph = find_model(options.model, options.backend)
    except ModelError as error:
        return _refuse(options.model, error)
    folder = path if graph is None else graph.folder
    settings = "".join(f"{line}\n" for line in list_settings(folder, graph=graph is not None))
    try:
        tokenizer, backend = load_model(
            options.model,
            kind=options.backend,
            device=options.device,
            dtype=options.dtype,
            native=options.native == "on",
            strict=options.strict == "on",
        )
    except ModelError as error:
        sys.stdout.write(settings)
        return _refuse(options.model, error)
    sys.stdout.write(f"{options.model} can be served.\n\n")
    sys.stdout.write("".join(f"  {name:<9} {told}\n" for name, told in _describe(folder, backend.info)))
    sys.stdout.write(f"\n{settings}\n")
    try:
        cosine, count = compare(folder, tokenizer, backend)
    except CannotCompare as error:
        sys.stdout.write(f"Not compared with sentence-transformers: {error}.\n")
        return 0
    sys.stdout.write(
        f"Compared with sentence-transformers on {count} texts: cosines of {cosine:.6f} or more.\n"
    )
    if cosine < _SAME:
        sys.stdout.flush()
        sys.stderr.write(
            f"check: {options.model} can be served, but its vectors differ from the vectors of "
            "sentence-transformers.\n"
        )
    return int(cosine < _SAME)


def _describe(folder: Path, info: ModelInfo) -> Iterator[tuple[str, str]]:
    """Yield what a user would want to know about a model, as names and values."""
    yield "folder", str(folder)
    yield (
        "family",
        f"{info.family}: {info.layers} layers, {info.heads} heads, {info.hidden_size} wide, texts of up to "
        f"{info.max_length} tokens",
    )
    yield "runs", info.runs
    if info.processors is not None:
        yield "for", info.processors
    poolings = " and ".join(info.pooling) or "the graph's own pooling"
    unit = ", of unit length" if info.normalize else ""
    yield "vectors", f"{info.sentence_size} numbers by {poolings}{unit}"
    if info.head is not None:
        ranks = info.head.kind == "classification" and len(info.head.labels) == 1
        asked = "/predict and /rerank" if ranks else _ROUTES[info.head.kind]
        yield (
            "predicts",
            f"{info.head.kind} ({', '.join(info.head.labels[:4]) or info.head.size}), for {asked}",
        )
    if not info.exposes_attention:
        why = "the graph does not return it" if info.layers else "a table of token vectors has none"
        yield "attention", f"cannot be read: {why}"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    yield "memory", f"{info.weight_bytes >> 20} MiB of weights; {used} MiB to load and try it in one process"


def _refuse(model: str, reason: object) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"check: {model} cannot be served: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
