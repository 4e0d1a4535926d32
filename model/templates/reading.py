"""Finds the chat template of a folder, and the special tokens that it may name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.files import present, read_bytes, reason, shown

_FILE = "chat_template.jinja"
_BYTES = 400_000


def find_template(folder: Path, settings: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the file that has the template, and the template; raises CheckpointError.

    `settings` are those of tokenizer_config.json, where older releases of transformers write it.
    """
    file, settings_file = folder / _FILE, folder / "tokenizer_config.json"
    if present(file):
        try:
            return file, read_bytes(file, _BYTES).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{file} cannot be read: {reason(error)}; fetch it again.") from error
    given = settings.get("chat_template")
    if isinstance(given, list):  # of several, the tokenizer uses "default"
        named = [one for one in given if isinstance(one, dict) and one.get("name") == "default"]
        given = named[0].get("template") if named else None
    if not isinstance(given, str):
        raise CheckpointError(
            f"{settings_file}: chat_template is {shown(given)}, but the modality_config of the transformer "
            f"has messages, which need a template: add {_FILE} to the folder."
        )
    return settings_file, given


def special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that settings name, such as `bos_token`, as a template reads them."""
    found = {}
    for name, token in settings.items():
        text = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found
