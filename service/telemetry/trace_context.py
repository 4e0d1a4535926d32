"""The trace that a request belongs to, from its headers (W3C Trace Context, level 1)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

# Later versions may append to the four parts (§3.3); version ff is invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_VERSION_0_CHARACTERS = 55
_MAX_CHARACTERS = 512
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


class TraceParent(NamedTuple):
    """The client's span: ids in lower-case hexadecimal, and whether the client records it."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""
    """`tracestate`, unchanged."""


def read_traceparent(values: Sequence[bytes], states: Sequence[bytes] = ()) -> TraceParent | None:
    """Read the headers `traceparent` and `tracestate`; None unless there is exactly one valid traceparent."""
    if len(values) != 1 or len(values[0]) > _MAX_CHARACTERS:
        return None
    text = values[0].decode("latin-1")
    found = _TRACEPARENT.fullmatch(text)
    if found is None or (text.startswith("00-") and len(text) != _VERSION_0_CHARACTERS):
        return None
    trace_id, span_id, flags = found[1], found[2], found[3]
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    state = b",".join(states)
    kept = state.decode("latin-1") if len(state) <= _MAX_CHARACTERS else ""
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & 1), kept)
