"""Finds where a long text can be cut so that its pieces give the same tokens as the whole text.

A tokenizer (`tokenizers`) finds added tokens in a text, normalizes the text between them, splits it into
words, and each word into tokens. A cut changes no token if a word certainly ends there, no added token spans
it, and the normalizer does not look across it. Which places qualify depends on the tokenizer: `Cutter.of`
supports BERT's and similar ones, `SpaceCutter.of` byte-level pairs and unigrams. Any other tokenizer has no
cutter, and tokenizes texts whole.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

PIECE = 1024
"""Characters per piece. The slowest pieces, words of a hundred letters, take five milliseconds."""

_WHITESPACE = " \n\t\r"
_PUNCTUATION = r"!-/:-@\[-`{-~"
_LAST_COMMON = "\uffff"
# BERT's normalizer puts spaces around these.
_IDEOGRAPHS = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_RARE_IDEOGRAPHS = (
    r"\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    r"\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
# Categories beyond ASCII that may end a word; `_ends_words` asks the tokenizer about each character.
_SEPARATING = ("P", "Z", "Cc")
_SEPARATORS_UNTIL = 0x20000
# Ranges around which BERT's normalizer puts spaces, and their surroundings: never letters of one long word.
_EAST_ASIAN = ((0x2E80, 0x2FFF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_LETTERS = ("L", "N")
_MARKS = ("Mn", "Mc", "Me", "Cf")
_SYMBOLS = ("So", "Sc", "Sm", "Sk")
# Python classifies these as symbols and a mark, but BERT's normalizer removes the first and `tokenizers`
# splits at the others.
_NOT_IN_WORDS = "\ufffd\u166d\U000111c9"
# These normalize each character by itself, together with the marks that follow it.
_LOCAL_NORMALIZERS = {"BertNormalizer", "Lowercase"}
# These look at a character and the marks around it, but never across a space.
_NORMALIZERS = _LOCAL_NORMALIZERS | {"NFC", "NFD", "NFKC", "NFKD", "StripAccents"}
_PRE_TOKENIZERS = (["BertPreTokenizer"], ["Whitespace"], ["WhitespaceSplit"])
_POST_PROCESSORS = {None, "BertProcessing", "TemplateProcessing"}
_MANY_ADDED = 64

# Letters of scripts with spaces between words. Those that are normalized to anything but letters and their
# marks, such as the Greek iota subscript, are left out.
_ALPHABETS = ((0x41, 0x587), (0x5D0, 0x5EA), (0x620, 0x64A), (0x904, 0x939))
_HANGUL = "\uac00-\ud7a3"
# These leave the space between two letters as it is.
_SPACED_NORMALIZERS = _NORMALIZERS | {"Precompiled"}
_SPACED_POST_PROCESSORS = {"BertProcessing", "TemplateProcessing", "RobertaProcessing", "ByteLevel"}
_RUNS_OF_SPACES = {"Regex": " {2,}"}
_AFTER_SPLITTING_AT_SPACES = {"Metaspace", "Punctuation", "Digits", "BertPreTokenizer"}
# Llama 3's and Qwen's: both begin a word at a space that precedes a letter. GPT-2's is in ByteLevel.
_SPLITTING = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_EXPRESSIONS = (_SPLITTING, _SPLITTING.replace("{1,3}", ""))


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters `start` to `end` of a text; `joined` means that its first word began in the piece before.

    That word is longer than any word in the vocabulary, so it is unknown wherever it ends.
    """

    start: int
    end: int
    joined: bool = False


