"""Loads the models of a service, and makes the engines that run them."""

import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from model.contract import Backend
from model.loading import both_packages, load_model, prepare_model
from model.memory import release_file_pages
from model.tokenization.tokenizer import TextTokenizer
from service.engine.engine import Engine
from service.engine.lane_scheduler import LaneScheduler
from service.settings import Settings
from service.sharing.scoreboard import Counters
from service.system.stages import tell_stage
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

PreparedModel = Callable[[], tuple[TextTokenizer, Backend]]
"""Returns a model that has been loaded as far as forked processes can share it."""


def prepare_models(settings: Settings, folder: Path | None) -> dict[str, PreparedModel]:
    """Load, before a fork, what processes can share of every model; raises ModelError.

    Files for the processes to map are written to `folder`; None if the system has no place for them.
    """

    def prepare(source: str, **options: Any) -> PreparedModel:
        return cache(prepare_model(source, folder=folder, **options))  # for all names of the model

    prepared = _load_each(settings, prepare)
    release_file_pages()
    return prepared


def load_engines(settings: Settings, metrics: Metrics) -> dict[str, Engine]:
    """Load every model that the settings name; raises ModelError."""
    return build_engines(_load_each(settings, load_model), settings, metrics)


def _load_each(settings: Settings, load: Callable[..., T]) -> dict[str, T]:
    """Call `load` once for each source, with the settings' options; returns what it returned, by name."""
    if (sentence := both_packages()) is not None:
        log.warning(sentence)
    loaded: dict[str, T] = {}
    first: dict[str, str] = {}
    for name, source in settings.models.items():
        same = first.setdefault(_place(source), name)
        if same in loaded:
            log.info("%s is another name for %s", name, same)
            loaded[name] = loaded[same]
            continue
        log.info("loading %s from %s", name, source)
        tell_stage(f"fetching or loading {name} from {source}")
        loaded[name] = load(
            source,
            kind=settings.backend,
            device=settings.device,
            dtype=settings.dtype,
            threads=settings.threads,
            native=settings.native == "on",
            strict=settings.strict == "on",
        )
    return loaded


def _place(source: str) -> str:
    """Return a source in one form, so that two ways to write a folder give the same."""
    path = Path(source).expanduser()
    return str(path.resolve()) if path.exists() else source


def build_engines(
    loaded: Mapping[str, tuple[TextTokenizer, Backend]],
    settings: Settings,
    metrics: Metrics,
    counters: Counters | None = None,
) -> dict[str, Engine]:
    """Create the engines of loaded models; `counters` is shared with the service's other processes."""
    release_file_pages()
    scheduler = LaneScheduler(min(backend.lanes for _, backend in loaded.values()), counters)
    engines = {}
    for name, (tokenizer, backend) in loaded.items():
        log.info("%s: %s", name, backend.info.runs)
        engines[name] = Engine(
            name,
            tokenizer,
            backend,
            metrics,
            max_batch_tokens=settings.max_batch_tokens,
            max_queue_tokens=settings.max_queue_tokens,
            scheduler=scheduler,
            largest_request=largest_request(settings, backend.info.max_length),
            timeout_s=settings.request_timeout_s,
            counters=counters,
        )
    return engines


def largest_request(settings: Settings, max_length: int) -> int:
    """Return the maximum number of tokens in a request, which its texts and its bytes both limit."""
    return min(settings.most_inputs * max_length, settings.max_body_bytes)
