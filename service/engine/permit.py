"""What a request is let in with."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Permit:
    """Carried by a request from the first byte of its body to the last byte of its answer."""

    client: str = ""
    """Who gets a share of the queue: a key, an address or a subnet."""
    holder: str = ""
    """Whose share of the memory it takes: by its address, even when the key is known."""
    body_bytes: int = 0
    """The size of the body, with its prompt before each input: what its tokens are estimated from."""
    memory_bytes: int = 0
    """How much memory it holds, its answer included."""
    answer_bytes: int = 0
    """How large its answer is, where that is large."""
    body_dropped: bool = False
    """Whether a part of its body found no room."""
