"""Reads a `tokenizer.json`, and rejects one that could hang, fail or exhaust memory on some text.

The library builds what a file describes, whatever its cost: a replacement that doubles the text takes a
hundred bytes in the file, and sixty of them exhaust memory.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram

from model.errors import CheckpointError
from model.files import parse_json, read_bytes, reason, shown
from model.tokenization.sentencepiece import longest_replacement

MOST_BYTES = 64 * 2**20
"""The largest tokenizer.json that is read; the largest published, with 250,000 words, have some 35 MB."""
_GROWTH = 32
"""How many times longer a normalizer may make a text; published ones replace a character with up to 18."""
_WORD = 1000
"""The longest word, in characters, that is split into pieces, which takes time quadratic in its length."""
_TOKEN = 1000
"""The longest token, in characters; real ones reach a few hundred."""
_PIECE = 128
_PARTS = 512
_EXPRESSIONS = 10_000
"""The most characters that all regular expressions together may have; compiling them takes memory."""
_AROUND = 256
"""How many special tokens may be put around texts; published tokenizers add up to four."""
_AFFIXES = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_STEPS = ("pre_tokenizer", "post_processor", "decoder")
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
_WHOLE = "replace it with the model's own tokenizer.json"
_MOST_ADDED = 200_000
_ADDED_CHARACTERS = 2**21
"""The most characters that all added tokens may have: searching texts for them takes 70 bytes for each."""


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
    problems = (
        _problem_of_model(parsed.get("model")),
        _problem_of_added(parsed.get("added_tokens")),
        _problem_of_steps(parsed),
        _problem_around(parsed.get("post_processor")),
    )
    return next((problem for problem in problems if problem is not None), None)


def _problem_of_model(model: Any) -> str | None:
    if not isinstance(model, dict):
        return f"model is {shown(model)}, which is not an object"
    longest = model.get("max_input_chars_per_word", 0)
    if isinstance(longest, int) and longest > _WORD:
        return f"model.max_input_chars_per_word is {shown(longest)}; the limit is {_WORD}"
    vocabulary = model.get("vocab")
    scored = (item[0] for item in _list(vocabulary) if isinstance(item, list) and item)
    tokens = vocabulary if isinstance(vocabulary, dict) else scored
    lengths = [len(token) for token in tokens if isinstance(token, str)]
    if (longest := max(lengths, default=0)) > _TOKEN:
        return f"a token of model.vocab has {longest} characters; the limit is {_TOKEN}"
    # At each place of a text, a Unigram model tries all of its tokens that match there.
    if not isinstance(vocabulary, dict) and (many := sum(n > _PIECE for n in lengths)) > _PIECE:
        return f"model.vocab has {many} tokens of more than {_PIECE} characters; the limit is {_PIECE}"
    return _too_long({f"model.{name}": model.get(name) for name in _AFFIXES})


def _too_long(texts: Mapping[str, Any]) -> str | None:
    """Return which of some texts is longer than a token may be, None if none is."""
    for name, text in texts.items():
        if isinstance(text, str) and len(text) > _TOKEN:
            return f"{name} has {len(text)} characters; the limit is {_TOKEN}"
    return None


def _problem_of_added(added: Any) -> str | None:
    if len(_list(added)) > _MOST_ADDED:
        return f"added_tokens has {len(added)} entries; the limit is {_MOST_ADDED}"
    contents = [token.get("content") for token in _list(added) if isinstance(token, dict)]
    characters = sum(len(content) for content in contents if isinstance(content, str))
    if characters > _ADDED_CHARACTERS:
        return f"added_tokens have {characters} characters in all; the limit is {_ADDED_CHARACTERS}"
    return None


def _problem_of_steps(parsed: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the steps before and after the model."""
    normalizing = list(parts(parsed.get("normalizer")))
    if growth(normalizing) > _GROWTH:
        return f"normalizer can make a text more than {_GROWTH} times as long"
    if any(_grows(part) > 1.0 for part in parts(parsed.get("decoder"))):
        return "decoder can make a text longer than its tokens"
    steps = [*normalizing, *(part for name in _STEPS for part in parts(parsed.get(name)))]
    if len(steps) > _PARTS:
        return f"it has {len(steps)} steps before and after its model; the limit is {_PARTS}"
    characters = sum(len(expression) for expression in expressions(steps))
    if characters > _EXPRESSIONS:
        return f"its regular expressions have {characters} characters in all; the limit is {_EXPRESSIONS}"
    return None


