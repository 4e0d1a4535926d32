"""`headlight convert FOLDER OUT_DIR`: copies a folder with pickled weights, with its weights as safetensors.

PyTorch's weights-only reader builds only tensors: a pickle that names anything else is refused, and not run.
"""

import argparse
import pickle
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from export.errors import ExportError
from export.output_folder import check_place, clear_remains, whole
from model.checkpoints.hybrid import pickle_of
from model.checkpoints.source import INSTALL_TORCH
from model.errors import ModelError
from model.keys.files import HYBRID

if TYPE_CHECKING:
    import torch

_SAVED = "model.safetensors"
_LEFT_OUT = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".ot")
"""The file endings of weights in other formats, and of what training leaves behind."""
_DESCRIPTION = """\
Copy FOLDER, a model with pickled weights, to OUT_DIR, with its weights as safetensors. Every tensor is
compared with the one in the pickle, and the copy is loaded as the service does. OUT_DIR appears only if all
of that succeeds.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert a folder; returns 0, or 1 after a failure, with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="headlight convert", description=_DESCRIPTION)
    parser.add_argument("model", metavar="FOLDER", type=Path, help="a folder with pickled weights")
    parser.add_argument("folder", metavar="OUT_DIR", type=Path, help="the folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT_DIR and everything in it")
    options = parser.parse_args(arguments)
    if find_spec("torch") is None:
        return _refuse(f"Converting needs torch, which is not installed: {INSTALL_TORCH}.")
    try:
        count = convert(options.model, options.folder, overwrite=options.overwrite)
    except (ExportError, ModelError) as error:
        return _refuse(str(error))
    except OSError as error:
        place = error.filename or options.folder
        return _refuse(f"{place} cannot be read or written: {error.strerror or error}.")
    place = shlex.quote(str(options.folder))
    sys.stderr.write(f"{count} tensors are the same. Serve them with `headlight --model {place}`\n")
    return 0


def convert(source: Path, target: Path, *, overwrite: bool) -> int:
    """Write the folder `target`; returns the number of its tensors.

    Raises ExportError, ModelError or OSError; then `target` is unchanged.
    """
    if not source.is_dir():
        raise ExportError(f"{source} is not a folder: name the folder of a model.")
    pickled = {place / _SAVED: files for place in _folders(source) if (files := _weights(place))}
    pickled |= {source / file: [pickle] for file, pickle in _hybrid(source)}
    if not pickled:
        if _has_safetensors(source):
            raise ExportError(f"{source} has safetensors already: serve it as it is.")
        raise ExportError(f"{source} has no pytorch_model.bin to convert: name the folder that has it.")
    clear_remains(target)
    check_place(target, source, overwrite=overwrite)
    with whole(target) as new:
        for place in _folders(source):
            _copy(place, new / place.relative_to(source))
        count = sum(_convert(files, new / file.relative_to(source)) for file, files in pickled.items())
        _check_served(new, source)
    return count


def _folders(source: Path) -> Iterator[Path]:
    """Yield the folder of a model and those of its modules, without hidden ones."""
    yield source
    yield from sorted(one for one in source.iterdir() if one.is_dir() and not one.name.startswith("."))


def _weights(place: Path) -> list[Path]:
    """List the files with the weights of a folder; none if it has safetensors of its encoder."""
    if _has_safetensors(place):
        return []
    return sorted([*place.glob("pytorch_model.bin"), *place.glob("pytorch_model-*-of-*.bin")])


def _has_safetensors(place: Path) -> bool:
    return any(file.name not in HYBRID for file in place.glob("*.safetensors"))


def _hybrid(source: Path) -> list[tuple[str, Path]]:
    """List bge-m3's pickled layers and the files to make of them; raises ExportError if only one is there."""
    found = {name: source / pickle_of(name) for name in HYBRID if not (source / name).is_file()}
    missing = [file.name for file in found.values() if not file.is_file()]
    if missing and len(missing) < len(found):
        raise ExportError(
            f"{source / missing[0]} is missing: bge-m3 has two layers beside its encoder, "
            f"{' and '.join(map(pickle_of, HYBRID))}; fetch the model again, with all its files."
        )
    return [] if missing else list(found.items())


def _copy(place: Path, new: Path) -> None:
    """Copy the files of a folder, but no weights in other formats."""
    new.mkdir(exist_ok=True)
    for file in place.iterdir():
        if file.is_file() and file.suffix not in _LEFT_OUT and file.name != "pytorch_model.bin.index.json":
            shutil.copyfile(file, new / file.name)


def _convert(files: Sequence[Path], new: Path) -> int:
    """Write the tensors of pickled files to the file `new`, and compare them; returns their number."""
    import torch  # noqa: PLC0415 - the command says first if it is missing
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            with warnings.catch_warnings(action="ignore"):  # about pickles in a form that it may not read
                loaded = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError) as error:
            raise ExportError(
                f"{file} is damaged, or contains more than weights, which could run code: use a copy of the "
                "model with safetensors."
            ) from error
        if not isinstance(loaded, dict) or not all(isinstance(one, torch.Tensor) for one in loaded.values()):
            raise ExportError(f"{file} has no table of tensors: use a copy of the model with safetensors.")
        tensors |= {name: one.detach().contiguous().clone() for name, one in loaded.items()}
    save_file(tensors, new, {"format": "pt"})
    written = load_file(new)
    same = written.keys() == tensors.keys()
    if not same or not all(_same_bits(one, written[name]) for name, one in tensors.items()):
        raise ExportError(f"{new} differs from the tensors that were read: try again.")
    return len(tensors)


def _same_bits(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    """Whether tensors are equal bit by bit, NaN included."""
    import torch  # noqa: PLC0415

    first, second = (tensor.reshape(-1).view(torch.uint8) for tensor in (one, other))
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(first, second)


def _check_served(new: Path, source: Path) -> None:
    """Load the copy as the service does; raises ExportError, which says why, if it cannot be served."""
    from model.checkpoints.checkpoint import load_checkpoint  # noqa: PLC0415
    from model.errors import CheckpointError  # noqa: PLC0415

    try:
        load_checkpoint(new)
    except CheckpointError as error:
        raise ExportError(str(error).replace(str(new), str(source))) from error


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"convert: {sentence}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
