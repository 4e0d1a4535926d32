"""Where a long text may be cut, so that its pieces have the tokens that the whole text has.

A tokenizer (`tokenizers`) finds added tokens in a text, normalizes what is between them, splits that into
words, and each word into tokens. A cut changes nothing where a word certainly ends, no added token reaches
across, and the normalizer looks at nothing on the other side. That depends on the tokenizer: `Cutter.of`
knows those of BERT, and what resembles them; of others it is None, and their texts are tokenized whole.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

PIECE = 1024
"""Characters of a piece. The slowest ones, words of a hundred letters, take five milliseconds."""

_WHITESPACE = " \n\t\r"
_PUNCTUATION = r"!-/:-@\[-`{-~"
# What BERT's normalizer puts spaces around.
_IDEOGRAPHS = (
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    r"\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
# Beyond ASCII, what may end a word; the tokenizer is asked which of them do.
_SEPARATING = ("P", "Z", "Cc")
_SEPARATORS_UNTIL = 0x20000
# Ranges that BERT's normalizer puts spaces around, or that lie near them: no letters of one long word.
_EAST_ASIAN = ((0x2E80, 0x2FFF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_LETTERS = ("L", "N")
_MARKS = ("Mn", "Mc", "Me", "Cf")
_SYMBOLS = ("So", "Sc", "Sm", "Sk")
# Symbols and a mark to Python: BERT's normalizer removes the first, `tokenizers` splits at the others.
_NOT_IN_WORDS = "\ufffd\u166d\U000111c9"
# What each of these does to a character depends on it alone, but for marks that follow it.
_LOCAL_NORMALIZERS = {"BertNormalizer", "Lowercase"}
# These look at a character and the marks around it: never across a space.
_NORMALIZERS = _LOCAL_NORMALIZERS | {"NFC", "NFD", "NFKC", "NFKD", "StripAccents"}
_PRE_TOKENIZERS = (["BertPreTokenizer"], ["Whitespace"], ["WhitespaceSplit"])
_POST_PROCESSORS = {None, "BertProcessing", "TemplateProcessing"}
_MANY_ADDED = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters `start` to `end` of a text; `joined` says that its first word began in the piece before.

    That word is longer than any that the tokenizer knows, wherever it ends.
    """

    start: int
    end: int
    joined: bool = False


@dataclass(frozen=True)
class Cutter:
    """Cuts the texts of one tokenizer.

    Words end around `isolated` characters, a pattern, and None where that is not sure. `word` is the number
    of characters beyond which a word is unknown. `added` are the tokens to look for around a cut, and after
    those of `greedy` none may be made, since they take whitespace along.
    """

    isolated: re.Pattern[str] | None
    word: int
    added: tuple[str, ...] = ()
    greedy: tuple[str, ...] = ()
    piece: int = PIECE

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Cutter | None":
        """Learn what a tokenizer does; None where a cut could change its tokens."""
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
            others = re.escape("".join(filter(partial(_ends_words, tokenizer), _separators())))
            isolated = re.compile(f"[{_PUNCTUATION}{others}{_IDEOGRAPHS if spaced else ''}]")
            return cls(isolated, word, tuple(token.content for token in added))
        if any(token.rstrip and token.normalized for token in added):
            return None
        return cls(None, word, greedy=tuple(token.content for token in added if token.rstrip))

    def pieces(self, text: str) -> Iterator[Piece]:
        """Cut a text; a piece is longer than `piece` where there is no place to cut it."""
        start, joined = 0, False
        while len(text) - start > self.piece:
            end, inside = self._cut(text, start)
            yield Piece(start, end, joined)
            start, joined = end, inside
        if start < len(text) or not text:
            yield Piece(start, len(text), joined)

    def _cut(self, text: str, start: int) -> tuple[int, bool]:
        """Find the end of a piece, and whether it lies inside a word."""
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
        """Find the last place before a space; those of a run may belong to a token beside it."""
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
        """Find a late place inside a word: more letters than any known one has before it, and one behind."""
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
        """Whether an added token reaches into a part of a text, or across a place."""
        for token in self.added:
            if text.find(token, max(0, begin - len(token) + 1), end + len(token) - 1) >= 0:
                return True
        return False


@cache
def _separators() -> str:
    """List the characters, beyond the spaces and the punctuation of ASCII, that may end a word."""
    return "".join(
        char
        for char in map(chr, range(1, _SEPARATORS_UNTIL))
        if unicodedata.category(char).startswith(_SEPARATING)
        and char not in _WHITESPACE
        and not ("!" <= char <= "~")
    )


def _ends_words(tokenizer: Tokenizer, char: str) -> bool:
    """Whether a tokenizer ends a word before a character, and begins one behind it."""
    text = f"a{char}a"
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    first, *others = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return first == "a" and others[-1:] == ["a"]


def _steps(component: Any, parts: str) -> list[Mapping[str, Any]]:
    """List what a normalizer or a pre-tokenizer does, step by step."""
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
    """Whether tokens are found by their characters alone, whatever is beside them."""
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
    """Whether a character is surely a part of a word: it stays, splits nothing, and is no mark.

    Symbols count: BERT splits at punctuation alone.
    """
    code = ord(char)
    if char in _NOT_IN_WORDS or any(low <= code <= high for low, high in _EAST_ASIAN):
        return False
    if unicodedata.category(char)[0] in _LETTERS:
        return unicodedata.category(unicodedata.normalize("NFD", char)[0])[0] in _LETTERS
    return code > 0x7F and unicodedata.category(char) in _SYMBOLS and not unicodedata.decomposition(char)


@lru_cache(4096)
def _goes_with_letters(char: str) -> bool:
    """Whether a character between letters surely leaves them one word, be it kept or removed itself."""
    return unicodedata.category(char) in _MARKS and char not in _NOT_IN_WORDS
