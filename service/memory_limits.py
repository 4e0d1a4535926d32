"""How much memory requests may hold together, from the first byte of a body to the last one of an answer.

The budget is what the process has been given (`memory_given`), less a share that is left free, less what the
process has after its models are loaded and warm, less what batches need while they run. Each request counts
with its body as it arrives, with the objects that are made of it, with its tokens and its answer, each by a
bound that is known beforehand. What has no room is refused at once. A request beside which nothing large is
held is always taken, and short requests have a share that larger ones cannot take. The last half of it is for
clients that hold little: one that lets many short bodies stand still cannot take it from the others.

A count is an estimate, so a second look goes to the size of the process itself: what libraries keep of freed
memory, and whatever else grows, counts against large requests, too.
"""

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.tokenization.long_text import BYTES_PER_CHARACTER
from service.engine.permit import Permit
from service.problems import Problem
from service.process import resident_bytes

ANSWERS = 8
"""So many of the largest answers that there may be can be on their way at a time."""
SMALL_BYTES = 512 * 1024
"""What needs more than this counts as large: small things have room where large ones have none."""
ARRIVING = 2
"""What each byte of a body takes until it is parsed: itself, and a copy of all when it is whole."""
TEXT = 2
"""What it takes beyond that as a text: Python has up to four bytes for a character that came as one."""
PARSED = 30
"""What each byte may become for the moment in which a body is parsed: `{},` is an object of 72 bytes."""
TOKEN_BYTES = 300
"""What one token takes in its columns (measured): a text, an id, two offsets, a word."""
ANSWER = 2
"""What each byte of a large answer takes: its arrays as the backend gives them, and as they are written."""

# Of what the process has been given, this much is never planned with, and this much is for short requests.
_FREE = 1 / 10
_SMALL_SHARE = 1 / 16
# Of the share of short requests, what a client may hold that takes of its last half.
_LITTLE = 1 / 8
# What batches need while they run, beyond what is there after warm-up: measured with the embedded model, with
# ONNX Runtime and its arena 65 to 145 MB in the worst case, of which freed memory may be had again.
_COMPUTE_BYTES = 96 * 2**20
# Where even that is not there, requests are taken one at a time.
_LEAST_BYTES = 32 * 2**20
# The resident size is read again after this many bytes or seconds, not at each call: a body may arrive one
# byte at a time.
_TAKEN_BYTES = 2**20
_READ_S = 0.01


