"""Runs `headlight` with its arguments, once `service/__main__.py` handles signals."""

import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from model.lanes import count_cores
from service.app import create_app
from service.clients.keys import KeyFileError
from service.flags import find_program, nearest, neighbour
from service.http.connections.open_files import FewFilesError, check_limit
from service.http.server import ListenError, open_listeners, serve
from service.lifecycle import ServiceState
from service.settings import (
    PREFIX,
    VARIABLES,
    Settings,
    SettingsError,
    read_settings,
    unknown_variables,
)
from service.system.process import freeze, set_up_process, settle
from service.telemetry.logs import set_up_logs
from service.telemetry.traces import TracesError
from service.welcome import welcome
from service.workers.count_processes import count_processes
from service.workers.start_limit import StartLimit
from service.workers.supervisor import Supervisor

log = logging.getLogger("service")

_KEY_SETTINGS = (f"{PREFIX}API_KEYS", f"{PREFIX}API_KEYS_FILE")


def _is_about_keys(name: str) -> bool:
    """Whether a variable was meant to set API keys, without which the service would be open."""
    near = nearest(name, list(VARIABLES)) in _KEY_SETTINGS
    return name.startswith(f"{PREFIX}API_KEY") or (near and any(map(_is_key, name.split("_"))))


def _is_key(word: str) -> bool:
    return bool(get_close_matches(word, ("KEY", "KEYS", "APIKEY", "TOKEN"), n=1, cutoff=0.75))


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal ends the process; returns an exit code if the service does not start.

    `headlight export …` is `python -m export …`, and `headlight convert …` is `python -m export.convert …`.
    """
    if (program := find_program(arguments)) is not None:
        # It replaces this process. With -P, Python imports nothing from the current directory.
        os.execv(sys.executable, [sys.executable, "-P", "-m", *program])  # noqa: S606
    try:
        settings = read_settings(arguments)
    except SettingsError as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 2
    set_up_logs(settings.log_level, settings.log_format)
    unknown = unknown_variables(os.environ)
    if mistaken := [name for name in unknown if _is_about_keys(name)]:
        (meant,) = get_close_matches(mistaken[0], _KEY_SETTINGS, n=1, cutoff=0)
        sys.stderr.write(f"headlight: {mistaken[0]} is not a setting: did you mean {meant}?\n")
        return 2
    for name in unknown:
        log.warning("%s is not a headlight setting and is ignored%s", name, neighbour(name, list(VARIABLES)))
    if (settings.threads or 0) > (cores := count_cores()):
        log.warning("HEADLIGHT_THREADS is %d, but only %d cores are available", settings.threads, cores)
    set_up_process()
    try:
        processes = count_processes(settings)
        check_limit(processes, len(settings.models))
        if processes > 1:
            return Supervisor(settings, processes).run()
        _serve_alone(settings)
    except (KeyFileError, SettingsError, TracesError) as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 2
    except (FewFilesError, ListenError) as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 1
    return 0


def _serve_alone(settings: Settings) -> None:
    """Serve from this process, until a signal ends it."""
    freeze()  # else a garbage collection would copy memory shared with the process that is forked next
    limit = StartLimit(settings.start_timeout_s)

    def started() -> None:
        limit.end()
        settle()
        welcome(settings, listeners[0])

    app = create_app(settings)
    state: ServiceState = app.state.service
    state.on_ready = started
    listeners = open_listeners(settings)
    serve(app, state, listeners)
