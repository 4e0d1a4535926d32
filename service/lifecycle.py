"""The state of the process: loading, ready or draining, and the engines it serves."""

import asyncio
import enum
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from model.contract import Backend, ModelInfo
from model.errors import ModelError
from model.loading import both_packages, load_model, prepare_model
from model.tokenization.tokenizer import TextTokenizer
from service.clients.addresses import Peers
from service.clients.company import Company
from service.clients.keys import Keys, open_key_file
from service.clients.slow_readers import Readers
from service.endpoints import Endpoints
from service.engine.device import Device
from service.engine.engine import Engine
from service.engine.trimming import MemoryTrimmer
from service.file_pages import release_file_pages, release_weights
from service.memory_limits import ANSWERS, Memory, check_size, memory_given
from service.problems import Problem
from service.process import resident_bytes, trim_memory
from service.serialization.json_arrays import prepare
from service.settings import Settings
from service.sharing.board import ANSWERED, GROWTH, IN_FLIGHT, Column, alone
from service.sharing.connections import Siblings
from service.stages import tell_stage
from service.telemetry.metrics import Metrics
from service.telemetry.traces import open_traces

log = logging.getLogger(__name__)

T = TypeVar("T")

VERSION = version("headlight-server")

# More threads than cores would only contend with each other and with the event loop.
_WRITERS = min(4, os.cpu_count() or 1)


# Seconds for sending the last traces, and for the shutdown itself.
_FLUSH_S, _LAST_S = 2.0, 0.2

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


PreparedModel = Callable[[], tuple[TextTokenizer, Backend]]
"""Returns a model that has been loaded as far as forked processes can share it."""


def prepare_models(settings: Settings, folder: Path) -> dict[str, PreparedModel]:
    """Load, before a fork, what processes can share of every model; raises ModelError.

    Files for the processes to map are written to `folder`.
    """
    prepared = _load_each(settings, partial(prepare_model, folder=folder))
    release_file_pages()
    return prepared


def load_engines(settings: Settings, metrics: Metrics) -> dict[str, Engine]:
    """Load every model that the settings name; raises ModelError."""
    return build_engines(_load_each(settings, load_model), settings, metrics)


def _load_each(settings: Settings, load: Callable[..., T]) -> dict[str, T]:
    """Call `load_model` or `prepare_model` for each model, with the settings' options."""
    if (sentence := both_packages()) is not None:
        log.warning(sentence)
    loaded = {}
    for name, source in settings.models.items():
        log.info("loading %s from %s", name, source)
        tell_stage(f"loading {name} from {source}")
        loaded[name] = load(
            source,
            kind=settings.backend,
            device=settings.device,
            dtype=settings.dtype,
            threads=settings.threads,
            tensorrt=settings.tensorrt,
            native=settings.native == "on",
        )
    return loaded


def build_engines(
    loaded: Mapping[str, tuple[TextTokenizer, Backend]],
    settings: Settings,
    metrics: Metrics,
    column: Column | None = None,
) -> dict[str, Engine]:
    """Create the engines of loaded models; `column` is shared with the service's other processes."""
    release_file_pages()
    device = Device(min(backend.lanes for _, backend in loaded.values()), column)
    engines = {}
    for name, (tokenizer, backend) in loaded.items():
        log.info("%s: %s", name, describe(backend.info))
        engines[name] = Engine(
            name,
            tokenizer,
            backend,
            metrics,
            max_batch_tokens=settings.max_batch_tokens,
            max_queue_tokens=settings.max_queue_tokens,
            device=device,
            largest_request=largest_request(settings, backend.info.max_length),
            # By twice the request timeout, every request of the batch has been answered with a 504.
            stuck_after_s=2 * settings.request_timeout_s,
            column=column,
        )
    return engines


def largest_request(settings: Settings, max_length: int) -> int:
    """Return the maximum number of tokens in a request, which its texts and its bytes both limit."""
    return min(settings.max_inputs * max_length, settings.max_body_bytes)


def describe(info: ModelInfo) -> str:
    """Describe what a model runs on."""
    sentence = f"{info.dtype} on {info.device} by {info.provider or info.backend}"
    if info.kernels is not None:
        return f"{sentence}, with native kernels ({info.kernels})"
    return sentence if info.no_kernels is None else f"{sentence}; no native kernels: {info.no_kernels}"


