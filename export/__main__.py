"""`python -m export MODEL OUT_DIR`: writes a folder from which the service runs a model without PyTorch."""

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from export.errors import ExportError
from model.choices import Processors
from model.errors import ModelError

_NEEDED = ("torch", "onnx", "onnxscript", "onnxruntime")
_INTERRUPTED = 130

_DESCRIPTION = """\
Write MODEL as an ONNX graph to the folder OUT_DIR, with its tokenizer and everything else that the service
reads. The graph is run beside PyTorch on random tokens and on real texts, and every hidden state, every
attention map and the sentence vectors are compared. The folder appears only if every difference is within
its bound.
"""
_EPILOG = "Then serve it: headlight --model OUT_DIR"


def main(arguments: Sequence[str] | None = None) -> int:
    """Export a model; returns 0, or 1 after a failure, with the reason on standard error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.model:
        parser.error("MODEL is empty: pass the name of the embedded model, a folder or a hub name")
    if options.quantize is not None and options.dtype != "float32":
        parser.error(f"--quantize {options.quantize} starts from float32: remove --dtype {options.dtype}")
    if options.processors is not None and options.quantize is None:
        parser.error(f"--for {options.processors} applies only to int8 graphs: add --quantize int8")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        return _refuse(
            f"Exporting needs {', '.join(missing)}, which this environment lacks: "
            "run `pip install '.[export]'` in a checkout of headlight."
        )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _export(options)
    except KeyboardInterrupt:
        _refuse("Interrupted: nothing was written.")
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headlight export", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "model", metavar="MODEL", help="a model as in the service: its name, a folder, or a hub name"
    )
    parser.add_argument(
        "folder", metavar="OUT_DIR", type=Path, help="the folder to write; its parent must exist"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help=(
            "the dtype of matrix products; float16 halves their weights, while residuals and norms stay "
            "float32 (default: float32)"
        ),
    )
    parser.add_argument(
        "--quantize",
        choices=("int8",),
        help="multiply in eight bits, 1.6 to 2.7 times as fast on a CPU; when attention is observed, the "
        "products before it run in float32",
    )
    parser.add_argument(
        "--for",
        dest="processors",
        choices=get_args(Processors),
        help=(
            "the processors that an int8 graph is for. any: seven-bit weights, with exact sums everywhere. "
            "vnni (x86 with avx512_vnni or avx_vnni in /proc/cpuinfo) and arm64: eight-bit weights, "
            "slightly more precise and no faster; they are refused on x86 without VNNI, where their sums "
            "saturate (default: any)"
        ),
    )
    parser.add_argument(
        "--task",
        metavar="NAME",
        help=(
            "for a model with adapters: the task whose adapter is merged into the weights, or none for the "
            "weights without adapters"
        ),
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace OUT_DIR and everything in it once the export is done",
    )
    return parser


def _export(options: argparse.Namespace) -> int:
    # Imported here: it takes seconds, and needs packages that may be missing.
    from export.parity import table  # noqa: PLC0415
    from export.pipeline import ParityMissed, export  # noqa: PLC0415

    try:
        dtype = options.quantize or options.dtype
        rows = export(
            options.model,
            options.folder,
            dtype=dtype,
            overwrite=options.overwrite,
            step=_step,
            task=options.task,
            processors=options.processors or "any",
        )
    except ParityMissed as error:
        sys.stdout.write(table(error.rows))
        return _refuse(str(error))
    except (ExportError, ModelError) as error:
        return _refuse(str(error))
    except OSError as error:
        place = error.filename or options.folder
        return _refuse(f"{place} cannot be read or written: {error.strerror or error}.")
    sys.stdout.write(table(rows))
    sys.stdout.flush()
    folder = shlex.quote(str(options.folder))
    sys.stderr.write(f"Serve it with `headlight --model {folder}`, or HEADLIGHT_MODEL={folder}\n")
    return 0


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Write one line with the name of a step and how long it took."""
    start = time.perf_counter()
    sys.stderr.write(f"{what} ... ")
    sys.stderr.flush()
    try:
        yield
    except BaseException:
        sys.stderr.write("\n")
        raise
    sys.stderr.write(f"{time.perf_counter() - start:.1f} s\n")


def _refuse(sentence: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"export: {sentence}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