@dataclass(frozen=True)
class Cutter:
    """Cuts the texts of one tokenizer.

    `isolated` is a pattern of characters that are words of their own, None if that is uncertain. `word` is
    the number of characters beyond which a word is unknown. `added` are the tokens that a cut must not split.
    No cut may follow a token of `greedy`, since these absorb the whitespace after them.
    """

    isolated: re.Pattern[str] | None
    word: int
    added: tuple[str, ...] = ()
    greedy: tuple[str, ...] = ()
    piece: int = PIECE

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Cutter | None":
        """Build the cutter of a tokenizer; None if a cut could change its tokens."""
        normalizers = _steps(tokenizer.normalizer, "normalizers")
        splitting = [step["type"] for step in _steps(tokenizer.pre_tokenizer, "pretokenizers")]
        added = list(tokenizer.get_added_tokens_decoder().values())
        known = (
            isinstance(tokenizer.model, models.WordPiece)
            and {step["type"] for step in normalizers} <= _NORMALIZERS
            and splitting in _PRE_TOKENIZERS
            and _type(tokenizer.post_processor) in _POST_PROCESSORS
        )
        if not known or any(_has_space(token, tokenizer) for token in added):
            return None
        word = tokenizer.model.max_input_chars_per_word
        if splitting == ["BertPreTokenizer"] and _are_local(normalizers) and _are_plain(added):
            spaced = any(step.get("handle_chinese_chars") for step in normalizers)
            others = list(filter(partial(_ends_words, tokenizer), _separators()))
            common = "".join(char for char in others if char <= _LAST_COMMON)
            rare = "".join(char for char in others if char > _LAST_COMMON)
            isolated = _one_of(
                _PUNCTUATION + re.escape(common) + (_IDEOGRAPHS if spaced else ""),
                re.escape(rare) + (_RARE_IDEOGRAPHS if spaced else ""),
            )
            return cls(isolated, word, tuple(token.content for token in added))
        if any(token.rstrip and token.normalized for token in added):
            return None
        return cls(None, word, greedy=tuple(token.content for token in added if token.rstrip))

    def pieces(self, text: str) -> Iterator[Piece]:
        """Cut a text into pieces of at most `piece` characters, or more where it cannot be cut."""
        start, joined = 0, False
        while len(text) - start > self.piece:
            end, inside = self._cut(text, start)
            yield Piece(start, end, joined)
            start, joined = end, inside
        if start < len(text) or not text:
            yield Piece(start, len(text), joined)

    def _cut(self, text: str, start: int) -> tuple[int, bool]:
        """Find the end of a piece, and whether the cut is inside a word."""
        low, high = start + 1, start + self.piece
        while low < len(text):
            high = min(high, len(text) - 1)
            cut = self._last_space(text, low, high) or self._isolated(text, low, high)
            if cut is not None:
                return cut, False
            inside = self._inside(text, low, high, start)
            if inside is not None:
                return inside, True
            low, high = high + 1, high + self.piece
        return len(text), False

    def _last_space(self, text: str, low: int, high: int) -> int | None:
        """Find the last place before a space; in a run of spaces, some may belong to a token beside it."""
        at = max(text.rfind(space, low, high + 1) for space in _WHITESPACE)
        if self.isolated is None:
            while at >= low and (text[at - 1].isspace() or text.endswith(self.greedy, 0, at)):
                at -= 1
        return at if at >= low and text[at] in _WHITESPACE else None

    def _isolated(self, text: str, low: int, high: int) -> int | None:
        """Find a late place before a character that is a word of its own."""
        if self.isolated is None:
            return None
        for begin, end in (((low + high) // 2, high + 1), (low, high + 1)):
            for match in self.isolated.finditer(text, begin, end):
                if not self._is_spanned(text, match.start(), match.start()):
                    return match.start()
        return None

    def _inside(self, text: str, low: int, high: int, start: int) -> int | None:
        """Find a late place inside an unknown word: more than `word` letters before it, one letter after."""
        if self.isolated is None:
            return None
        at = high
        while at > low and _goes_with_letters(text[at]):
            at -= 1
        if not _is_letter(text[at]):
            return None
        letters, begin, least = 0, at, max(start, at - self.piece)
        while letters <= self.word:
            begin -= 1
            if begin < least or not (_is_letter(text[begin]) or _goes_with_letters(text[begin])):
                return None
            letters += _is_letter(text[begin])
        return None if self._is_spanned(text, begin, at + 1) else at

    def _is_spanned(self, text: str, begin: int, end: int) -> bool:
        """Whether an added token overlaps the text from `begin` to `end`; if equal, whether one spans it."""
        for token in self.added:
            if text.find(token, max(0, begin - len(token) + 1), end + len(token) - 1) >= 0:
                return True
        return False


def _one_of(common: str, rare: str) -> re.Pattern[str]:
    """Return a pattern for the characters of two sets: `common`, up to U+FFFF, and `rare`, beyond.

    Python finds a common one by a table, but compares each character of the text with every rare one. So the
    pattern first finds any character beyond U+FFFF, and only then looks it up.
    """
    rare_too = rf"(?:(?<=[\0-{_LAST_COMMON}])|(?<=[{rare}]))" if rare else rf"(?<=[\0-{_LAST_COMMON}])"
    return re.compile(rf"[{common}\U00010000-\U0010ffff]{rare_too}")


@dataclass(frozen=True)
class SpaceCutter:
    """Cuts texts before single spaces between letters, for tokenizers that begin a word there."""

    piece: int = PIECE

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "SpaceCutter | None":
        """Build the cutter of a tokenizer; None if a cut could change its tokens."""
        added = tokenizer.get_added_tokens_decoder().values()
        splitting = _steps(tokenizer.pre_tokenizer, "pretokenizers")
        known = (
            _knows_all_words(tokenizer, splitting)
            and all(map(_keeps_spaces, _steps(tokenizer.normalizer, "normalizers")))
            and _splits_at_spaces(splitting)
            and all(map(_keeps_offsets, _steps(tokenizer.post_processor, "processors")))
        )
        return None if not known or any(_takes_letters(token, tokenizer) for token in added) else cls()

    def pieces(self, text: str) -> Iterator[Piece]:
        """Cut a text into pieces of at most `piece` characters, or more where it cannot be cut."""
        start = 0
        while len(text) - start > self.piece and (end := self._cut(text, start)) is not None:
            yield Piece(start, end)
            start = end
        yield Piece(start, len(text))

    def _cut(self, text: str, start: int) -> int | None:
        """Find the end of a piece, None if the rest cannot be cut."""
        low, high = start + 1, start + self.piece
        while low < len(text):
            if found := _between_letters().match(text, low, high + 2):
                return found.end() - 1
            low, high = high + 1, high + self.piece
        return None


@cache
def _between_letters() -> re.Pattern[str]:
    """Return a pattern that matches up to the last space between two letters."""
    codes = (code for first, last in _ALPHABETS for code in range(first, last + 1))
    letters = "".join(char for char in map(chr, codes) if _stays_letters(char)) + _HANGUL
    return re.compile(f".*(?<=[{letters}]) (?=[{letters}])", re.DOTALL)


def _stays_letters(char: str) -> bool:
    first, *others = map(unicodedata.category, unicodedata.normalize("NFKD", char))
    return first in ("Lu", "Ll", "Lo") and all(other in ("Lu", "Ll", "Lo", "Mn") for other in others)


def _knows_all_words(tokenizer: Tokenizer, splitting: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every word has a token, so that words can be counted."""
    model = tokenizer.model
    if isinstance(model, models.BPE) and any(step["type"] == "ByteLevel" for step in splitting):
        return all(model.token_to_id(byte) is not None for byte in pre_tokenizers.ByteLevel.alphabet())
    return isinstance(model, models.Unigram) or (
        isinstance(model, models.BPE) and model.unk_token is not None
    )


def _keeps_spaces(step: Mapping[str, Any]) -> bool:
    """Whether a step of a normalizer changes neither a space between letters, nor what is beside it."""
    if step["type"] != "Replace":
        return step["type"] in _SPACED_NORMALIZERS
    literal = step["pattern"].get("String", "")
    signs = literal + step["content"]
    return step["pattern"] == _RUNS_OF_SPACES or bool(
        literal and not any(char.isalnum() or char.isspace() for char in signs)
    )


def _splits_at_spaces(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pre-tokenizer begins a word at every space between letters."""
    if not steps:
        return False
    first, *others = steps
    kinds = {step["type"] for step in others}
    match first["type"]:
        case "WhitespaceSplit":
            return kinds <= _AFTER_SPLITTING_AT_SPACES
        case "Metaspace":
            return bool(first["split"]) and not kinds
        case "ByteLevel":
            return bool(first["use_regex"]) and not kinds
        case "Split":
            known = first["pattern"].get("Regex") in _EXPRESSIONS and first["behavior"] == "Isolated"
            plain = all(not (step.get("use_regex") or step.get("add_prefix_space")) for step in others)
            return known and not first["invert"] and kinds == {"ByteLevel"} and plain
    return False


def _keeps_offsets(step: Mapping[str, Any]) -> bool:
    """Whether a post-processor treats the first token of a text like any other."""
    first = step.get("add_prefix_space") and step.get("trim_offsets")
    return step["type"] in _SPACED_POST_PROCESSORS and not first


def _takes_letters(token: AddedToken, tokenizer: Tokenizer) -> bool:
    """Whether an added token may take a space beside a letter."""
    first, last = token.content[:1], token.content[-1:]
    beside = (token.lstrip and first.isalpha()) or (token.rstrip and last.isalpha())
    return beside or _has_space(token, tokenizer)


@cache
def _separators() -> str:
    """Return the characters, besides ASCII spaces and punctuation, that may end a word."""
    return "".join(
        char
        for char in map(chr, range(1, _SEPARATORS_UNTIL))
        if unicodedata.category(char).startswith(_SEPARATING)
        and char not in _WHITESPACE
        and not ("!" <= char <= "~")
    )


def _ends_words(tokenizer: Tokenizer, char: str) -> bool:
    """Whether a tokenizer ends a word before a character and starts one after it."""
    text = f"a{char}a"
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    first, *others = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return first == "a" and others[-1:] == ["a"]


def _steps(component: Any, parts: str) -> list[Mapping[str, Any]]:
    """List the steps of a normalizer or a pre-tokenizer."""
    if component is None:
        return []
    return list(_flat(json.loads(component.__getstate__()), parts))


def _flat(state: Mapping[str, Any], parts: str) -> Iterator[Mapping[str, Any]]:
    if state["type"] != "Sequence":
        yield state
        return
    for part in state[parts]:
        yield from _flat(part, parts)


def _type(component: Any) -> str | None:
    return None if component is None else str(json.loads(component.__getstate__())["type"])


def _are_local(normalizers: Sequence[Mapping[str, Any]]) -> bool:
    return {step["type"] for step in normalizers} <= _LOCAL_NORMALIZERS


def _are_plain(added: Sequence[AddedToken]) -> bool:
    """Whether added tokens match by their characters alone, whatever is beside them."""
    return len(added) <= _MANY_ADDED and not any(
        token.lstrip or token.rstrip or token.single_word or token.normalized for token in added
    )


def _has_space(token: AddedToken, tokenizer: Tokenizer) -> bool:
    texts = [token.content]
    if token.normalized and tokenizer.normalizer is not None:
        texts.append(tokenizer.normalizer.normalize_str(token.content))
    return any(char.isspace() for text in texts for char in text)


@lru_cache(4096)
def _is_letter(char: str) -> bool:
    """Whether a character is certainly part of a word: it is kept, splits nothing, and is not a mark.

    Symbols count as letters, because BERT splits only at punctuation.
    """
    code = ord(char)
    if char in _NOT_IN_WORDS or any(low <= code <= high for low, high in _EAST_ASIAN):
        return False
    if unicodedata.category(char)[0] in _LETTERS:
        return unicodedata.category(unicodedata.normalize("NFD", char)[0])[0] in _LETTERS
    return code > 0x7F and unicodedata.category(char) in _SYMBOLS and not unicodedata.decomposition(char)


@lru_cache(4096)
def _goes_with_letters(char: str) -> bool:
    """Whether letters around a character certainly stay one word, even if the character is removed."""
    return unicodedata.category(char) in _MARKS and char not in _NOT_IN_WORDS
