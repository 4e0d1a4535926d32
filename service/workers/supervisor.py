"""The parent of the workers: it loads the models once, forks the workers, watches and replaces them.

It runs no threads and serves nothing itself, so that it can fork at any time. The workers share the pages of
the weights; each has an event loop and engines of its own. From the start until all workers are ready, a
process without models answers that the service is loading.
"""

import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

from model.errors import ModelError
from service.clients.keys import REREAD_S, open_key_file
from service.http.server import open_listeners
from service.lifecycle import STUCK_EXIT_CODE, VERSION
from service.loading import PreparedModel, prepare_models
from service.memory_limits import check_size
from service.protocols.endpoints import select_endpoints
from service.settings import Settings
from service.sharing.connections import Channel, Siblings
from service.sharing.metric_values import MetricValues
from service.sharing.scoreboard import (
    ANSWERED,
    COMPLETE,
    CUT_OFF,
    HANDED_OVER,
    HEARTBEAT,
    IN_FLIGHT,
    OPENED,
    Scoreboard,
)
from service.system.file_pages import MappedFiles
from service.system.process import freeze, proportional_bytes, settle
from service.system.signals import ending_signals
from service.telemetry.logs import write_at_once
from service.telemetry.metrics import Metrics
from service.welcome import welcome
from service.workers.restarts import FRUITLESS, RestartPolicy
from service.workers.scratch import temporary_folder
from service.workers.start_limit import StartLimit, overdue
from service.workers.worker import fork, serve_placeholder, work

log = logging.getLogger(__name__)

_TICK_S = 0.1
# An event loop that has not run for this long stands still: its process was stopped, or hangs.
_SILENT_S = 5.0
# How long a worker that was ready may take to end by itself.
_ENDING_S = 15.0
# If the supervisor itself was this late, the whole service was suspended.
_LATE_S = 1.0
# `make` and process groups may deliver one signal twice; a second one within this time is ignored.
_ECHO_S = 0.5
# How long workers may take to end beyond the drain's timeout.
_GRACE_S = 1.0


