"""Limits on what a request can make large: its response, and a text that is repeated for each input."""

from collections.abc import Sequence

from service.lifecycle import ServiceState
from service.problems import Problem
from service.replies.too_large import any_of
from service.settings import Settings


def check_response(state: ServiceState, size: int, ways: Sequence[str]) -> None:
    """Raise the 413 for a response that could exceed the limit; `ways` say how to make it smaller."""
    limit = state.max_response_bytes
    if size > limit:
        raise Problem(
            "response-too-large",
            f"The response could have {size} bytes and the limit is {limit}: "
            f"{any_of([*ways, _allow(state, size)])}.",
            members={"limit": limit, "actual": size},
        )


def _allow(state: ServiceState, size: int) -> str:
    """Say what the service would need to answer with so many bytes."""
    ways = []
    if size > state.settings.max_response_bytes:
        ways.append(f"raise the service's HEADLIGHT_MAX_RESPONSE_BYTES to {size}")
    if missing := state.memory.missing(size):
        ways.append(f"give the service {missing} more bytes of memory")
    return " and ".join(ways)


def check_repeated(field: str, size: int, settings: Settings) -> None:
    """Raise the 413 for a prompt or query that, repeated for each input, exceeds the limit of a body."""
    if size > settings.max_body_bytes:
        raise Problem(
            "body-too-large",
            f"The {field}, repeated for each input, has {size} bytes and the limit is "
            f"{settings.max_body_bytes}: shorten the {field}, or send fewer texts.",
            members={"field": field, "limit": settings.max_body_bytes, "actual": size},
        )
