"""How much memory large answers may hold, from the moment they are asked for until they are sent."""

from collections.abc import MutableMapping
from typing import Any

from service.problems import Problem

ANSWERS = 8
"""So many of the largest answers that there may be can be on their way at a time."""
SMALL_BYTES = 512 * 1024
"""What cannot have more is not counted: it is written at once, and waits for no reader."""

_HELD = "held"


class Holding:
    """Counts bytes of answers, by their bounds, up to `limit`. Used on the event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0

    def take(self, request: MutableMapping[str, Any], size: int) -> None:
        """Hold an answer for a request, by its scope's state; raises the 429 when there is no room for it.

        Where nothing is held, any answer has room.
        """
        if size <= SMALL_BYTES:
            return
        if self.bytes and self.bytes + size > self.limit:
            raise Problem(
                "overloaded",
                f"Answers of {self.bytes} bytes are on their way, this one could have {size}, and the limit "
                f"is {self.limit}: try again in a second, or ask for less.",
                headers={"Retry-After": "1"},
                members={"limit": self.limit, "actual": self.bytes + size},
            )
        self.bytes += size
        request[_HELD] = size

    def held(self, request: MutableMapping[str, Any]) -> int:
        """Say how many bytes a request holds."""
        return int(request.get(_HELD, 0))

    def give_back(self, request: MutableMapping[str, Any]) -> None:
        """Let go of what a request holds, however it ended."""
        self.bytes -= request.pop(_HELD, 0)
