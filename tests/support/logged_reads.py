"""The service of `doubles`, whose log says who is charged for each read of the event loop."""

import sys
from typing import Any

from service.clients.turns import Turns
from tests.support import doubles


def main() -> int:
    """Serve; each read is a line of the log."""
    read = Turns.read

    def logged(turns: Turns, name: str, step: Any, **options: Any) -> bool:
        sys.stdout.write(f"read for {name}\n")
        sys.stdout.flush()
        return read(turns, name, step, **options)

    Turns.read = logged  # type: ignore[method-assign, assignment]
    return doubles.main()


if __name__ == "__main__":
    sys.exit(main())