class _End(Exception):
    """The service must end with an exit code, and with a sentence unless a worker has written one."""

    def __init__(self, code: int, sentence: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


@dataclass(slots=True)
class _Worker:
    pid: int
    slot: int
    forked: float
    """When it was forked, in `time.monotonic` seconds."""
    beat: float = 0.0
    """When its event loop last ran, as far as is known; 0 until it is ready."""
    reason: str = "died"
    """Why it ended, if the supervisor ended it."""


class Supervisor:
    """Runs the service in several processes until a signal, or until its workers cannot go on."""

    def __init__(self, settings: Settings, processes: int) -> None:
        self._settings = settings
        self._scoreboard = Scoreboard(processes, settings.models)
        self._channels = [Channel() for _ in range(processes)]
        self._values = MetricValues(processes + 2)
        """The metrics of the workers, by their slots, then those of this process and of the placeholder."""
        self._workers: dict[int, _Worker] = {}
        self._missing: dict[int, float] = {}
        """When workers are to be forked, in `time.monotonic` seconds, by their slots."""
        self._placeholder: int | None = None
        self._models: dict[str, PreparedModel] = {}
        self._files = MappedFiles()
        self._restarts = RestartPolicy()
        self._answered_by_ended = 0
        """Requests answered by workers that have ended."""
        self._began = time.monotonic()
        self._complete_since = 0.0
        self._reread = 0.0
        self._resumed = 0.0
        """When the whole service last resumed after a suspension, in `time.monotonic` seconds."""
        self._drain_since: float | None = None
        self._announced = False
        self._signal = signal.SIGTERM
        self._lost = 0

    def run(self) -> int:
        """Serve; returns the exit code. Raises KeyFileError and ListenError before anything is loaded."""
        self._key_file = open_key_file(self._settings.keys, self._settings.api_keys_file)
        self._listeners = open_listeners(self._settings)
        with ExitStack() as stack:
            self._weights = stack.enter_context(temporary_folder())
            # `_watch` waits for it; if this process was started with it ignored, the system would drop it.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            for signum in ending_signals():
                signal.signal(signum, self._on_signal)
            code, sentence = 0, None
            try:
                self._start_service()
                self._watch()
            except _End as end:
                code, sentence = end.code, end.sentence
            self._send_all(signal.SIGKILL)
        if sentence is not None:
            sys.stderr.write(f"headlight: {sentence}\n")
        return code

    def _start_service(self) -> None:
        freeze()
        self._placeholder = fork(
            partial(serve_placeholder, self._settings, self._siblings(None), self._listeners)
        )
        own = self._values.part(self._scoreboard.processes)
        self._metrics = Metrics(VERSION, select_endpoints(self._settings.other_protocols), own)
        limit = StartLimit(self._settings.start_timeout_s)
        try:
            self._models = prepare_models(self._settings, self._weights)
        except ModelError as error:
            raise _End(1, str(error)) from None
        finally:
            limit.end()
        settle()
        self._files.note()
        self._start(0)

    def _watch(self) -> None:
        """Watch the workers until the service has drained; raises _End."""
        last = time.monotonic()
        while True:
            signal.sigtimedwait([signal.SIGCHLD], _TICK_S)
            now = time.monotonic()
            if now - last > _LATE_S:
                self._resumed = now
            last = now
            for pid, code in self._ended():
                self._on_end(pid, code, now)
            if self._drain_since is None:
                self._reread_keys(now)
                self._start_missing(now)
                self._open_if_ready(now)
                self._check_heartbeats(now)
            elif self._has_drained(now, self._drain_since):
                return

    def _siblings(self, slot: int | None) -> Siblings:
        """Return what a worker knows of the others; the slot None is for the placeholder."""
        counters = self._scoreboard.spare_counters() if slot is None else self._scoreboard.counters(slot)
        keys = None if self._key_file is None else self._key_file.published
        return Siblings(counters, self._channels, self._values, keys)

    def _reread_keys(self, now: float) -> None:
        if self._key_file is not None and now - self._reread >= REREAD_S:
            self._reread = now
            self._key_file.reload()

    def _start(self, slot: int) -> None:
        """Fork a worker; if the system cannot do so now, it is tried again at the next tick."""
        now = time.monotonic()
        try:
            pid = fork(partial(work, self._settings, self._siblings(slot), self._listeners, self._models))
        except OSError as error:
            log.warning("cannot fork a worker (%s): trying again", error.strerror)
            self._missing[slot] = now
            return
        self._workers[pid] = _Worker(pid, slot, now)
        if self._drain_since is not None:  # the signal came during the fork
            _kill(pid, self._signal)

    def _start_missing(self, now: float) -> None:
        for slot in [slot for slot, due in self._missing.items() if due <= now]:
            del self._missing[slot]
            self._start(slot)

    def _open_if_ready(self, now: float) -> None:
        """Start the other workers once the first is ready, and open the service once all are.

        First the placeholder stops accepting: after `/readyz` has said 200, nobody else may say 503.
        """
        counters = self._scoreboard.counters(0)
        if counters.common[COMPLETE]:
            late = now - self._complete_since > _SILENT_S
            if late and self._placeholder is not None:
                _kill(self._placeholder, signal.SIGKILL)  # its last connections hang
            handed_over = (
                self._placeholder is None or late or self._scoreboard.spare_counters().own[HANDED_OVER]
            )
            if handed_over and not self._opened:
                counters.common[OPENED] = 1
                log.info("ready: %d processes serve %s", self._scoreboard.processes, ", ".join(self._models))
                welcome(self._settings, self._listeners[0])
            return
        unready = [slot for slot in range(self._scoreboard.processes) if not self._beat(slot)]
        if not unready:
            self._check_memory()
            counters.common[COMPLETE] = 1
            self._complete_since = now
        elif now - self._began > self._settings.start_timeout_s:
            raise _End(1, overdue(self._settings.start_timeout_s, unready[0] + 1))
        elif 0 not in unready and len(self._workers) == 1 and not self._missing:
            for slot in unready:
                self._start(slot)

    def _check_memory(self) -> None:
        """Raise _End if all processes, once ready, take more memory than they are given."""
        for pid in self._workers:
            self._files.note(pid)
        try:
            check_size(sum(map(proportional_bytes, [os.getpid(), *self._workers])), self._settings)
        except ModelError as error:
            raise _End(1, str(error)) from None

    def _on_end(self, pid: int, code: int, now: float) -> None:
        """Have a worker that has ended replaced; raises _End if the service must end."""
        if pid == self._placeholder:
            self._placeholder = None
            if code > 0 and not self._scoreboard.counters(0).common[COMPLETE] and self._drain_since is None:
                raise _End(code)
            return
        worker = self._workers.pop(pid, None)
        if worker is None:
            return
        own = self._scoreboard.counters(worker.slot).own
        lost, cut_off, answered = own[IN_FLIGHT], own[CUT_OFF], own[ANSWERED]
        worker.beat = worker.beat or own[HEARTBEAT] / 1e9
        self._scoreboard.clear(worker.slot)
        if self._drain_since is not None:
            self._lost += max(lost, cut_off)
            return
        if code > 0 and not self._opened:
            raise _End(code)  # it could not start, and has said why
        self._answered_by_ended += answered
        self._replace(worker, code, lost, now)

    def _replace(self, worker: _Worker, code: int, lost: int, now: float) -> None:
        """Count and log a worker that has ended, and have it replaced; raises _End after too many."""
        reason = "hung" if code == STUCK_EXIT_CODE else worker.reason
        self._metrics.worker_exits.labels(reason).inc()
        self._metrics.lost.inc(lost)
        answered = self._answered_by_ended + self._sum(ANSWERED)
        # Before the service is open, workers that are ready serve no clients yet.
        attended = self._opened and any(now - self._beat(w.slot) < _SILENT_S for w in self._workers.values())
        pause = self._restarts.record_exit(now, answered, was_ready=worker.beat > 0, attended=attended)
        if pause and not self._opened:
            pause = 0.0  # what fails at the start should be known soon
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        cause = self._files.overwritten() if code == -signal.SIGBUS or pause is None else None
        log.error(
            "worker %d ended (%s, %s), requests lost: %d%s%s",
            worker.slot,
            reason,
            how,
            lost,
            f"; another one starts in {pause:g} s" if pause else "",
            f"; {cause}" if cause else "",
        )
        if pause is None:
            raise _End(
                STUCK_EXIT_CODE,
                f"{FRUITLESS} worker processes in a row ended, and no request was answered in between; the "
                f"last ended with {how}: {cause or 'check the log and the memory limit'}.",
            )
        if pause:
            self._missing[worker.slot] = now + pause
        else:
            self._start(worker.slot)

    @property
    def _opened(self) -> bool:
        return bool(self._scoreboard.counters(0).common[OPENED])

    def _beat(self, slot: int) -> float:
        """Return when a worker's event loop last ran, in `time.monotonic` seconds; 0 if it is not ready."""
        return self._scoreboard.counters(slot).own[HEARTBEAT] / 1e9

    def _check_heartbeats(self, now: float) -> None:
        """Kill workers whose event loop stands still, and those that take too long to start or to end."""
        for worker in self._workers.values():
            if beat := self._beat(worker.slot):
                worker.beat = beat
                since, patience_s = beat, _SILENT_S
            elif worker.beat:
                since, patience_s = worker.beat, _ENDING_S
            else:
                since, patience_s = worker.forked, self._settings.start_timeout_s
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
                f"{name} again: stopped at once, requests cut off: {self._sum(IN_FLIGHT)}",
            )
            self._end(128 + signum)

    def _end(self, code: int) -> None:
        """End all processes at once."""
        self._send_all(signal.SIGKILL)
        if self._weights is not None:
            shutil.rmtree(self._weights, ignore_errors=True)
        os._exit(code)

    def _has_drained(self, now: float, since: float) -> bool:
        """Return whether all workers have ended, or had the time to; log the drain's beginning and end."""
        if not self._announced:
            self._announced = True
            log.info(
                "%s: draining for at most %g s, requests in flight: %d; new ones are refused",
                self._signal.name,
                self._settings.drain_timeout_s,
                self._sum(IN_FLIGHT),
            )
        ended = not self._workers and self._placeholder is None
        if not ended and now - since <= self._settings.drain_timeout_s + _GRACE_S:
            return False
        left = [self._scoreboard.counters(worker.slot).own for worker in self._workers.values()]
        lost = self._lost + sum(max(own[IN_FLIGHT], own[CUT_OFF]) for own in left)
        log.info("stopped after %.1f s, requests cut off: %d", time.monotonic() - since, lost)
        return True

    def _sum(self, row: int) -> int:
        """Sum a counter over all workers."""
        return sum(self._scoreboard.counters(slot).own[row] for slot in range(self._scoreboard.processes))

    def _send_all(self, signum: int) -> None:
        """Send a signal to the workers and the placeholder."""
        for pid in [*([self._placeholder] if self._placeholder is not None else ()), *self._workers]:
            _kill(pid, signum)

    def _ended(self) -> Iterator[tuple[int, int]]:
        """Reap processes that have ended; yields their ids and exit codes, negative for signals."""
        with suppress(ChildProcessError):  # there is none left
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                yield ended[0], os.waitstatus_to_exitcode(ended[1])


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        log.debug("process %d has already ended", pid)
