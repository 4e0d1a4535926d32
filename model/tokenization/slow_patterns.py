r"""Finds the regular expressions that make a tokenizer slow on some texts, and estimates their time.

The library's expressions backtrack: `\s+$` takes 3 s for 20,000 spaces before a letter, four times as long
for twice as many, and nothing interrupts it. One cannot see whether an expression does so; each is timed when
its tokenizer is loaded, on texts that are hard for many: a few characters, repeated, and then others.
Expressions of published tokenizers take time in proportion to the text, and then nothing else happens here.
"""

import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers

from model.errors import CheckpointError, InputTooSlow
from model.files import reason, shown
from model.tokenization.file import expressions, parts

STEP_S = 0.25
"""How long slow expressions may take for an input, while the texts of other requests wait."""
_LEAST = 512
"""A tokenizer is refused if fewer characters than this may take STEP_S."""
_SIZES = (64, 256, 1024)
# For texts that seem to take more than proportional time, until one takes _CLEAR_S.
_LARGER_SIZES = (4096, 16384, 65536)
_CLEAR_S, _FINEST_S = 0.005, 1e-7
# Time in proportion to the size has power 1; noise makes it seem more.
_STEEP = 1.4
# The power that is assumed if even the first size takes long.
_UNKNOWN = 3.0
# Seconds per character; usual expressions take 10 to 500 ns.
_SLOW_S = 15e-6
# Seconds after which measuring one expression ends, and every character counts as hard for it; and seconds
# after which measuring all expressions ends, and the tokenizer is refused.
_MEASURING_S, _MEASURING_ALL_S = 1.0, 10.0
# How often a slow search is measured: another program may have taken the time.
_MEASURED = 2
_HARD = (*" \t\n\u00a0aA1._\u00e9\u4e2d", "a ", "a1", "a.", ". ", "aA1._ ")
# How many of an expression's own characters and words are tried too.
_OWN = 12
_CLASSES = re.compile(r"\\[pP]\{[^}]*\}|\\.")
_WORDS = re.compile(r"[^\W_]{2,12}")
# Shorter runs are left out: they take little time, and there are many.
_SHORTEST_RUN = 16
_OTHER = r"[^\w\s]"
_KINDS = {r"\s": "spaces", r"\w": "letters or digits", _OTHER: "other characters"}


@dataclass(frozen=True)
class SlowPattern:
    """An expression that takes rate · n^power seconds for n characters of its kinds (_KINDS) in a row."""

    expression: str
    kinds: frozenset[str]
    rate: float
    power: float

    @cached_property
    def _runs(self) -> re.Pattern[str]:
        listed = "".join(sorted(self.kinds))
        if _OTHER in self.kinds:
            listed = "^" + "".join(sorted(_KINDS.keys() - self.kinds)) if len(self.kinds) < 3 else r"\s\S"
        return re.compile(f"[{listed}]{{{_SHORTEST_RUN},}}")

    @property
    def _hard(self) -> str:
        return " or ".join(_KINDS[kind] for kind in sorted(self.kinds))

    def seconds(self, lengths: Iterable[int]) -> float:
        """Estimate how long the expression takes for runs of these lengths."""
        return sum(self.rate * float(length) ** self.power for length in lengths)

    def length(self, seconds: float) -> int:
        """Return how long a run may be to take this many seconds."""
        return int((seconds / self.rate) ** (1 / self.power))

    def check(self, texts: Iterable[str], limit_s: float, field: str) -> None:
        """Raise InputTooSlow for an input that would take longer than the limit."""
        lengths = [run.end() - run.start() for text in texts for run in self._runs.finditer(text)]
        if (seconds := self.seconds(lengths)) > limit_s:
            raise InputTooSlow(
                field=field,
                what=self._hard,
                actual=sum(lengths),
                limit=self.length(limit_s),
                expression=_named(self.expression),
                seconds=seconds,
            )

    def warning(self, limit_s: float) -> str:
        """Say how slow the expression is, and what follows from that."""
        return (
            f"the expression {_named(self.expression)} may take {self.seconds([20_000]):.2g} s for 20,000 "
            f"{self._hard} in a row; the limit is {limit_s:g} s, so inputs with more than "
            f"{self.length(limit_s)} in a row, or with shorter runs that take as long, are refused"
        )


