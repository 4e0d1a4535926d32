"""Commands that convert a model folder to a supported form; they need transformers.

Headlight never opens pickled weights, not even to list them: reading a pickle runs its code.
"""

import shlex
from pathlib import Path

from model.files import present

_ENCODER = "from transformers import AutoModel; AutoModel.from_pretrained({}).save_pretrained({!r})"
_TOKENIZER = "from transformers import AutoTokenizer; AutoTokenizer.from_pretrained({}).save_pretrained({!r})"
_DENSE = (
    "import torch; from safetensors.torch import save_file; "
    "save_file(torch.load({}, weights_only=True), {!r})"
)
_WITH = "on a machine with transformers"


def no_weights(folder: Path) -> str:
    """Return the error for a transformer folder without weights, with the command that fixes it."""
    missing = f"{folder / 'model.safetensors'} is missing: only safetensors are read"
    found = [*sorted(p.name for p in folder.glob("*.bin")), *sorted(p.name for p in folder.glob("*.pt"))]
    if not found:
        others = sorted(p.name for pattern in _OTHER_FORMATS for p in folder.glob(pattern))
        if others:
            return f"{missing}, not {others[0][:80]}: use a copy of the model that has safetensors."
        return f"{missing}; fetch the model again, with all its files."
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    pickled = f"{', '.join(name[:80] for name in found[:4])}{more}"
    return f"{missing}; to convert the pickled weights ({pickled}), run {_encoder(folder)}, {_WITH}."


def no_tokenizer(folder: Path, *, weights: bool) -> str:
    """Return the error for a transformer folder without tokenizer.json, with the command that fixes it.

    With `weights`, the command also converts pickled weights, if there are any.
    """
    missing = f"{folder / 'tokenizer.json'} is missing"
    parts = [name for name in _SLOW if present(folder / name)]
    if not parts:
        return f"{missing}: fetch the model again, with all its files."
    commands = [_command(_TOKENIZER, repr(str(folder)), str(folder))]
    pickled = weights and any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors*"))
    if pickled:
        commands.append(_encoder(folder))
    also = " (and the pickled weights into safetensors)" if pickled else ""
    return f"{missing}: to convert {parts[0]} into it{also}, run {' and '.join(commands)}, {_WITH}."


def no_dense(folder: Path) -> str:
    """Return the error for a linear layer's folder without weights, with the command that fixes it."""
    missing = f"{folder / 'model.safetensors'} is missing: only safetensors are read"
    pickled = folder / "pytorch_model.bin"
    if not present(pickled):
        return f"{missing}; fetch the model again, with all its files."
    command = _command(_DENSE, repr(str(pickled)), str(folder / "model.safetensors"))
    return f"{missing}; to convert {pickled.name}, run {command}, on a machine with torch."


def of_the_hub(name: str, revision: str | None) -> str:
    """Return the commands that convert a hub model with no supported weights into a folder."""
    own = f"./{name.rpartition('/')[2]}"
    source = repr(name) if revision is None else f"{name!r}, revision={revision!r}"
    commands = " and ".join(_command(program, source, own) for program in (_ENCODER, _TOKENIZER))
    return f"{commands}, {_WITH}, and HEADLIGHT_MODEL={own}"


_OTHER_FORMATS = ("*.h5", "*.msgpack", "*.gguf", "*.ot", "*.ckpt*", "*.mlmodel")
"""Weights that no command of transformers turns into safetensors any more."""
_SLOW = ("vocab.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model", "vocab.json")
"""The files of tokenizers that were saved without a tokenizer.json."""


def _encoder(folder: Path) -> str:
    return _command(_ENCODER, repr(str(folder)), str(folder))


def _command(program: str, source: str, target: str) -> str:
    return f"`python -c {shlex.quote(program.format(source, target))}`"
