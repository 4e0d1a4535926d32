"""The signals that end the service. It imports next to nothing, because they are handled from the start."""

import signal


def ending_signals() -> list[signal.Signals]:
    """Return the signals that have the service drain; SIGHUP only if it is not ignored, as under nohup."""
    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hung_up]
