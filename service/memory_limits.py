"""Limits the memory of all requests together, from a body's first byte to the response's last.

The budget is the memory limit of the process (`memory_given`), less a free reserve, the resident size after
the models are loaded and warmed up, and what batches need while running. A request is charged for its body
as it arrives, for the objects parsed from it, for its tokens and its response, each by an upper bound known
in advance. A request that does not fit is refused at once. A large request is always admitted when no other
large one is in progress, and small requests have a share that large ones cannot use. Half of that share is
reserved for clients that hold little, so that a client that stalls many small bodies cannot use it up.

The charges are estimates, so the resident size itself is checked too: freed memory that libraries keep, and
any other growth, also counts against large requests. Pages of files count only as far as they were mapped
when the models were ready: the system can take back what is read of them later.
"""

import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.control_groups import group_files, read_lines
from model.errors import ModelError
from model.tokenization.long_text import BYTES_PER_CHARACTER
from service.engine.admission import Retry
from service.engine.permit import Permit
from service.problems import Problem
from service.refusals import retry_after
from service.settings import Settings
from service.sharing.scoreboard import GROWTH, LARGE, MEMORY, MEMORY_LIMIT, Counters, single_process
from service.system.process import own_bytes, resident_bytes

SMALL_BYTES = 512 * 1024
"""A request that needs more than this is large; small ones have room when large ones have none."""
ARRIVING = 2
"""Bytes per byte of a body until it is parsed: the chunks, and a copy once complete."""
TEXT = 2
"""Further bytes per byte once it is a str: Python uses up to four bytes for a character sent as one."""
PARSED = 30
"""Bytes per byte of a body while it is being parsed, at worst: `{},` becomes an object of 72 bytes."""
TOKEN_BYTES = 300
"""Bytes of one token's columns (measured): its text, id, two offsets and word."""
ANSWER = 2
"""Bytes per byte of a large response: the backend's arrays, and their serialized form."""

# Shares of the process's memory limit: a reserve that is never used, and the share of small requests.
_FREE = 1 / 10
_SMALL_SHARE = 1 / 16
# The part of the small requests' share that a client may hold and still use its reserved half.
_LITTLE = 1 / 8
# What running batches need beyond the resident size after warm-up. Measured with the embedded model, ONNX
# Runtime and its arena: 65 to 145 MB in the worst case, part of it freed memory that is reused.
_COMPUTE_BYTES = 96 * 2**20
# What each further process of the service needs, running batches included.
_PROCESS_BYTES = 64 * 2**20
# If the limit leaves less than this, large requests are admitted one at a time.
_LEAST_BYTES = 32 * 2**20
# The resident size is reread after this many bytes or seconds, not at each call: a body may arrive one byte
# at a time.
_REREAD_BYTES = 2**20
_REREAD_S = 0.01


