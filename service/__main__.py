"""The command line: `headlight`, the same as `python -m service`."""

import gc
import logging
import os
import sys
from collections.abc import Sequence

from service.app import create_app
from service.logs import set_up_logs
from service.server import ListenError, serve
from service.settings import SettingsError, read_settings, unknown_variables
from service.state import VERSION, ServiceState

log = logging.getLogger("service")

# Of the youngest objects as ever, of the oldest a hundred times less often.
_GC_THRESHOLDS = (700, 10, 1000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal, which ends the process; returns the exit code of what does not serve."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) == ["--version"]:
        sys.stdout.write(f"headlight {VERSION}\n")
        return 0
    try:
        settings = read_settings(arguments)
    except SettingsError as error:
        sys.stderr.write(f"headlight: {error}\n")
        return 2
    set_up_logs(settings.log_level, settings.log_format)
    for name in unknown_variables(os.environ):
        log.warning("%s is not a setting of headlight and is ignored", name)
    # Before PyTorch is loaded. Between the products of one pass its threads should spin, since waking them
    # takes longer than a small product; between passes they should sleep, and leave the cores to others.
    # So many turns are some microseconds (`benchmarks/README.md` has the measurement that chose them).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Code for more shapes of products than there are of one model's; each costs some kilobytes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")
    # The cores have batches to run: texts are tokenized by the one thread that was given them. Measured: a
    # third less time for a short text, as much for 32 texts, which two threads tokenize no faster.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    app = create_app(settings)
    state: ServiceState = app.state.service
    state.on_ready = _freeze
    try:
        serve(app, state)
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


if __name__ == "__main__":
    sys.exit(main())
