"""What an admitted request has reserved, and for whom."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model.contract import Encoding, Want
from service.engine.admission import Retry

AS_LARGE = 2
"""A body is about as large as another if it is at most this many times larger: once read, prompts count."""
_MANY_TOKENS = 4096
"""Freeing this many takes half a millisecond: each token has an object of its own in every column."""


@dataclass(slots=True, eq=False)
class Permit:
    """Belongs to a request from the first byte of its body to the last byte of its response."""

    client: str = ""
    """Whose share of the queue it uses: a key, an address or a subnet."""
    memory_client: str = ""
    """Whose share of memory it uses: by address, even when the key is known."""
    body_bytes: int = 0
    """Size of the body, with the prompt prepended to each input; its tokens are estimated from this."""
    memory_bytes: int = 0
    """Memory reserved for the request, including its response."""
    within_s: float = math.inf
    """Within how many seconds it must be answered."""
    until: float = math.inf
    """When its client stops waiting, in `time.perf_counter` seconds."""
    body_dropped: bool = False
    """Whether part of its body was dropped for lack of memory."""
    admitted: bool = False
    """Whether a queue had room for it when its head arrived."""
    only_connection: bool = False
    """Whether its connection has been the only one in use of late."""
    few_connections: bool = False
    """Whether its connection has been one of only a few in use of late."""
    returned_bytes: int = 0
    """The size of the body that was told to come back now; 0 if none was."""
    promised: Retry | None = None
    """When it was told to come back, if it has come back before that."""
    retry: Retry | None = None
    """When it should come back, if it was refused because of the load."""
    queued: bool = False
    """Whether a model's queue has taken it, or it was run at once."""
    emptied: tuple[list[Any], ...] = ()
    """Lists to be emptied off the event loop once the request has ended (`service/system/off_loop.py`)."""

    @property
    def returned(self) -> bool:
        """Whether it comes back after a refusal when it was told to, and is about as large as it was then."""
        return 0 < self.body_bytes <= AS_LARGE * self.returned_bytes

    def keep(self, encodings: Sequence[Encoding], wants: Sequence[Want], tokens: int) -> None:
        """Keep encodings of many `tokens` until the request ends, so that the event loop need not free them.

        Their wants are kept, too: explanations have thousands of those.
        """
        if tokens > _MANY_TOKENS:
            self.emptied += ([*encodings], [*wants])

    def keep_long(self, encodings: Sequence[Encoding], longest: int) -> None:
        """Likewise keep the tokens of texts longer than `longest`, which never run as they are."""
        for one in encodings:
            if len(one) > max(longest, _MANY_TOKENS):
                self.emptied += (one.token_ids, one.tokens, one.offsets, one.word_ids, one.special)
