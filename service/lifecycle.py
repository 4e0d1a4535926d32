"""The state of the process: loading, ready or draining, and the engines it serves."""

import asyncio
import enum
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from model.errors import ModelError
from model.memory import release_file_pages, trim_memory
from service.clients.addresses import Peers
from service.clients.keys import Keys, open_key_file
from service.clients.presence import Presence
from service.clients.recent_connections import RecentConnections
from service.clients.slow_readers import Readers
from service.clients.turns import Turns
from service.endpoints import Endpoints
from service.engine.admission import Retry
from service.engine.engine import Engine
from service.engine.permit import Permit
from service.engine.throughput import MIN_BODY_BYTES
from service.engine.trimming import MemoryTrimmer
from service.loading import load_engines
from service.memory_limits import Memory, check_size, memory_given
from service.problems import Problem
from service.refusals import Absent, Overload, Refusal, retry_after
from service.replies.json_arrays import prepare
from service.settings import Settings
from service.sharing.connections import Siblings
from service.sharing.scoreboard import ANSWERED, GROWTH, IN_FLIGHT, single_process
from service.system.priority import BESIDE_LOOP, lower_priority
from service.system.process import resident_bytes
from service.system.stages import tell_stage
from service.telemetry.metrics import Metrics
from service.telemetry.text_warnings import TextWarnings
from service.telemetry.traces import open_traces

log = logging.getLogger(__name__)

VERSION = version("headlight-server")

# More threads than cores would only contend with each other and with the event loop.
_WRITERS = min(4, os.cpu_count() or 1)


# Seconds for sending the last traces, and for the shutdown itself.
_FLUSH_S, _LAST_S = 2.0, 0.2

# When to come back, in seconds: while loading, at most; and while a worker is being replaced.
_LONGEST_S, _REPLACED_S = 30.0, 5.0
# How often refusals on arrival are logged, in seconds.
_LOGGED_S = 1.0

STUCK_EXIT_CODE = 70
"""EX_SOFTWARE: computations hung, so the process must be restarted."""


class Phase(enum.Enum):
    """The phases of the process. FAILED means that it will exit: a model could not be loaded, or hangs."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


_EXPLANATIONS = {
    Phase.LOADING: "The models are still loading: retry in a moment.",
    Phase.DRAINING: "The service is shutting down and accepts no new requests: use another instance.",
    Phase.FAILED: "The service has failed: its log says why.",
}


Loader = Callable[[Settings, Metrics], dict[str, Engine]]
"""Creates the engines of the settings' models, the default first, without starting them."""


