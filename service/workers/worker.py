"""What forked processes do: workers serve, and the placeholder answers until they are ready."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType

from service.app import create_app
from service.engine.engine import Engine
from service.http.server import serve
from service.lifecycle import ServiceState
from service.loading import PreparedModel, build_engines
from service.settings import Settings
from service.sharing.connections import Siblings
from service.system.process import die_with_parent, keep_freed_memory, settle
from service.system.signals import ending_signals
from service.system.stages import take_slot, tell_stage
from service.telemetry.metrics import Metrics
from service.telemetry.traces import TracesError

# Otherwise, every process would log the same lines about loading.
_LIFECYCLE_LOG = logging.getLogger("service.lifecycle")


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked process, which must end itself; returns its process id."""
    ending = ending_signals()
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid:
            return pid
        try:
            die_with_parent(parent)
            for signum in ending:
                signal.signal(signum, _stop)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals - {signal.SIGCHLD})
            work()
        except BaseException:
            logging.getLogger(__name__).exception("a process failed")
        finally:
            os._exit(1)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def work(
    settings: Settings,
    siblings: Siblings,
    listeners: list[socket.socket],
    models: Mapping[str, PreparedModel],
) -> None:
    """Serve as one of the workers."""

    def load(settings: Settings, metrics: Metrics) -> dict[str, Engine]:
        loaded = {}
        for name, model in models.items():
            tell_stage(f"loading {name} from {settings.models[name]}, in worker {siblings.counters.slot}")
            loaded[name] = model()
        return build_engines(loaded, settings, metrics, siblings.counters)

    take_slot(siblings.counters.slot + 1)
    _serve(settings, siblings, listeners, load)


def serve_placeholder(settings: Settings, siblings: Siblings, listeners: list[socket.socket]) -> None:
    """Answer that the service is loading, until the workers are ready to take over."""

    def never(settings: Settings, metrics: Metrics) -> dict[str, Engine]:  # noqa: ARG001
        threading.Event().wait()
        return {}

    _serve(settings, siblings, listeners, never, is_placeholder=True)


def _serve(
    settings: Settings,
    siblings: Siblings,
    listeners: list[socket.socket],
    load: Callable[[Settings, Metrics], dict[str, Engine]],
    *,
    is_placeholder: bool = False,
) -> None:
    keep_freed_memory(siblings.counters.processes)
    if siblings.counters.slot or is_placeholder:
        _LIFECYCLE_LOG.setLevel(logging.ERROR)
    try:
        app = create_app(settings, load, siblings=siblings)
    except TracesError as error:
        sys.stderr.write(f"headlight: {error}\n")
        sys.stderr.flush()
        os._exit(2)
    state: ServiceState = app.state.service
    # Whatever waited or ran in the worker that this one replaces is gone.
    state.metrics.in_flight.set(0)
    for model in settings.models:
        state.metrics.queue(model, inputs=0, tokens=0)
    state.is_placeholder = is_placeholder
    state.on_ready = settle
    serve(app, state, listeners)


def _stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End the process: until the server takes over, there is nothing to answer or clean up."""
    os._exit(0)