class Memory:
    """Counts the bytes that requests hold, each by its permit. Safe for all threads.

    `limit` is of all together, `answers_limit` of large answers by their size. Until `plan` is called nothing
    but answers is bounded.
    """

    def __init__(self, answers_limit: int) -> None:
        self.limit = sys.maxsize
        self.bytes = 0
        self.answers_limit = answers_limit
        self.answers_bytes = 0
        self.changed = 0.0
        """When a request has last let go of what it held, in `time.perf_counter` seconds."""
        self._large = 0
        self._held_by: dict[str, int] = {}
        self._small_share = 0
        self._most = sys.maxsize
        self._read = self._taken = 0
        self._read_at = -math.inf
        self._lock = threading.Lock()

    def plan(self, given: int) -> None:
        """Set the limit, once the models are loaded and warm; `given` is what the process may have."""
        most = int(given * (1 - _FREE))
        self._small_share = int(given * _SMALL_SHARE)
        left = most - resident_bytes() - _COMPUTE_BYTES - self._small_share
        self.limit = max(_LEAST_BYTES, left)
        self._most = most

    def largest_answer(self, setting: int) -> int:
        """Say how large an answer may be that fits the budget."""
        return min(setting, self.limit // ANSWER)

    def take(self, permit: Permit, size: int) -> None:
        """Hold so many bytes more for a request; raises the 429 when there is no room for them."""
        with self._lock:
            if not self._fits(permit, size):
                raise self._overloaded(size)
            self._add(permit, size)

    def take_answer(self, permit: Permit, size: int) -> None:
        """Hold an answer of at most so many bytes; raises the 429 when there is no room for it."""
        if size <= SMALL_BYTES:
            self.take(permit, size)
            return
        with self._lock:
            if self.answers_bytes and self.answers_bytes + size > self.answers_limit:
                raise Problem(
                    "overloaded",
                    f"Answers of {self.answers_bytes} bytes are on their way, this one could have {size}, "
                    f"and the limit is {self.answers_limit}: try again in a second, or ask for less.",
                    headers={"Retry-After": "1"},
                    members={"limit": self.answers_limit, "actual": self.answers_bytes + size},
                )
            if not self._fits(permit, ANSWER * size):
                raise self._overloaded(ANSWER * size)
            self._add(permit, ANSWER * size)
            self.answers_bytes += size
            permit.answer_bytes += size

    def arrived(self, permit: Permit, size: int) -> bool:
        """Hold a part of a body that has arrived; False when it is to be dropped, and the request refused."""
        with self._lock:
            fits = not permit.body_dropped and self._fits(permit, ARRIVING * size)
            if fits:
                self._add(permit, ARRIVING * size)
            else:
                permit.body_dropped = True
            return fits

    def check_arrived(self, permit: Permit) -> None:
        """Raise the 429 of a body of which a part was dropped, and have its connection closed."""
        if permit.body_dropped:
            problem = self._overloaded(permit.memory_bytes)
            problem.headers = {**problem.headers, "Connection": "close"}
            raise problem

    def check_room(self, permit: Permit, size: int) -> None:
        """Raise the 429 of a body of so many bytes that has no room now, before it is read."""
        with self._lock:
            if not self._fits(permit, ARRIVING * size):
                raise self._overloaded(ARRIVING * size)

    @contextmanager
    def tokenizing(self, permit: Permit, size: int) -> Iterator[None]:
        """Hold so many bytes while a text is tokenized that cannot be cut into pieces.

        Raises the 429 when there is no room for them, and the 422 when there never can be: also where nothing
        else is held, since the process would be ended for them.
        """
        if permit.memory_bytes + size > self.limit:
            most, actual = self.limit // BYTES_PER_CHARACTER, size // BYTES_PER_CHARACTER
            raise Problem(
                "input-too-long",
                f"An input has {actual} characters at which the model's tokenizer cannot cut it, and the "
                f"limit for that is {most}: split the text.",
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
        """Let go of a part of what a request holds."""
        with self._lock:
            self._add(permit, -min(size, permit.memory_bytes))

    def release(self, permit: Permit) -> None:
        """Let go of all that a request holds, however it ended."""
        with self._lock:
            if permit.memory_bytes:
                self.changed = time.perf_counter()
                self._add(permit, -permit.memory_bytes)
            self.answers_bytes -= permit.answer_bytes
            permit.answer_bytes = 0

    def _fits(self, permit: Permit, size: int) -> bool:
        own = permit.memory_bytes
        if own + size <= SMALL_BYTES:
            held_by_client = self._held_by.get(permit.holder, 0)
            little = held_by_client + size <= self._small_share * _LITTLE
            share = self._small_share if little else self._small_share // 2
            return self.bytes + size <= self.limit + share
        # The only large one may have more: an idle service takes any that the process has memory for.
        if self._large - (own > SMALL_BYTES) > 0 and self.bytes + size > self.limit:
            return False
        return self._resident() + size <= self._most

    def _resident(self) -> int:
        """Bound the resident size, in bytes: the last reading, and everything taken since."""
        now = time.perf_counter()
        if self._taken > _TAKEN_BYTES or now > self._read_at + _READ_S:
            self._read, self._read_at, self._taken = resident_bytes(), now, 0
        return self._read + self._taken

    def _add(self, permit: Permit, size: int) -> None:
        before = permit.memory_bytes
        permit.memory_bytes = before + size
        self.bytes += size
        self._taken += max(size, 0)
        self._large += (before + size > SMALL_BYTES) - (before > SMALL_BYTES)
        if holder := permit.holder:
            self._held_by[holder] = self._held_by.get(holder, 0) + size
            if not self._held_by[holder]:
                del self._held_by[holder]

    def _overloaded(self, size: int) -> Problem:
        actual = self.bytes + size
        return Problem(
            "overloaded",
            f"Requests hold {self.bytes} bytes of memory, this one needs {size} more, and the limit is "
            f"{self.limit}: try again in a second, or send less at a time.",
            headers={"Retry-After": "1"},
            members={"limit": self.limit, "actual": actual},
        )


def memory_given(root: Path = Path("/")) -> int:
    """Say how much memory the process may have: the smallest limit of its control groups, or all there is."""
    machine = root / "proc/meminfo"
    limits = [int(line.split()[1]) * 1024 for line in _lines(machine) if line.startswith("MemTotal")]
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
    return min(limits, default=sys.maxsize)


def _limits(mount: Path, path: str, name: str) -> Iterator[int]:
    """Read the limits of a group and of those around it; in a container its own is the mounted one."""
    group = mount / path.strip("/")
    for folder in (group, *group.parents):
        for line in _lines(folder / name):
            if line.isdigit():
                yield int(line)
        if folder == mount:
            return


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
