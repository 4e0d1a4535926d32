"""Reads a `tokenizer.json`, and refuses one that would stop, fail or swell with a text it has never seen.

The library builds what a file describes without asking what it costs: a replacement that doubles the text,
sixty times over, is a hundred bytes a piece.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram

from model.errors import CheckpointError
from model.files import parse_json, read_bytes, reason, shown

MOST_BYTES = 64 * 2**20
"""The most that a tokenizer.json has; the largest published, of 250,000 words, have some 35 MB."""
_GROWTH = 256
"""How many times longer a normalizer may make a text."""
_WORD = 1000
"""The longest word, in characters, that is looked up piece by piece: that takes the square of its length."""
_PARTS = 512
_STEPS = ("pre_tokenizer", "post_processor")
_SEQUENCES = ("normalizers", "pretokenizers", "processors")
_WHOLE = "put the model's own tokenizer.json in its place"
_MOST_ADDED = 200_000


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a file as the library does, its truncation and padding included; raises CheckpointError."""
    content = read_bytes(path, MOST_BYTES)
    parsed = parse_json(path, content)
    if (problem := _problem(parsed)) is not None:
        raise CheckpointError(f"{path} cannot be read: {problem}; {_WHOLE}.")
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, and panics are none
        raise CheckpointError(f"{path} cannot be read: {reason(error)}; {_WHOLE}.") from error
    if (unknown := _unknown(parsed["model"], tokenizer)) is not None:
        raise CheckpointError(
            f"{path}: {unknown}, so that no text with a character outside of model.vocab could be read; "
            f"{_WHOLE}."
        )
    if isinstance(tokenizer.model, BPE):
        tokenizer.model.dropout = None  # of training: the same text is to have the same tokens
    return tokenizer


def _problem(parsed: Mapping[str, Any]) -> str | None:
    """Say what of a file no text could be read with in bounded time and memory."""
    model = parsed.get("model")
    if not isinstance(model, dict):
        return f"model is {shown(model)}, which is no object"
    longest = model.get("max_input_chars_per_word", 0)
    if isinstance(longest, int) and longest > _WORD:
        return f"model.max_input_chars_per_word is {shown(longest)}, and at most {_WORD} are looked up"
    added = parsed.get("added_tokens")
    if isinstance(added, list) and len(added) > _MOST_ADDED:
        return f"added_tokens has {len(added)} entries, and at most {_MOST_ADDED} are read"
    growth, count = 1.0, 0
    for part in _parts(parsed.get("normalizer")):
        count += 1
        growth *= _grows(part)
        if growth > _GROWTH:
            return f"normalizer makes a text more than {_GROWTH} times as long"
    count += sum(1 for part in _STEPS for _ in _parts(parsed.get(part)))
    if any(not _once(part) for part in _parts(parsed.get("post_processor"))):
        return "post_processor has to take each text of an input once"
    return f"it has {count} steps around its model, and at most {_PARTS} are run" if count > _PARTS else None


def _parts(component: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a component, those of sequences one by one."""
    waiting = [component]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += [x for name in _SEQUENCES for x in _list(part.get(name))]


def _once(part: Mapping[str, Any]) -> bool:
    """Say whether a template has each text once; of one twice, the pieces that are cut off are multiplied."""
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
    """Say how many times longer a step can make a text."""
    content, pattern = part.get("content"), part.get("pattern")
    if part.get("type") == "Prepend":
        return 1.0 + len(str(part.get("prepend", ""))) / 64  # once a text, or once a piece of it
    if part.get("type") != "Replace" or not isinstance(content, str):
        return 1.0
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(literal, str) and literal:
        return max(1.0, len(content) / len(literal))
    return 1.0 + len(content) if len(content) > 1 or not _consumes(pattern) else 1.0


def _consumes(pattern: Any) -> bool:
    """Say whether an expression surely takes a character away for what it puts in: by its form alone."""
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    return isinstance(expression, str) and expression != "" and not any(c in expression for c in "*?|^$()")


def _unknown(described: Mapping[str, Any], tokenizer: Tokenizer) -> str | None:
    """Say what should stand in for an unknown character and is not there; None where there is something.

    Byte-pair encodings often need none: what they do with such a character, a trial shows.
    """
    model = tokenizer.model
    if isinstance(model, Unigram):
        stands_in = described.get("unk_id") is not None or described.get("byte_fallback")
        return None if stands_in else "model.unk_id is not set"
    if isinstance(model, BPE) or model.token_to_id(model.unk_token) is not None:
        return None
    return f"model.unk_token is {shown(model.unk_token)}, which is not in model.vocab"
