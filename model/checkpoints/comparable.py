"""Whether a folder says that the vectors of its encoder may be compared, to rank texts by them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.files import present, shown

_ENCODERS = ("Model", "Encoder", "ForMaskedLM", "ForPreTraining")
"""How the names of architectures end whose vectors are of sentences, or of the words that they are made of.

Encoders of sentences are often saved under the name of what they were trained for first.
"""


def why_not_comparable(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return why texts cannot be ranked by a folder's vectors, as the end of a sentence; None if they can.

    A folder with modules.json makes sentence vectors, whatever its transformer is called.
    """
    listed = config.get("architectures")
    if present(folder / "modules.json") or not isinstance(listed, list) or not listed:
        return None
    if not str(listed[0]).endswith(_ENCODERS):
        return (
            f"config.json says {shown(listed[0])}, which is no encoder of sentences; if its vectors are to "
            "be compared, add the modules.json of sentence-transformers"
        )
    labels = config.get("id2label")
    if isinstance(labels, dict) and len(labels) == 1:
        return (
            f"config.json names one label, as that of a cross-encoder does, but says {shown(listed[0])}: use "
            "the original files, whose architecture ends in ForSequenceClassification"
        )
    return None


def hidden_classifier(architectures: object) -> str:
    """Return the reason for a folder whose weights have a classifier that its config.json does not name."""
    return (
        f"its weights have a classifier, but architectures in config.json is {shown(architectures)}: name "
        "there the class that has it, which ends in ForSequenceClassification"
    )
