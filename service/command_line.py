"""What `headlight` does with its arguments, once `service/__main__.py` heeds signals."""

import gc
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from model.lanes import count_cores
from service.app import create_app
from service.clients.keys import KeyFileError
from service.http.server import ListenError, serve
from service.lifecycle import ServiceState
from service.process import allow_connections, keep_freed_memory, limit_products, set_environment
from service.settings import PREFIX, SettingsError, read_settings, unknown_variables
from service.telemetry.logs import set_up_logs
from service.telemetry.traces import TracesError

log = logging.getLogger("service")

_KEY_SETTINGS = (f"{PREFIX}API_KEYS", f"{PREFIX}API_KEYS_FILE")
# Of the youngest objects as ever, of the oldest a hundred times less often.
_GC_THRESHOLDS = (700, 10, 1000)


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal, which ends the process; returns the exit code of what does not serve.

    `headlight export …` is `python -m export …`.
    """
    if list(arguments[:1]) == ["export"]:
        # A program of its own, which serves nothing: it takes the place of this one. With -P nothing is run
        # that lies in the folder one happens to be in.
        command = [sys.executable, "-P", "-m", "export", *arguments[1:]]
        os.execv(sys.executable, command)  # noqa: S606
    try:
        settings = read_settings(arguments)
    except SettingsError as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 2
    set_up_logs(settings.log_level, settings.log_format)
    unknown = unknown_variables(os.environ)
    if mistaken := [name for name in unknown if name.startswith(f"{PREFIX}API_KEY")]:
        (meant,) = get_close_matches(mistaken[0], _KEY_SETTINGS, n=1, cutoff=0)
        sys.stderr.write(f"headlight: {mistaken[0]} is not a setting: did you mean {meant}?\n")
        return 2
    for name in unknown:
        log.warning("%s is not a setting of headlight and is ignored", name)
    if (settings.threads or 0) > (cores := count_cores()):
        log.warning("HEADLIGHT_THREADS is %d, and there are only %d cores for them", settings.threads, cores)
    set_environment()
    allow_connections()
    limit_products()
    keep_freed_memory()
    try:
        app = create_app(settings)
        state: ServiceState = app.state.service
        state.on_ready = _freeze
        serve(app, state)
    except (KeyFileError, TracesError) as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 2
    except ListenError as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 1
    return 0


def _freeze() -> None:
    """Take what was loaded out of garbage collection: it lives as long as the process.

    A full collection looks at everything that waits in the queue, for tens of milliseconds in which nobody
    is answered. Requests leave no cycles behind, so it may be rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
