"""Where sentences end: a short form of Unicode's rules (UAX #29 §5) that needs no dictionary.

- A sentence ends after a mark of Unicode's property `Sentence_Terminal` and the closing quotes and brackets
  that follow it. `.`, `!` and `?` end one only before white space or the end of the text, since they also
  stand within numbers, names and addresses; the marks of other scripts end one by themselves.
- A full stop before a small letter ends none ("e.g. this"), nor does one within a number.
- An empty line and a paragraph separator end a sentence; a single line break does not, since texts are
  wrapped.

So an abbreviation before a capital ("Dr. Smith") ends a sentence, and scripts without marks have one sentence
for each paragraph.
"""

import re
from collections.abc import Iterator

_TERMINALS = """
21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D5
1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F 2024 203C-203D
2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F
A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59
10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9
113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C
11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F 16E98 1BC9F 1DA88
"""
"""The code points of `Sentence_Terminal` in Unicode 17."""


def _characters() -> str:
    """Write the terminals as the inside of a character class."""
    ranges = (one.partition("-") for one in _TERMINALS.split())
    return "".join(rf"\U{first:0>8}-\U{last or first:0>8}" for first, _, last in ranges)


# Quotes and brackets that close in every language, and those that open in some.
_CLOSING = "\"')\\]}’”»›」』】〉》〕〗〙〛）］｝｣"
_EITHER = "‘“«‹"
_MARK = re.compile(rf"[{_characters()}\n\r\x85\u2028\u2029]")
_MARKS = re.compile(rf"[{_characters()}]++")
_QUOTES = re.compile(rf"[{_CLOSING}]*+")
_QUOTES_BEFORE_SPACE = re.compile(rf"[{_CLOSING}{_EITHER}]*+")
_SPACE = re.compile(r"\s*+")
_LINE_BREAKS = "\n\r\x85\u2028"
_WITHIN_WORDS = ".!?"
_FULL_STOPS = frozenset(".․﹒．")
# A regular expression holds the interpreter lock: it reads at most this many characters at a time.
_SEARCHED = 2**16


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each sentence in code points, in order, without the white space around it.

    Together they hold every character that is not white space. Each step takes little time.
    """
    start = 0
    for end in _ends(text):
        yield from _trimmed(text, start, end)
        start = end
    yield from _trimmed(text, start, len(text))


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    stripped = text[start:end].rstrip()
    if stripped:
        yield start + len(stripped) - len(stripped.lstrip()), start + len(stripped)


def _ends(text: str) -> Iterator[int]:
    """Yield where sentences end, in order; the last one ends with the text."""
    place = 0
    while (mark := _next_mark(text, place)) is not None:
        place = _end(_MARKS, text, mark)
        if place == mark:
            place = _end(_SPACE, text, mark)
            if _ends_paragraph(text[mark:place]):
                yield place
            continue
        own = text[mark:place].strip(_WITHIN_WORDS) != ""
        end = _end(_QUOTES if own else _QUOTES_BEFORE_SPACE, text, place)
        if _is_end(text, text[place - 1], end, own=own):
            yield end
            place = end


def _next_mark(text: str, place: int) -> int | None:
    """Find a terminal or a line break from `place` on."""
    for begin in range(place, len(text), _SEARCHED):
        if found := _MARK.search(text, begin, begin + _SEARCHED):
            return found.start()
    return None


def _ends_paragraph(space: str) -> bool:
    """Whether white space that begins with a line break has an empty line or a paragraph separator."""
    breaks = sum(map(space.count, _LINE_BREAKS)) - space.count("\r\n")  # a pair is one break
    return breaks > 1 or "\u2029" in space


def _is_end(text: str, mark: str, end: int, *, own: bool) -> bool:
    """Whether a sentence ends at `end`, after `mark`; `own` marks end sentences without white space too."""
    following = _end(_SPACE, text, end)
    if following == len(text):
        return True
    if following == end and not own:
        return False
    after = text[following]
    return mark not in _FULL_STOPS or not (after.islower() or (following == end and after.isdecimal()))


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Return where the characters of a pattern end; there may be none."""
    while found := pattern.match(text, place, place + _SEARCHED):
        if found.end() < place + _SEARCHED:
            return found.end()
        place = found.end()
    return place
