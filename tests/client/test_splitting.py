"""How the Python client cuts a call into requests, and what it learns from refusals."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlight_client import HeadlightError
from headlight_client.splitting import MAX_BODY_BYTES, Limits, Parts


def refusal(status: int = 413, kind: str = "response-too-large", **members: Any) -> HeadlightError:
    return HeadlightError(status, {"type": f"urn:headlight:{kind}", "detail": "Too large.", **members})


@given(
    sizes=st.lists(st.integers(2, 3000), min_size=1, max_size=80),
    inputs=st.integers(1, 20),
    body=st.integers(200, 5000),
    queue=st.integers(16, 4000),
    concurrency=st.integers(1, 5),
)
def test_parts_are_all_inputs_within_the_limits(
    sizes: list[int], inputs: int, body: int, queue: int, concurrency: int
) -> None:
    """Each input is in one part, in order; a part of several is within every limit, and none is empty."""
    parts = list(Parts(sizes, Limits(inputs, body, queue, max_length=256), 20, concurrency))
    assert parts[0].start == 0
    assert parts[-1].stop == len(sizes)
    assert all(left.stop == right.start for left, right in pairwise(parts))
    for part in parts:
        assert 1 <= len(part) <= inputs
        if len(part) > 1:
            assert 20 + sum(sizes[i] + 1 for i in part) <= body
            assert sum(min(256, sizes[i] / 3) for i in part) <= queue / (2 * concurrency)


def test_parts_are_as_large_as_the_limits_allow() -> None:
    """Short texts go by the number of inputs, long ones by the share of the queue that a call takes."""
    limits = Limits.of(
        {
            "limits": {"max_inputs": 100, "max_body_bytes": 10**7},
            "models": [
                {"name": "a", "max_queue_tokens": 4096, "max_length": 128},
                {"name": "b", "max_queue_tokens": 65536, "max_length": 256},
            ],
        },
        "b",
    )
    assert limits == Limits(100, MAX_BODY_BYTES, 65536, 256)
    assert [len(part) for part in Parts([30] * 250, limits, 20, 4)] == [100, 100, 50]
    assert [len(part) for part in Parts([10_000] * 80, limits, 20, 4)] == [32, 32, 16]
    assert Limits.of({}, None) == Limits()


@pytest.mark.parametrize(
    ("error", "cut", "later"),
    [
        (refusal(limit=64, actual=640), [9] * 11 + [1], 9),
        (refusal(kind="too-many-inputs", limit=50, actual=100), [50, 50], 50),
        (refusal(limit=100, actual=101), [50, 50], 89),
        (HeadlightError(413, {}), [50, 50], 50),
        (refusal(limit="64 MB", actual=None), [50, 50], 50),
        (refusal(504, "deadline-exceeded", limit=30.0), [50, 50], 50),
        (refusal(422, "deadline-too-short", limit=0.5, actual=2.0, tokens=9000), [20] * 5, 22),
    ],
    ids=str,
)
def test_a_refusal_makes_parts_smaller(error: HeadlightError, cut: list[int], later: int) -> None:
    """What was too large comes again in as many parts as its numbers say, and later parts are smaller."""
    parts = Parts([30] * 300, Limits(inputs=100), 20, 4)
    first = next(parts)
    parts.refused(error, first)
    again = [next(parts) for _ in cut]
    assert [part for pieces in again for part in pieces] == list(first)
    assert [len(part) for part in again] == cut
    assert len(next(parts)) == later


@pytest.mark.parametrize("status", [400, 422, 429, 500, 503])
@pytest.mark.parametrize("field", ["inputs", "texts", "token_ids"])
def test_other_refusals_are_errors_of_their_inputs(status: int, field: str) -> None:
    """What smaller requests would not help is raised; it names inputs by their place in the call."""
    parts = Parts([30] * 300, Limits(inputs=100), 20, 4)
    next(parts)
    error = refusal(status, "input-too-long", field=f"{field}.7", detail=f"{field}.7 has 300 tokens.")
    error.detail = f"{field}.7 has 300 tokens."
    with pytest.raises(HeadlightError) as raised:
        parts.refused(error, next(parts))
    assert raised.value is error
    assert (error.rows, error.field) == (range(100, 200), f"{field}.107")
    assert str(error).startswith(f"{field}.107 has 300 tokens.")
    assert str(error).endswith("[inputs 100 to 199]")


@pytest.mark.parametrize(("status", "kind"), [(413, "response-too-large"), (422, "deadline-too-short")])
def test_one_input_that_is_too_large_is_an_error(status: int, kind: str) -> None:
    """There is nothing left to cut: the error says which input it is."""
    parts = Parts([30] * 3, Limits(inputs=1), 20, 4)
    next(parts)
    with pytest.raises(HeadlightError, match=r"\[input 1\]$"):
        parts.refused(refusal(status, kind, limit=1, actual=2), next(parts))
