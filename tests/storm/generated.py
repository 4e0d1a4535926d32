"""Requests that schemathesis makes of the service's own schema: some right, most of them wrong."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.generation import GenerationMode

from tests.storm.attack import OK, REFUSED, UNFIT, Attack, Kinds, once, request
from tests.support.serving import Json

_SEED = 20
_LEFT_OUT = ("host", "content-length", "connection", "accept-encoding", "transfer-encoding")


def generate(document: Json, examples: int) -> Kinds:
    """So many requests of each route and mode, drawn once; a kind gives one of them at a time."""
    schema = schemathesis.openapi.from_dict(document)
    kinds: Kinds = {}
    for operation in (found.ok() for found in schema.get_all_operations()):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            cases = _draw(operation, mode, examples)
            if cases:
                name = f"{mode.value} {operation.method.upper()} {operation.path}"
                kinds[name] = lambda random, cases=cases: random.choice(cases)  # type: ignore[misc]
    return kinds


def _draw(operation: Any, mode: GenerationMode, examples: int) -> list[Attack]:
    drawn: list[Attack] = []
    unfit = UNFIT if "424" in operation.definition.raw["responses"] else frozenset()

    @seed(_SEED)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        drawn.append(_attack(case, OK | REFUSED | unfit))

    try:
        collect()
    except Exception as error:  # a route without parameters cannot be asked wrongly
        if type(error).__name__ not in ("Unsatisfiable", "SkipTest"):
            raise
    return drawn


def _attack(case: Any, allowed: frozenset[int]) -> Attack:
    sent: Mapping[str, Any] = case.as_transport_kwargs(base_url="http://a")
    target = sent["url"].removeprefix("http://a") or "/"
    query = urlencode(sent.get("params") or {}, doseq=True)
    path = quote(target, safe="/%") + (f"?{query}" if query else "")
    headers = [
        f"{name}: {value}".encode("latin-1", "replace")
        for name, value in sent["headers"].items()
        if name.lower() not in _LEFT_OUT
    ]
    body = sent.get("data")
    if body is None:
        body = json.dumps(sent["json"]).encode() if "json" in sent else b""
    elif isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    return once(request(body, *headers, path=path.encode(), method=sent["method"].encode()), allowed)