class SlowPatterns:
    """The slow expressions of a tokenizer, usually none; each of them may take its share of STEP_S."""

    def __init__(self, patterns: Sequence[SlowPattern] = ()) -> None:
        self._patterns = tuple(patterns)
        self._each_s = STEP_S / max(1, len(patterns))
        self.shortest = min((one.length(self._each_s) for one in patterns), default=None)
        """How many characters may take STEP_S; None if there are no slow expressions."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "SlowPatterns":
        """Time the expressions of a tokenizer.

        Raises CheckpointError if one is too slow for any useful text, or if a slow one is in the decoder.
        """
        found = cls([*_slow(tokenizer.normalizer, tokenizer.pre_tokenizer)])
        if found.shortest is not None and found.shortest < _LEAST:
            raise CheckpointError(
                f"all {len(found._patterns)} slow expressions together may take more than {STEP_S:g} s for "
                f"{found.shortest} characters"
            )
        for one in _slow(tokenizer.decoder):
            raise _refused(one.expression, "it is in the decoder, and its time grows faster than the text")
        return found

    def check(self, texts: Sequence[str], field: str) -> None:
        """Raise InputTooSlow for an input on which one of them would take too long."""
        for one in self._patterns:
            one.check(texts, self._each_s, field)

    def warnings(self) -> list[str]:
        """Say for each expression how slow it is, and what follows from that."""
        return [one.warning(self._each_s) for one in self._patterns]


def _slow(*components: Any) -> Iterator[SlowPattern]:
    """Time the expressions of some components of a tokenizer, and yield those that are slow."""
    described = [json.loads(one.__getstate__()) for one in components if one is not None]
    until = time.thread_time() + _MEASURING_ALL_S
    for expression in dict.fromkeys(expressions(part for one in described for part in parts(one))):
        if time.thread_time() > until:
            raise _refused(
                expression, "it was not tried, because the expressions before it take too long as well"
            )
        if (slow := _measure(expression)) is not None:
            yield slow


def _measure(expression: str) -> SlowPattern | None:
    """Time an expression on many texts; None if its time is always proportional. Raises CheckpointError."""
    search = normalizers.Replace(Regex(expression), "")
    until = time.thread_time() + _MEASURING_S
    slow: list[SlowPattern] = []
    for repeated, end in _hard_for(expression):
        rate, power = _fit(search, expression, repeated, end)
        if power > 1.0 or rate > _SLOW_S:
            slow.append(SlowPattern(expression, frozenset(map(_kind, repeated)), rate, power))
            if (length := slow[-1].length(STEP_S)) < _LEAST:
                raise _refused(expression, f"{length} characters may take {STEP_S:g} s")
        if time.thread_time() > until:
            break
    if not slow:
        return None
    worst = min(slow, key=lambda one: one.length(STEP_S))
    every = worst.power == 1.0 or time.thread_time() > until
    kinds = frozenset(_KINDS) if every else frozenset(kind for one in slow for kind in one.kinds)
    return SlowPattern(expression, kinds, worst.rate, worst.power)


def _hard_for(expression: str) -> Iterator[tuple[str, str]]:
    """Yield what to repeat in a text, and what to end the text with, so that an expression may fail there.

    An end has all characters of the expression: the library sees at once that a text without one cannot
    match. One end has them in order and one in reverse, so that at least one may not match.
    """
    literal = _CLASSES.sub("", expression)
    characters, words = dict.fromkeys(literal), dict.fromkeys(_WORDS.findall(literal))
    all_of_them = "".join(characters)
    for repeated in dict.fromkeys([*_HARD, *all_of_them[:_OWN], *[*words][:_OWN]]):
        yield repeated, "\a" + all_of_them
        yield repeated, "a\n" + all_of_them[::-1]


def _fit(search: normalizers.Replace, expression: str, repeated: str, end: str) -> tuple[float, float]:
    """Time an expression on texts of growing size; returns the rate and the power of the time it takes.

    Raises CheckpointError.
    """
    before, power = 0.0, 1.0
    for size in (*_SIZES, *_LARGER_SIZES):
        text = repeated * (size // len(repeated)) + end
        try:
            seconds = _seconds(search, text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library gives up with a panic, which is not an Exception
            raise _refused(expression, f"{reason(error)} after {size} characters") from error
        power = math.log(seconds / before, 4) if before else _UNKNOWN
        steep = power > _STEEP
        if seconds > min(_CLEAR_S, size * _SLOW_S) or (size >= _SIZES[-1] and not steep):
            break
        before = seconds
    power = power if steep else 1.0
    return seconds / float(size) ** power, power


def _seconds(search: normalizers.Replace, text: str) -> float:
    """Time a search: the lesser of wall time, which others add to, and thread time, which may be coarse."""
    least = math.inf
    for _ in range(_MEASURED):
        start, thread_start = time.perf_counter(), time.thread_time()
        search.normalize_str(text)
        least = min(least, time.perf_counter() - start, time.thread_time() - thread_start)
        if least < min(_CLEAR_S, len(text) * _SLOW_S):
            break
    return max(least, _FINEST_S)


def _kind(character: str) -> str:
    return next(kind for kind in _KINDS if re.match(kind, character))


def _refused(expression: str, why: str) -> CheckpointError:
    return CheckpointError(f"the expression {_named(expression)} takes too long: {why}")


def _named(expression: str) -> str:
    return f"`{expression}`" if len(expression) < 80 and expression.isprintable() else shown(expression)
