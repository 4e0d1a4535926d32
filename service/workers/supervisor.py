"""The parent of the workers: it loads the models once, forks the workers, watches and replaces them.

It runs no threads and serves nothing itself, so that it can fork at any time. The workers share the pages of
the weights; each has an event loop and engines of its own. From the start until all workers are ready, a
process without models answers that the service is loading.
"""

import logging
import os
import select
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from model.errors import ModelError
from model.lanes import count_cores
from service.clients.keys import Keys
from service.http.server import open_listener
from service.lifecycle import STUCK_EXIT_CODE, VERSION
from service.loading import PreparedModel, prepare_models
from service.memory_limits import memory_given
from service.process import freeze, settle
from service.protocols.endpoints import select_endpoints
from service.settings import Settings, SettingsError
from service.sharing.board import ANSWERED, CUT_OFF, HANDED_OVER, HEARTBEAT, IN_FLIGHT, Board
from service.sharing.connections import Channel, Siblings
from service.sharing.metric_values import MetricValues
from service.telemetry.logs import write_at_once
from service.telemetry.metrics import Metrics
from service.workers.scratch import scratch_folder, temporary
from service.workers.worker import fork, greet, work

log = logging.getLogger(__name__)

_TICK_S = 0.1
# An event loop that has not run for this long stands still: its process was stopped, or hangs.
_SILENT_S = 5.0
# What a worker may take to load and warm up, or to end.
_START_S = 600.0
# If the supervisor itself was this late, the whole service was suspended.
_LATE_S = 1.0
# This many workers that end in a row, without a request being answered meanwhile, end the service.
_FRUITLESS = 5
_IN_A_ROW_S = 60.0
# `make` and process groups may deliver one signal twice; a second one within this time is ignored.
_ECHO_S = 0.5
# Memory without which there is only one process by default, and what each further one should find.
_FIRST_BYTES, _FURTHER_BYTES = 512 * 2**20, 128 * 2**20
# What workers may take to end beyond the drain's timeout.
_GRACE_S = 1.0


@dataclass(slots=True)
class _Worker:
    pid: int
    slot: int
    forked: float
    """When it was forked, in `time.monotonic` seconds."""
    reason: str = "died"
    """Why it ended, if the supervisor ended it."""


def count_processes(settings: Settings) -> int:
    """Return how many processes serve: the setting, or one for each core with memory for it.

    Raises SettingsError for several where there can be only one.

    A CUDA device has one process: each would load the weights once more, and they would compete for it.
    """
    if (obstacle := _obstacle(settings)) is not None:
        if (settings.processes or 1) > 1:
            raise SettingsError(f"HEADLIGHT_PROCESSES is {settings.processes}, but {obstacle}: set it to 1.")
        return 1
    if settings.processes is not None:
        return settings.processes
    memory = settings.memory_bytes or memory_given()
    with_room = 1 + max(0, memory - _FIRST_BYTES) // _FURTHER_BYTES
    return min(settings.threads or count_cores(), count_cores(), with_room)


def _obstacle(settings: Settings) -> str | None:
    """Say why there can be only one process, None if there can be several."""
    gpu = settings.device == "auto" and any(Path("/dev").glob("nvidia[0-9]*"))
    if gpu or settings.device.startswith("cuda"):
        return f"HEADLIGHT_DEVICE is {settings.device}, and a CUDA device is served by one process"
    return None if sys.platform == "linux" else "this system is not Linux"