def _problem_around(post_processor: Any) -> str | None:
    """Return what is wrong with the special tokens around texts, which every text gets a copy of."""
    count = 0
    for part in parts(post_processor):
        if not _once(part):
            return "post_processor must take each text of an input exactly once"
        tokens = part.get("special_tokens")
        special = tokens if isinstance(tokens, dict) else {}
        texts = {f"post_processor.{side}": str(part.get(side, "")) for side in ("cls", "sep")}
        sizes = dict.fromkeys(special, 1)
        for name, token in special.items():
            ids, named = (
                _list(token.get(key)) if isinstance(token, dict) else [] for key in ("ids", "tokens")
            )
            if len(ids) != len(named):
                return f"post_processor has {len(ids)} ids and {len(named)} tokens for {shown(name)}"
            sizes[name] = max(1, len(ids))
            texts[f"a token of post_processor for {shown(name)}"] = max(map(str, named), key=len, default="")
        if (problem := _too_long(texts)) is not None:
            return problem
        pieces = [piece for form in ("single", "pair") for piece in _list(part.get(form))]
        count += sum(sizes.values()) + sum(sizes.get(_special(piece), 1) for piece in pieces)
    if count > _AROUND:
        return f"post_processor has {count} special tokens in all; the limit is {_AROUND}"
    return None


def _special(piece: Any) -> str:
    """Return the name of the special token in a piece of a template, "" if the piece is none."""
    token = piece.get("SpecialToken") if isinstance(piece, dict) else None
    return str(token.get("id")) if isinstance(token, dict) else ""


def parts(component: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a component that a tokenizer.json describes, including those nested in sequences."""
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


def expressions(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the regular expressions of steps, as a tokenizer.json describes them."""
    patterns = (part.get("pattern") for part in parts)
    found = (pattern.get("Regex") for pattern in patterns if isinstance(pattern, dict))
    return [expression for expression in found if isinstance(expression, str)]


def growth(parts: Iterable[Mapping[str, Any]]) -> float:
    """Return how many times longer the steps of a normalizer can make a text."""
    return math.prod(map(_grows, parts))


def _grows(part: Mapping[str, Any]) -> float:
    content, pattern = part.get("content"), part.get("pattern")
    if part.get("type") == "Prepend":
        return 1.0 + len(str(part.get("prepend", ""))) / 64  # once per text, or once per piece of it
    if part.get("type") == "Precompiled":
        return _grows_by(part.get("precompiled_charsmap"))
    if part.get("type") != "Replace" or not isinstance(content, str):
        return 1.0
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(literal, str) and literal:
        return max(1.0, len(content) / len(literal))
    return 1.0 + len(content) if len(content) > 1 or not _consumes(pattern) else 1.0


def _grows_by(characters: Any) -> float:
    try:
        return longest_replacement(base64.b64decode(characters))
    except (TypeError, ValueError):
        return 1.0  # the library reports what is wrong with it


def _consumes(pattern: Any) -> bool:
    """Return whether each match of an expression certainly consumes a character, judging by its form."""
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    return isinstance(expression, str) and expression != "" and not any(c in expression for c in "*?|^$()")


_DOES: Mapping[str, Callable[[Mapping[str, Mapping[str, Any]]], bool]] = {
    "do_lower_case": lambda steps: "Lowercase" in steps,
    "keep_accents": lambda steps: "StripAccents" not in steps,
    "split_by_punct": lambda steps: "Punctuation" in steps,
    "add_prefix_space": lambda steps: steps.get("Metaspace", {}).get("prepend_scheme") == "always",
}
"""For each setting of SentencePiece's classes, the value that a tokenizer's steps, keyed by type, imply."""


def check_agreement(tokenizer: Tokenizer, settings: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise CheckpointError if a tokenizer contradicts one of the settings `names`."""
    given = [name for name in names if isinstance(settings.get(name), bool)]
    if not given:
        return
    steps = {
        str(part.get("type")): part
        for component in (tokenizer.normalizer, tokenizer.pre_tokenizer)
        if component is not None
        for part in parts(json.loads(component.__getstate__()))
    }
    for name in given:
        if settings[name] != _DOES[name](steps):
            raise CheckpointError(
                f"{name} is {json.dumps(settings[name])}, but tokenizer.json does not do this: save the "
                "tokenizer again with transformers, with this setting."
            )


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