class ServiceState:
    """The state that the app owns. The loading thread and signal handlers set plain flags, without locks."""

    def __init__(
        self,
        settings: Settings,
        endpoints: Endpoints,
        load: Loader = load_engines,
        siblings: Siblings | None = None,
    ) -> None:
        """Read the keys; raises KeyFileError and TracesError.

        `siblings` are the other processes of the service, if it has several.
        """
        self.settings = settings
        self.endpoints = endpoints
        self.siblings = siblings
        self.counters = single_process(settings.models) if siblings is None else siblings.counters
        self.is_placeholder = False
        """Whether it only answers until the workers are ready, and then passes its connections to them."""
        # Of several processes, only the supervisor reads the key file.
        self.key_file = open_key_file(settings.keys, settings.api_keys_file) if siblings is None else None
        published = self.key_file.published if self.key_file is not None else None
        self.keys = Keys(settings.keys, published if siblings is None else siblings.keys)
        self.traces = open_traces(settings, VERSION)
        self.metrics = Metrics(VERSION, endpoints, None if siblings is None else siblings.metrics)
        self._warnings = TextWarnings(self.metrics, self.counters)
        self.draining = False
        """Set by a signal: new requests are refused, accepted ones are still answered."""
        self.drained_by: float | None = None
        """Set by a signal: when the process must have exited, in `time.monotonic` seconds."""
        self.memory = Memory(self.counters)
        self.peers = Peers(settings.proxies)
        self.presence = Presence(self.counters)
        self.turns = Turns(self.presence, yields=siblings is None)
        self._overload = Overload(self.turns)
        self.recent_connections = RecentConnections()
        self.readers = Readers()
        self.absent = Absent()
        self.running: set[asyncio.Task[object]] = set()
        """The inference requests that are being served."""
        self._unanswered = 0
        self._refused: Counter[str] = Counter()
        """The requests that were refused on arrival since this was last logged, by kind."""
        self._not_ready = Refusal("not-ready", self._unready_retry, self._unready_problem)
        self._logged_at = self._begun = time.monotonic()
        self.drain_expired = False
        self.writing = ThreadPoolExecutor(_WRITERS, "write", lower_priority, (BESIDE_LOOP,))
        """Serializes large responses, piece by piece."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called once, in the loading thread."""
        self.failure: str | None = None
        self.exit_code = 1
        """The exit code after a failure."""
        self._load = load
        self._trimmer: MemoryTrimmer | None = None
        self._engines: dict[str, Engine] = {}

    @property
    def engines(self) -> Mapping[str, Engine]:
        """The served models, the default first; empty while loading."""
        return self._engines

    @property
    def in_flight(self) -> int:
        """The number of requests in flight: received, and not answered."""
        return max(self._unanswered, len(self.running))

    def count_unanswered(self, change: int) -> None:
        """Count requests that a connection has received, or answered."""
        self._unanswered += change
        self.counters.own[IN_FLIGHT] = self._unanswered

    def charged_for_reading(self, client: str) -> str:
        """Return who is charged for reading the next head on a connection of this client.

        Where clients may share connections or addresses, it is not known whose request comes next until its
        head is read. So heads are charged apart from requests, to a name that never has to rest: no client
        has to wait because another one rests.
        """
        shared = self.keys.required or self.settings.trusted_proxies
        return f"connections of {client}" if shared else client

    def begin(self, task: asyncio.Task[object]) -> None:
        """Count an inference request as being served by this task."""
        self.running.add(task)
        self.metrics.in_flight.set(len(self.running))

    def end(self, task: asyncio.Task[object]) -> None:
        """Count an inference request as answered."""
        self.running.discard(task)
        self.counters.own[ANSWERED] += 1
        self.metrics.in_flight.set(len(self.running))

    @property
    def phase(self) -> Phase:
        """The current phase of the process."""
        if self.failure is not None:
            return Phase.FAILED
        if self.draining:
            return Phase.DRAINING
        return Phase.READY if self._engines else Phase.LOADING

    def check_ready(self) -> None:
        """Raise the 503 for the current phase, unless the service is ready."""
        if self._unready:
            raise self._unready_problem(self._unready_retry())

    def admit(self, permit: Permit, *, arrived: bool, queued: bool = True) -> None:
        """Raise the 429 for a request of this size that there is no memory for, before its body is read.

        If it has `arrived` as a whole, its memory is reserved already. If it will be `queued` and was not
        admitted when its head arrived, the 429 is also raised if no model has room for it.
        """
        if not arrived:
            self.memory.check_room(permit, permit.body_bytes)
        if not queued or permit.admitted:
            return
        if permit.body_bytes >= MIN_BODY_BYTES or self._overload.may_refuse:
            refusal = self._overload.full(permit.client, permit.body_bytes, returned=permit.returned)
            if refusal is not None:
                permit.retry = permit.promised or refusal.retry()
                raise refusal.problem(permit.retry)

    @property
    def may_refuse(self) -> bool:
        """Whether `refusal` might return one: False most of the time, at little cost."""
        return self._unready or self._overload.may_refuse

    def refusal(self, client: str, body_bytes: int, *, returned: bool = False) -> Refusal | None:
        """Return why a request must be refused on arrival, and count it; None if it may be served.

        A request that `returned` when it was told to needs less room.
        """
        if self._unready:
            refusal: Refusal | None = self._not_ready
        else:
            refusal = self._overload.refusal(client, body_bytes, returned=returned)
        if refusal is not None:
            self.metrics.reject(refusal.kind)
            self._refused[refusal.kind] += 1
        return refusal

    @property
    def _unready(self) -> bool:
        return not self._engines or self.draining or self.failure is not None

    def _unready_retry(self) -> Retry:
        """Say when to come back.

        The best guess is that a start takes as long again as it has taken so far. So clients that obey are
        served before they have waited twice as long as the start takes.
        """
        if self.phase is Phase.LOADING:
            return Retry.after(min(_LONGEST_S, max(1.0, time.monotonic() - self._begun)))
        return Retry.after(1.0 if self.phase is Phase.DRAINING else _REPLACED_S)

    def _unready_problem(self, retry: Retry) -> Problem:
        headers = retry_after(retry)
        if self.phase is Phase.DRAINING:
            headers["Connection"] = "close"  # so that the client's next request reaches another instance
        phase = self.phase if self.phase in _EXPLANATIONS else Phase.LOADING  # loading has just ended
        return Problem("not-ready", _EXPLANATIONS[phase], headers=headers, members={"phase": phase.value})

    def engine(self, name: str | None) -> Engine:
        """Find a model, the default if `name` is None; raises a Problem listing the served models."""
        if name is None:
            return next(iter(self._engines.values()))
        if name not in self._engines:
            names = list(self._engines)
            raise Problem(
                "model-not-found",
                f'The model "{name}" is not served here; the models are: {", ".join(names)}.',
                members={"field": "model", "actual": name, "allowed": names},
            )
        return self._engines[name]

    def load(self) -> None:
        """Load, warm up and start every model, in the caller's thread."""
        try:
            engines = self._load(self.settings, self.metrics)
            for name, engine in engines.items():
                self.metrics.add_model(name, engine.info)
                tell_stage(f"warming up {name}")
                engine.start()
            prepare()
            release_file_pages(only_weights=True)
            trim_memory()
            self._plan_memory()
        except ModelError as error:
            self._fail(str(error))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # panics of Rust libraries are not Exceptions
            log.exception("loading failed")
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._trimmer = MemoryTrimmer(
                engines.values(),
                self.writing,
                lambda: self.memory.changed,
                answering=lambda: self.in_flight > 0,
                given=self._memory_given,
                elsewhere=lambda: self.counters.elsewhere(GROWTH),
            )
            self._engines = engines
            self._overload.engines = engines.values()
            log.info("ready: %s", ", ".join(engines))
            self.on_ready()

    @property
    def timeout_s(self) -> float:
        """The shortest timeout of requests to any model, in seconds; while none is loaded, `patience_s`."""
        times = [engine.timeout_s for engine in self._engines.values()]
        return min(times, default=self.settings.patience_s)

    @property
    def max_response_bytes(self) -> int:
        """The maximum size of a response: the setting, or less if memory is short."""
        return self.memory.largest_answer(self.settings.max_response_bytes)

    @property
    def _memory_given(self) -> int:
        return self.settings.memory_bytes or memory_given()

    def _plan_memory(self) -> None:
        given = self._memory_given
        if self.siblings is None:  # several processes are measured together, by the supervisor
            check_size(resident_bytes(), self.settings)
        self.memory.plan(given)
        log.info("requests may use %d MB of %d MB of memory", self.memory.limit >> 20, given >> 20)
        if (largest := self.max_response_bytes) < self.settings.max_response_bytes:
            log.warning(
                "responses are limited to %d bytes, not HEADLIGHT_MAX_RESPONSE_BYTES=%d: memory is short",
                largest,
                self.settings.max_response_bytes,
            )

    def supervise(self, stopped_s: float = 0.0) -> None:
        """Check every engine; a computation that hangs ends the process.

        `stopped_s` is how long the whole process was suspended since the last call.
        """
        if time.monotonic() - self._logged_at >= _LOGGED_S:
            self.log_refusals()
        self.metrics.garbage.update()
        self.memory.measure()
        if self._trimmer is not None:
            self._trimmer.check()
        for name, engine in self._engines.items():
            if engine.supervise(stopped_s) and self.phase is not Phase.FAILED:
                self._fail(f"{name} hung in a computation that cannot be stopped; the process must end.")
                self.exit_code = STUCK_EXIT_CODE
        self._warnings.check({name: engine.vocabulary for name, engine in self._engines.items()})

    def log_refusals(self) -> None:
        """Log how many requests were refused on arrival: a line for each would cost more than the refusal."""
        now = time.monotonic()
        if self._refused:
            kinds = ", ".join(f"{number} {kind}" for kind, number in self._refused.items())
            log.log(
                self.settings.level_of_refusals,
                "requests refused on arrival in the last %.1f s: %s",
                now - self._logged_at,
                kinds,
            )
            self._refused.clear()
        self._logged_at = now

    def cancel_running(self) -> None:
        """Answer the requests in flight with a 503: the drain has timed out."""
        self.drain_expired = True
        for task in list(self.running):
            task.cancel()

    def close(self) -> None:
        """Stop the engines, abandoning what they still run."""
        for engine in self._engines.values():
            engine.close(timeout=0 if self.drain_expired else 0.1)
        if self.key_file is not None:
            self.key_file.close()
        self.writing.shutdown(wait=False, cancel_futures=True)

    def close_traces(self) -> None:
        """Send the queued traces, for a short time and within the drain's timeout."""
        if self.traces is not None:
            left = _FLUSH_S if self.drained_by is None else self.drained_by - time.monotonic() - _LAST_S
            self.traces.close(min(_FLUSH_S, max(0.0, left)))

    def _fail(self, sentence: str) -> None:
        if not self.draining:
            self.failure = sentence
