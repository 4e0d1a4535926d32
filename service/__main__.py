"""The command line: `headlight`, the same as `python -m service`.

It imports next to nothing, so that signals are handled from the start: the other imports take a second.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from service.system.signals import ending_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal ends the process; returns an exit code if the service does not start."""
    for signum in ending_signals():
        signal.signal(signum, _stop)
    from service.command_line import run  # noqa: PLC0415 - only once signals are handled

    return run(sys.argv[1:] if arguments is None else arguments)


def _stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End the process: until the server takes over, there is nothing to answer or clean up.

    Immediately and not by an exception, which an import might catch or report as a failure.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"headlight: {signal.Signals(signum).name}: stopped before listening.\n".encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
