"""What the schema of a request says besides its fields."""

from typing import ClassVar

from pydantic import BaseModel

from service.problems import Problem
from service.replies.style import Format

SPLIT = "split it into several requests"
"""What to do about a body of too many values."""
SEVERAL = "split them into several requests"
"""What to do about too many inputs."""


class RequestSchema(BaseModel):
    """The body of a request that a model answers."""

    example: ClassVar[str] = '{"inputs": "a text"}'
    """A valid body, for errors and the OpenAPI schema."""
    elsewhere: ClassVar[dict[str, str]] = {}
    """Fields that other servers have, and the routes here that accept them."""
    listed: ClassVar[str] = "inputs"
    """The field that lists the inputs."""
    sources: ClassVar[tuple[str, ...]] = ()
    """The fields of which one lists the inputs; empty if it is always the field `listed`."""
    formats: ClassVar[tuple[Format, ...]] = ("json",)
    """The formats of the response."""
    most_inputs: ClassVar[int | None] = None
    """The number of inputs that a request may have unless a setting says otherwise."""
    most_numbers: ClassVar[int | None] = None
    """The number of items that the list may have if they are numbers instead of inputs."""
    fewer_values: ClassVar[str] = SPLIT
    """What to do about a body of too many values."""

    def check(self, count: int, limit: int) -> None:
        """Raise a Problem if `count`, the number of inputs that were sent, is over the limit."""
        check_count(count, limit, self.listed)


def check_count(count: int, limit: int, field: str, way_out: str = SEVERAL) -> None:
    """Raise the 413 for more inputs, listed in `field`, than a request may have."""
    if count > limit:
        raise Problem(
            "too-many-inputs",
            f"{field} has {count} items and the limit is {limit}: {way_out}.",
            members={"field": field, "limit": limit, "actual": count},
        )
