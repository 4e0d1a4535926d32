"""Warns of texts that a model does not read well: many are truncated, or have words that it does not know."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model.contract import Encoding
from service.sharing.scoreboard import INPUTS, TRUNCATED, UNFAMILIAR, Counters
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_HOUR_S, _CHECKED_S = 3600.0, 1.0
# Fewer texts say little.
_ENOUGH = 300
# Only some tokens of some of a request's texts are examined: in a tenth of a millisecond, on the event loop.
_TEXTS, _TOKENS = 16, 128
_MOST_TRUNCATED, _MOST_UNKNOWN = 0.1, 0.2


@dataclass(slots=True)
class Vocabulary:
    """Counts the tokens of the first texts of each hour, and the unknown ones among them.

    `unknown` is the id of the token that stands for what the tokenizer does not know; None if it has none.
    """

    unknown: int | None
    texts: int = 0
    tokens: int = 0
    unknown_tokens: int = 0

    def note(self, encodings: Sequence[Encoding]) -> None:
        """Count the tokens of a request's texts, unless enough are counted."""
        if self.unknown is None or self.texts >= _ENOUGH:
            return
        some = encodings[:_TEXTS]
        for encoding in some:
            ids = encoding.token_ids[:_TOKENS]
            self.tokens += len(ids) - encoding.special[:_TOKENS].count(True)
            self.unknown_tokens += ids.count(self.unknown)
        self.texts += len(some)

    @property
    def share(self) -> float:
        """The share of unknown tokens; 0 until enough texts are counted."""
        return self.unknown_tokens / max(1, self.tokens) if self.texts >= _ENOUGH else 0.0

    def restart(self) -> None:
        """Count anew."""
        self.texts = self.tokens = self.unknown_tokens = 0


class TextWarnings:
    """Warns of each model's texts: of many truncated ones at most once an hour, of many unknown words once.

    Several processes tell each other what they have counted, and one of them warns.
    """

    def __init__(self, metrics: Metrics, counters: Counters) -> None:
        self._metrics, self._counters = metrics, counters
        self._before: dict[str, tuple[int, int]] = {}
        """The inputs of each model, and how many of them were truncated, when the hour began."""
        self._warned: set[str] = set()
        """The models for which a warning of truncated texts was logged within the hour."""
        self._hour = self._checked = time.monotonic()

    def check(self, vocabularies: Mapping[str, Vocabulary]) -> None:
        """Warn of the models of these vocabularies where there is a reason; may be called often."""
        now = time.monotonic()
        if now - self._checked < _CHECKED_S:
            return
        self._checked = now
        for name, vocabulary in vocabularies.items():
            self._check_words(name, vocabulary)
            self._check_lengths(name)
        if now - self._hour >= _HOUR_S:
            self._hour = now
            self._before.clear()
            self._warned.clear()
            for vocabulary in vocabularies.values():
                vocabulary.restart()

    def _check_words(self, name: str, vocabulary: Vocabulary) -> None:
        if vocabulary.share > _MOST_UNKNOWN and not self._counters.of_model(name, UNFAMILIAR):
            self._counters.note(name, UNFAMILIAR, 1)
            log.warning(
                "%s: its tokenizer does not know %.0f %% of the tokens of %d texts, so their vectors say "
                "little about them. Choose a model for their language or script.",
                name,
                100 * vocabulary.share,
                vocabulary.texts,
            )

    def _check_lengths(self, name: str) -> None:
        inputs, truncated = self._metrics.inputs_of(name)
        self._counters.note(name, INPUTS, inputs)
        self._counters.note(name, TRUNCATED, truncated)
        if self._counters.slot or name in self._warned:
            return
        inputs, truncated = (self._counters.of_model(name, counter) for counter in (INPUTS, TRUNCATED))
        inputs_before, truncated_before = self._before.setdefault(name, (inputs, truncated))
        inputs, truncated = inputs - inputs_before, truncated - truncated_before
        if inputs >= _ENOUGH and truncated > _MOST_TRUNCATED * inputs:
            self._warned.add(name)
            log.warning(
                "%s: %d of %d inputs within an hour were truncated, so their ends were not read: split texts "
                "into chunks, or choose a model that reads longer texts.",
                name,
                truncated,
                inputs,
            )