class Supervisor:
    """Runs the service in several processes until a signal, or until its workers cannot go on."""

    def __init__(self, settings: Settings, processes: int) -> None:
        self._settings = settings
        self._board = Board(processes, settings.models)
        self._channels = [Channel() for _ in range(processes)]
        self._values = MetricValues(processes + 2)
        """Of the workers, by their slots; of this process, and of the one that greets."""
        self._workers: dict[int, _Worker] = {}
        self._greeter: int | None = None
        self._models: dict[str, PreparedModel] = {}
        self._fruitless = 0
        self._answered = self._answered_by_ended = 0
        """Requests answered by all workers when one last ended, and by those that have ended."""
        self._last_end = self._complete_since = 0.0
        self._missing: set[int] = set()
        """Workers that could not be forked."""
        self._resumed = 0.0
        """When the whole service was last suspended, in `time.monotonic` seconds: no worker is to blame."""
        self._drain_since: float | None = None
        self._announced = False
        self._signal = signal.SIGTERM
        self._lost = 0

    def run(self) -> int:
        """Serve; returns the exit code. Raises KeyFileError and ListenError before anything is loaded."""
        Keys(self._settings.keys, self._settings.api_keys_file)
        self._listener = open_listener(self._settings)
        with ExitStack() as stack:
            self._weights = stack.enter_context(scratch_folder(temporary()))
            self._wakeups, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, self._on_signal)
            code = self._supervise()
            self._kill_all()
        return code

    def _supervise(self) -> int:
        freeze()
        spare = Siblings(self._board.spare_column(), self._channels, self._values)
        self._greeter = fork(partial(greet, self._settings, spare, self._listener))
        own = self._values.part(self._board.processes)
        self._metrics = Metrics(VERSION, select_endpoints(self._settings.other_protocols), own)
        try:
            self._models = prepare_models(self._settings, self._weights)
        except ModelError as error:
            sys.stderr.write(f"headlight: {error}\n")
            return 1
        settle()
        self._start(0)
        return self._watch()

    def _watch(self) -> int:
        """Watch the workers until the service ends; returns the exit code."""
        last = time.monotonic()
        while True:
            select.select([self._wakeups], [], [], _TICK_S)
            self._forget_wakeups()
            now = time.monotonic()
            if now - last > _LATE_S:
                self._resumed = now
            last = now
            for pid, code in self._ended():
                if (exit_code := self._on_end(pid, code)) is not None:
                    return exit_code
            if self._drain_since is not None:
                self._announce()
                if not self._workers and self._greeter is None:
                    return self._drained()
                if now - self._drain_since > self._settings.drain_timeout_s + _GRACE_S:
                    return self._drained()
            else:
                self._start_missing()
                self._open_if_ready(now)
                self._check_heartbeats(now)

    def _start(self, slot: int) -> None:
        """Fork a worker; where the system cannot now, it is tried again at the next tick."""
        self._board.clear(slot)
        siblings = Siblings(self._board.column(slot), self._channels, self._values)
        try:
            pid = fork(partial(work, self._settings, siblings, self._listener, self._models))
        except OSError as error:
            log.warning("cannot fork a worker (%s): trying again", error.strerror)
            self._missing.add(slot)
            return
        self._workers[pid] = _Worker(pid, slot, time.monotonic())
        if self._drain_since is not None:  # the signal came during the fork
            _kill(pid, self._signal)

    def _start_missing(self) -> None:
        missing, self._missing = self._missing, set()
        for slot in missing:
            self._start(slot)

    def _open_if_ready(self, now: float) -> None:
        """Start the other workers once the first is ready, and open the service once all are.

        First the greeter stops accepting: after `/readyz` has said 200, nobody else may say 503.
        """
        column = self._board.column(0)
        if column.complete:
            overdue = now - self._complete_since > _SILENT_S
            if overdue and self._greeter is not None:
                _kill(self._greeter, signal.SIGKILL)  # its last connections hang
            handed_over = self._greeter is None or overdue or self._board.spare_column().own[HANDED_OVER]
            if handed_over and not column.opened:
                column.open()
                log.info("ready: %d processes serve %s", self._board.processes, ", ".join(self._models))
        elif not column.own[HEARTBEAT]:
            return
        elif len(self._workers) == 1 and self._board.processes > 1 and not self._missing:
            for slot in range(1, self._board.processes):
                self._start(slot)
        elif all(other[HEARTBEAT] for other in column.others):
            column.be_complete()
            self._complete_since = now

    def _on_end(self, pid: int, code: int) -> int | None:
        """Replace a worker that has ended; returns the exit code if the service must end."""
        if pid == self._greeter:
            self._greeter = None
            started = self._board.column(0).complete or self._drain_since is not None
            return None if code <= 0 or started else code
        worker = self._workers.pop(pid, None)
        if worker is None:
            return None
        column = self._board.column(worker.slot)
        lost, answered = column.own[IN_FLIGHT], column.own[ANSWERED]
        if self._drain_since is not None:
            self._lost += max(lost, column.own[CUT_OFF])
            self._board.clear(worker.slot)
            return None
        if not column.opened and code > 0:
            return code  # it could not start, and has said why
        self._answered_by_ended += answered
        in_all = self._answered_by_ended + sum(
            self._board.column(other.slot).own[ANSWERED] for other in self._workers.values()
        )
        now = time.monotonic()
        in_a_row = in_all == self._answered and now - self._last_end < _IN_A_ROW_S
        self._fruitless = self._fruitless + 1 if in_a_row else 1
        self._answered, self._last_end = in_all, now
        reason = "hung" if code == STUCK_EXIT_CODE else worker.reason
        self._metrics.worker_exits.labels(reason).inc()
        self._metrics.lost.inc(lost)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        log.error("worker %d ended (%s, %s), requests lost: %d", worker.slot, reason, how, lost)
        if self._fruitless >= _FRUITLESS:
            sys.stderr.write(
                f"headlight: {self._fruitless} worker processes in a row ended, and no request was answered "
                f"meanwhile; the last ended with {how}: see the log, and the memory limit.\n"
            )
            return STUCK_EXIT_CODE
        self._start(worker.slot)
        return None

    def _check_heartbeats(self, now: float) -> None:
        """Kill workers whose event loop stands still."""
        for worker in self._workers.values():
            beat = self._board.column(worker.slot).own[HEARTBEAT] / 1e9
            since, patience_s = (beat, _SILENT_S) if beat else (worker.forked, _START_S)
            if now - max(since, self._resumed) > patience_s:
                worker.reason = "unresponsive"
                _kill(worker.pid, signal.SIGKILL)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Have all workers drain; a second signal ends them at once."""
        now = time.monotonic()
        if self._drain_since is None:
            self._drain_since, self._signal = now, signal.Signals(signum)
            self._send_all(signum)
            if not self._models:
                write_at_once(log, logging.INFO, f"{self._signal.name}: stopped while loading")
                self._end(0)
        elif now - self._drain_since > _ECHO_S:
            name = signal.Signals(signum).name
            write_at_once(
                log,
                logging.WARNING,
                f"{name} again: stopped at once, requests cut off: {self._in_flight()}",
            )
            self._end(128 + signum)

    def _end(self, code: int) -> None:
        """End all processes at once."""
        self._kill_all()
        shutil.rmtree(self._weights, ignore_errors=True)
        os._exit(code)

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            log.info(
                "%s: draining for at most %g s, requests in flight: %d; new ones are refused",
                self._signal.name,
                self._settings.drain_timeout_s,
                self._in_flight(),
            )

    def _drained(self) -> int:
        left = [self._board.column(worker.slot).own for worker in self._workers.values()]
        lost = self._lost + sum(max(own[IN_FLIGHT], own[CUT_OFF]) for own in left)
        log.info(
            "stopped after %.1f s, requests cut off: %d", time.monotonic() - (self._drain_since or 0.0), lost
        )
        return 0

    def _in_flight(self) -> int:
        return sum(self._board.column(slot).own[IN_FLIGHT] for slot in range(self._board.processes))

    def _send_all(self, signum: int) -> None:
        for pid in self._pids():
            _kill(pid, signum)

    def _kill_all(self) -> None:
        for pid in self._pids():
            _kill(pid, signal.SIGKILL)

    def _pids(self) -> list[int]:
        greeter = [] if self._greeter is None else [self._greeter]
        return [*greeter, *self._workers]

    def _ended(self) -> list[tuple[int, int]]:
        """Reap processes that have ended; returns their ids and exit codes, negative for signals."""
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            ended.append((pid, os.waitstatus_to_exitcode(status)))
        return ended

    def _forget_wakeups(self) -> None:
        try:
            while os.read(self._wakeups, 512):
                pass
        except BlockingIOError:
            pass


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        log.debug("process %d has already ended", pid)
