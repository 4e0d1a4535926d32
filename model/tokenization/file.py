"""Reads a `tokenizer.json`, and rejects one that could hang, fail or exhaust memory on some text.

The library builds what a file describes, whatever its cost: a replacement that doubles the text takes a
hundred bytes in the file, and sixty of them exhaust memory.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram

from model.errors import CheckpointError
from model.files import parse_json, read_bytes, reason, shown

MOST_BYTES = 64 * 2**20
"""The largest tokenizer.json that is read; the largest published, with 250,000 words, have some 35 MB."""
_GROWTH = 256
"""How many times longer a normalizer may make a text."""
_WORD = 1000
"""The longest word, in characters, that is split into pieces, which takes time quadratic in its length."""
_PARTS = 512
_STEPS = ("pre_tokenizer", "post_processor")
_SEQUENCES = ("normalizers", "pretokenizers", "processors")
_WHOLE = "replace it with the model's own tokenizer.json"
_MOST_ADDED = 200_000


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer, truncation and padding included, as the library does; raises CheckpointError."""
    content = read_bytes(path, MOST_BYTES)
    parsed = parse_json(path, content)
    if (problem := _problem(parsed)) is not None:
        raise CheckpointError(f"{path} cannot be read: {problem}; {_WHOLE}.")
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, and its panics not even that
        raise CheckpointError(f"{path} cannot be read: {reason(error)}; {_WHOLE}.") from error
    if (unknown := _unknown(parsed["model"], tokenizer)) is not None:
        raise CheckpointError(
            f"{path}: {unknown}, so a text with a character outside of model.vocab could not be tokenized; "
            f"{_WHOLE}."
        )
    if isinstance(tokenizer.model, BPE):
        tokenizer.model.dropout = None  # for training only: the same text must have the same tokens
    return tokenizer


def _problem(parsed: Mapping[str, Any]) -> str | None:
    """Return what in a file would need unbounded time or memory on some text, None if nothing does."""
    model = parsed.get("model")
    if not isinstance(model, dict):
        return f"model is {shown(model)}, which is not an object"
    longest = model.get("max_input_chars_per_word", 0)
    if isinstance(longest, int) and longest > _WORD:
        return f"model.max_input_chars_per_word is {shown(longest)}; the limit is {_WORD}"
    added = parsed.get("added_tokens")
    if isinstance(added, list) and len(added) > _MOST_ADDED:
        return f"added_tokens has {len(added)} entries; the limit is {_MOST_ADDED}"
    growth, count = 1.0, 0
    for part in _parts(parsed.get("normalizer")):
        count += 1
        growth *= _grows(part)
        if growth > _GROWTH:
            return f"normalizer can make a text more than {_GROWTH} times as long"
    count += sum(1 for part in _STEPS for _ in _parts(parsed.get(part)))
    if any(not _once(part) for part in _parts(parsed.get("post_processor"))):
        return "post_processor must take each text of an input exactly once"
    return (
        f"it has {count} steps before and after its model; the limit is {_PARTS}" if count > _PARTS else None
    )


def _parts(component: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a component, including those nested in sequences."""
    waiting = [component]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += [x for name in _SEQUENCES for x in _list(part.get(name))]


def _once(part: Mapping[str, Any]) -> bool:
    """Return whether a template uses each text exactly once: a repeated text would multiply the pieces."""
    if part.get("type") != "TemplateProcessing":
        return True
    for form, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = [piece.get("Sequence") for piece in _list(part.get(form)) if isinstance(piece, dict)]
        if sorted(str(piece.get("id")) for piece in pieces if isinstance(piece, dict)) != texts:
            return False
    return True


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _grows(part: Mapping[str, Any]) -> float:
    """Return how many times longer a step can make a text."""
    content, pattern = part.get("content"), part.get("pattern")
    if part.get("type") == "Prepend":
        return 1.0 + len(str(part.get("prepend", ""))) / 64  # once per text, or once per piece of it
    if part.get("type") != "Replace" or not isinstance(content, str):
        return 1.0
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(literal, str) and literal:
        return max(1.0, len(content) / len(literal))
    return 1.0 + len(content) if len(content) > 1 or not _consumes(pattern) else 1.0


def _consumes(pattern: Any) -> bool:
    """Return whether each match of an expression certainly consumes a character, judging by its form."""
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    return isinstance(expression, str) and expression != "" and not any(c in expression for c in "*?|^$()")


def _unknown(described: Mapping[str, Any], tokenizer: Tokenizer) -> str | None:
    """Return which token for unknown characters is missing; None if the model has one or needs none.

    Byte-pair encodings often need none; a trial at startup shows whether they handle such a character.
    """
    model = tokenizer.model
    if isinstance(model, Unigram):
        stands_in = described.get("unk_id") is not None or described.get("byte_fallback")
        return None if stands_in else "model.unk_id is not set"
    if isinstance(model, BPE) or model.token_to_id(model.unk_token) is not None:
        return None
    return f"model.unk_token is {shown(model.unk_token)}, which is not in model.vocab"
