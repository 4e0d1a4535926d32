"""The limit of a body's size, before and after it is decompressed."""

from service.problems import Problem

ABANDON_FACTOR = 8
"""A body this many times its limit is not read to the end: the connection is closed after the response."""


def too_large(actual: int, limit: int) -> Problem:
    """Make the 413 of a body of at least `actual` bytes."""
    # A slightly oversized body is read to the end, so that the client gets the response; for a much larger
    # one the connection is closed instead.
    abandon = actual > ABANDON_FACTOR * limit
    return Problem(
        "body-too-large",
        f"The body has {actual} bytes or more and the limit is {limit}: send fewer texts per request.",
        headers={"Connection": "close"} if abandon else {},
        members={"field": "body", "limit": limit, "actual": actual},
    )