class Memory:
    """Counts the bytes that requests hold, by permit. Thread-safe.

    `limit` is the limit of all requests. Until `plan` is called, nothing is limited. The processes of one
    service share the limit through `counters`.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = counters or single_process()
        self._client_totals = self._counters.client_totals()
        # A body may arrive one byte at a time: with a single process, no byte costs a look at the scoreboard.
        self._shared = bool(self._counters.others)
        self._first_resident_bytes = sys.maxsize
        self.limit = self._left = sys.maxsize
        self.bytes = 0
        self.changed = 0.0
        """When a request last released its memory, in `time.perf_counter` seconds."""
        self._large = 0
        self._held_by: dict[str, int] = {}
        self._small_share = 0
        self._most = sys.maxsize
        self._resident_bytes = self._added_bytes = self._files_bytes = 0
        self._read_at = -math.inf
        self._lock = threading.Lock()

    def plan(self, given: int) -> None:
        """Set the limit once the models are loaded and warm; `given` is the process's memory limit."""
        most = int(given * (1 - _FREE)) - (self._counters.processes - 1) * _PROCESS_BYTES
        self._small_share = int(given * _SMALL_SHARE)
        self._first_resident_bytes = resident_bytes()
        self._files_bytes = self._first_resident_bytes - own_bytes()
        left = most - self._first_resident_bytes - _COMPUTE_BYTES - self._small_share
        self._left = left
        self.limit = self._counters.common[MEMORY_LIMIT] or max(_LEAST_BYTES, left)
        self._counters.common[MEMORY_LIMIT] = self.limit
        self._most = most

    def measure(self) -> None:
        """Read the resident size, and tell the other processes; called several times a second."""
        with self._lock:
            self._read_at = -math.inf
            self._resident()

    def largest_answer(self, setting: int) -> int:
        """Return the maximum size of a response: `setting`, or less if the budget is smaller."""
        return min(setting, self.limit // ANSWER)

    def missing(self, size: int) -> int:
        """Return how much more memory the process must be given for a response of `size` bytes; 0 if none."""
        missing = ANSWER * size - self._left
        return math.ceil(missing / (1 - _FREE - _SMALL_SHARE)) if size > self.limit // ANSWER else 0

    def take(self, permit: Permit, size: int, unused: int = 0) -> None:
        """Reserve `size` more bytes for a request; raises the 429 if there is no room.

        First, `unused` bytes of what was reserved for it before are released.
        """
        with self._lock:
            if unused:
                self._add(permit, -min(unused, permit.memory_bytes))
            if not self._fits(permit, size):
                raise self._overloaded(size)
            self._add(permit, size)

    def take_answer(self, permit: Permit, size: int, unused: int = 0) -> None:
        """Reserve memory for a response of at most `size` bytes, as `take` does."""
        self.take(permit, size if size <= SMALL_BYTES else ANSWER * size, unused)

    def arrived(self, permit: Permit, size: int) -> bool:
        """Reserve memory for a part of a body; False if the part must be dropped and the request refused."""
        with self._lock:
            fits = not permit.body_dropped and self._fits(permit, ARRIVING * size)
            if fits:
                self._add(permit, ARRIVING * size)
            else:
                permit.body_dropped = True
            return fits

    def check_arrived(self, permit: Permit) -> None:
        """Raise the 429, which closes the connection, if a part of the body was dropped."""
        if permit.body_dropped:
            problem = self._overloaded(permit.memory_bytes)
            problem.headers = {**problem.headers, "Connection": "close"}
            raise problem

    def check_room(self, permit: Permit, size: int) -> None:
        """Raise the 429 for a body of `size` bytes if there is no room, before it is read."""
        with self._lock:
            if not self._fits(permit, ARRIVING * size):
                raise self._overloaded(ARRIVING * size)

    @contextmanager
    def tokenizing(self, permit: Permit, size: int) -> Iterator[None]:
        """Reserve memory while tokenizing a text that cannot be split into pieces.

        Raises the 429 if there is no room now, and the 422 if there never can be: even an idle process would
        be killed for exceeding its memory limit.
        """
        if permit.memory_bytes + size > self.limit:
            most, actual = self.limit // BYTES_PER_CHARACTER, size // BYTES_PER_CHARACTER
            raise Problem(
                "input-too-long",
                f"An input has a span of {actual} characters that the tokenizer cannot split; the limit is "
                f"{most}: split the text.",
                members={"field": "inputs", "limit": most, "actual": actual},
            )
        with self._lock:
            if self._resident() + size > self._most:
                raise self._overloaded(size)
        self.take(permit, size)
        try:
            yield
        finally:
            self.release_part(permit, size)

    def release_part(self, permit: Permit, size: int) -> None:
        """Release part of the memory reserved for a request."""
        with self._lock:
            self._add(permit, -min(size, permit.memory_bytes))

    def release(self, permit: Permit) -> None:
        """Release all memory reserved for a request, however it ended."""
        with self._lock:
            if permit.memory_bytes:
                self.changed = time.perf_counter()
                self._add(permit, -permit.memory_bytes)

    def _fits(self, permit: Permit, size: int) -> bool:
        own, held = permit.memory_bytes, self.bytes
        if self._shared:
            held += self._counters.elsewhere(MEMORY)
        if own + size <= SMALL_BYTES:
            held_by_client = self._held_by.get(permit.memory_client, 0)
            if self._shared:
                held_by_client += self._client_totals.elsewhere_of(permit.memory_client)
            little = held_by_client + size <= self._small_share * _LITTLE
            share = self._small_share if little else self._small_share // 2
            return held + size <= self.limit + share
        # A single large request may exceed the limit: an idle service admits any that fits in memory.
        large = self._large - (own > SMALL_BYTES)
        if self._shared:
            large += self._counters.elsewhere(LARGE)
        if large > 0 and held + size > self.limit:
            return False
        return self._resident() + size <= self._most

    def _resident(self) -> int:
        """Return an upper bound of the memory in use, in bytes: the last reading plus what was added since.

        The other processes of the service share the weights: only what these have grown is added.
        """
        now = time.perf_counter()
        if self._added_bytes > _REREAD_BYTES or now > self._read_at + _REREAD_S:
            self._resident_bytes = own_bytes() + self._files_bytes
            self._read_at, self._added_bytes = now, 0
            self._counters.own[GROWTH] = max(0, self._resident_bytes - self._first_resident_bytes)
        bound = self._resident_bytes + self._added_bytes
        return bound + self._counters.elsewhere(GROWTH) if self._shared else bound

    def _add(self, permit: Permit, size: int) -> None:
        before = permit.memory_bytes
        after = permit.memory_bytes = before + size
        self.bytes += size
        if size > 0:
            self._added_bytes += size
        self._large += (after > SMALL_BYTES) - (before > SMALL_BYTES)
        if self._shared:
            self._counters.own[MEMORY], self._counters.own[LARGE] = self.bytes, self._large
            self._client_totals.add(permit.memory_client, size)
        if client := permit.memory_client:
            held = self._held_by.get(client, 0) + size
            if held:
                self._held_by[client] = held
            else:
                self._held_by.pop(client, None)

    def _overloaded(self, size: int) -> Problem:
        held = self.bytes + self._counters.elsewhere(MEMORY)
        return Problem(
            "overloaded",
            f"Requests are using {held} bytes of memory, this one needs {size} more, and the limit is "
            f"{self.limit}: retry in a second, or send less per request.",
            # Nobody knows when memory will be free again, but clients should not all come back together.
            headers=retry_after(Retry.after(random.uniform(1.0, 2.0))),  # noqa: S311 - not a secret
            members={"limit": self.limit, "actual": held + size},
        )


def check_size(taken: int, settings: Settings) -> None:
    """Raise ModelError if the models, once loaded and warmed up, take more bytes than the service is given.

    Pages of files that are in memory then count too: without room for them, each pass would read the disk.
    """
    given = settings.memory_bytes or memory_given()
    if taken > given:
        limit = "HEADLIGHT_MEMORY_BYTES" if settings.memory_bytes else "the memory limit of this process"
        raise ModelError(
            f"with its models loaded and before any request, the service takes {taken} bytes "
            f"({taken >> 20} MiB), but {limit} is {given} ({given >> 20} MiB): raise the limit, serve a "
            "smaller model, or use fewer processes."
        )


def memory_given(root: Path = Path("/")) -> int:
    """Return the process's memory limit: the smallest of its control groups' and the machine's memory."""
    lines = read_lines(root / "proc/meminfo")
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal")]
    for path in group_files(root, "memory", v2="memory.max", v1="memory.limit_in_bytes"):
        limits += [int(line) for line in read_lines(path) if line.isdigit()]
    return min(limits, default=sys.maxsize)
