"""`python -m tests.support.hanging_workers` is the service, in any number of processes, hanging on a word."""

import sys
from collections.abc import Mapping
from functools import partial

from model.contract import Backend
from model.tokenization.tokenizer import TextTokenizer
from service import command_line
from service.app import create_app
from service.engine.engine import Engine
from service.settings import Settings
from service.sharing.scoreboard import Counters
from service.telemetry.metrics import Metrics
from service.workers import worker
from tests.support.doubles import poisoned


def hanging(
    loaded: Mapping[str, tuple[TextTokenizer, Backend]],
    settings: Settings,
    metrics: Metrics,
    counters: Counters | None = None,
) -> dict[str, Engine]:
    """Engines in the place of those of the models that were loaded."""
    return poisoned(settings, metrics)


if __name__ == "__main__":
    worker.build_engines = hanging  # type: ignore[attr-defined]
    command_line.create_app = partial(create_app, load=poisoned)  # type: ignore[attr-defined]
    sys.exit(command_line.run(sys.argv[1:]))
