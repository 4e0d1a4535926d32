"""A chat template, as literal text around the places of an instruction, a query and a document.

transformers renders a template for every input. Here it is rendered only when a model is loaded, with
placeholder characters for the texts; code from a model's folder never runs during a request.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from jinja2 import TemplateError, ext, sandbox

from model.errors import CheckpointError
from model.files import reason

_ROLES = ("system", "query", "document")
_MARKS = ("\ue000", "\ue001", "\ue002")
"""Private-use characters that stand for the texts of the roles."""
_PROBES = (
    (" a ", " b\n", "\n c"),
    ("A <b>", 'Q & "q" {{ x }}', "\\d '\t\u00e9\U0001f642"),
    ("b", "", ""),
    (" ", "e" * 9_999, "f" * 9_999),
)
"""Texts that a template could change if it did more than put them in their places."""
_LONGEST = 100_000
"""The most characters that a template, or what it renders, may have."""

Part = str | int
"""Literal text, or the number of a role."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A pair in its template; `spans` are each text's start, end, number, and leading characters dropped."""

    text: str
    spans: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class PairTemplate:
    """The parts of a template without an instruction, and those with one.

    Whitespace around the texts of the roles in `stripped` is removed. `suffixed`: the end of the template is
    kept when a text is truncated.
    """

    plain: tuple[Part, ...]
    instructed: tuple[Part, ...]
    stripped: frozenset[int] = frozenset()
    suffixed: bool = True

    @property
    def takes_prompt(self) -> bool:
        """Whether the template has a place for an instruction."""
        return 0 in self.instructed

    def render(self, instruction: str, query: str, document: str) -> Rendered:
        """Put texts in their places; if the instruction is empty, the template's own stays."""
        texts = (instruction, query, document)
        pieces: list[str] = []
        spans, length = [], 0
        for part in self.instructed if instruction else self.plain:
            piece, skipped = part, 0
            if isinstance(part, int):
                piece = texts[part]
                if part in self.stripped:
                    skipped = len(piece) - len(piece.lstrip())
                    piece = piece.strip()
                if part:
                    spans.append((length, length + len(piece), part - 1, skipped))
            pieces.append(str(piece))
            length += len(pieces[-1])
        return Rendered("".join(pieces), tuple(spans))


def parse_template(source: str, variables: Mapping[str, Any], *, structured: bool) -> PairTemplate:
    """Find the places of the texts in a chat template; `variables` are what it may read besides messages.

    With `structured`, the content of a message is a list. Raises CheckpointError, whose message is the end of
    a sentence that begins with the template's name.
    """
    if len(source) > _LONGEST:
        raise CheckpointError(f"has {len(source)} characters; the limit is {_LONGEST}: shorten it")
    render = _renderer(source, variables, structured=structured)
    plain = _split(render((None, *_MARKS[1:])))
    if missing := [_ROLES[role] for role in (1, 2) if role not in plain]:
        raise CheckpointError(
            f"does not render messages with the role {' and '.join(missing)}, which hold the texts of a "
            "pair: use a template with both roles"
        )
    instructed = _instructed(render) or plain
    given = [("", *probe[1:]) for probe in _PROBES] + (list(_PROBES) if 0 in instructed else [])
    expected = [render((probe[0] or None, *probe[1:])) for probe in given]
    for flags in product((False, True), repeat=len(_ROLES)):
        stripped = frozenset(role for role, flag in enumerate(flags) if flag)
        template = PairTemplate(plain, instructed, stripped)
        if [template.render(*probe).text for probe in given] == expected:
            return template
    raise CheckpointError(
        "changes the texts of a pair, or writes something else around them depending on what they say: use "
        "a template that only inserts the texts"
    )


def _instructed(render: Callable[[Sequence[str | None]], str]) -> tuple[Part, ...] | None:
    """Return the parts if all three texts have places, else None."""
    try:
        parts = _split(render(_MARKS))
    except CheckpointError:  # a template may refuse a system message
        return None
    return parts if set(range(len(_ROLES))) <= set(parts) else None


def _split(rendered: str) -> tuple[Part, ...]:
    return tuple(_parts(rendered))


def _parts(rendered: str) -> Iterator[Part]:
    for piece in re.split(f"([{''.join(_MARKS)}])", rendered):
        if piece in _MARKS:
            yield _MARKS.index(piece)
        elif piece:
            yield piece


def _renderer(
    source: str, variables: Mapping[str, Any], *, structured: bool
) -> Callable[[Sequence[str | None]], str]:
    """Compile a template as transformers does, in a sandbox without functions that make huge outputs."""
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols]
    )

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment.globals = {
        "namespace": environment.globals["namespace"],
        "raise_exception": refuse,
    }
    try:
        template = environment.from_string(source)
    except Exception as error:
        raise CheckpointError(f"cannot be read: {reason(error)}; use the model's own template") from error

    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if structured else text

    def render(texts: Sequence[str | None]) -> str:
        messages = [
            {"role": role, "content": content(text)}
            for role, text in zip(_ROLES, texts, strict=True)
            if text is not None
        ]
        given = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
        try:
            rendered = template.render(messages=messages, **given)
        except Exception as error:
            raise CheckpointError(
                f"cannot be rendered for a query and a document: {reason(error)}; use a template for "
                "messages with the roles query and document"
            ) from error
        if len(rendered) > _LONGEST:
            raise CheckpointError(f"makes {len(rendered)} characters; the limit is {_LONGEST}: shorten it")
        return str(rendered)

    return render