Loader = Callable[[Settings, Metrics], dict[str, Engine]]
"""Creates the engines of the settings' models, the default first, without starting them."""


class ServiceState:
    """Owned by the app. The loading thread and signal handlers set plain flags, without locks."""

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
        self.siblings = siblings
        self.column = alone() if siblings is None else siblings.column
        self.greets = False
        """Whether it only answers until the workers are ready, and then passes its connections to them."""
        # Of several processes, only the supervisor reads the key file.
        self.key_file = open_key_file(settings.keys, settings.api_keys_file) if siblings is None else None
        published = self.key_file.published if self.key_file is not None else None
        self.keys = Keys(settings.keys, published if siblings is None else siblings.keys)
        self.traces = open_traces(settings, VERSION)
        self.metrics = Metrics(VERSION, endpoints, None if siblings is None else siblings.metrics)
        self.draining = False
        """Set by a signal: new requests are refused, accepted ones are still answered."""
        self.drained_by: float | None = None
        """Set by a signal: when the process must have exited, in `time.monotonic` seconds."""
        self.memory = Memory(ANSWERS * settings.max_response_bytes, self.column)
        self.peers = Peers(settings.proxies)
        self.company = Company()
        self.readers = Readers()
        self.running: set[asyncio.Task[object]] = set()
        """The inference requests in flight."""
        self.drain_expired = False
        self.writing = ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")
        """Serializes large responses, piece by piece."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called once, in the loading thread."""
        self.failure: str | None = None
        self.exit_code = 1
        """The exit code after a failure."""
        self._load = load
        self._trimmer: MemoryTrimmer | None = None
        self._engines: dict[str, Engine] = {}
        self._alive = True
        """Whether every worker was alive at the last check."""

    @property
    def engines(self) -> Mapping[str, Engine]:
        """The served models, the default first; empty while loading."""
        return self._engines

    @property
    def in_flight(self) -> int:
        """The number of inference requests in flight."""
        return len(self.running)

    def begin(self, task: asyncio.Task[object]) -> None:
        """Count an inference request as in flight, served by this task."""
        self.running.add(task)
        self._count_running()

    def end(self, task: asyncio.Task[object]) -> None:
        """Count an inference request as answered."""
        self.running.discard(task)
        self.column.own[ANSWERED] += 1
        self._count_running()

    def _count_running(self) -> None:
        self.column.own[IN_FLIGHT] = len(self.running)
        self.metrics.in_flight.set(len(self.running))

    @property
    def phase(self) -> Phase:
        """The current phase of the process."""
        if self.failure is not None:
            return Phase.FAILED
        if self.draining:
            return Phase.DRAINING
        return Phase.READY if self._engines else Phase.LOADING

    @property
    def ready(self) -> bool:
        """Whether every model is loaded and its worker alive."""
        return self.phase is Phase.READY and all(engine.healthy for engine in self._engines.values())

    def check_ready(self) -> None:
        """Raise the 503 for the current phase, unless the service is ready.

        Whether workers are alive is as of the last check, a fraction of a second ago.
        """
        if self.phase is Phase.READY and self._alive:
            return
        unhealthy = "A computation hangs, and a new worker is taking over: retry in a few seconds."
        detail = _EXPLANATIONS.get(self.phase, unhealthy)
        headers = {"Retry-After": "1"}
        if self.phase is Phase.DRAINING:
            headers["Connection"] = "close"  # so that the client's next request reaches another instance
        raise Problem("not-ready", detail, headers=headers, members={"phase": self.phase.value})

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
            release_weights()
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
                given=self._memory_given,
                elsewhere=lambda: self.column.elsewhere(GROWTH),
            )
            self._engines = engines
            log.info("ready: %s", ", ".join(engines))
            self.on_ready()

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
        """Check every engine; a second hang in one of them ends the process, or the first if it is replaced.

        `stopped_s` is how long the whole process was suspended since the last call.
        """
        self.memory.measure()
        if self._trimmer is not None:
            self._trimmer.check()
        for name, engine in self._engines.items():
            engine.supervise(stopped_s)
            if engine.stuck > self._hangs_allowed and self.phase is not Phase.FAILED:
                self._fail(f"{name} hung in a computation that cannot be stopped; the process must end.")
                self.exit_code = STUCK_EXIT_CODE
        self._alive = all(engine.healthy for engine in self._engines.values())

    @property
    def _hangs_allowed(self) -> int:
        return 0 if self.siblings is not None else 1

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
