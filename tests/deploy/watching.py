"""The rules and dashboards of the repository, and what their expressions name."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.protocols.endpoints import ENDPOINTS
from service.telemetry.metrics import FAILURES, Metrics
from tests.service.test_encode_plan import INFO
from tests.support.serving import ROOT, Json

PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = ("service", "model")
MONITORING = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")

# Of Prometheus itself, for every target and every alert.
_PROMETHEUS_OWN = {"up", "scrape_duration_seconds", "ALERTS"}
_KEYWORDS = {"and", "or", "unless", "bool"}
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")


class Expression(NamedTuple):
    """PromQL, and where it stands."""

    where: str
    promql: str


def read_yaml(*path: str) -> Any:
    """A YAML file under deploy/."""
    return yaml.safe_load((ROOT / "deploy").joinpath(*path).read_text(encoding="utf-8"))


def _rules(name: str) -> list[Json]:
    return [rule for group in read_yaml("prometheus", "rules", name)["groups"] for rule in group["rules"]]


@cache
def alerts() -> dict[str, Json]:
    """The alerts by their names."""
    return {rule["alert"]: rule for rule in _rules("alerts.yml")}


@cache
def records() -> dict[str, str]:
    """The recorded names, and what is recorded under them."""
    return {rule["record"]: rule["expr"] for rule in _rules("recording.yml")}


@cache
def dashboard(name: str) -> Json:
    """A dashboard as Grafana reads it."""
    parsed: Json = json.loads((GRAFANA / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    return parsed


def panels(name: str) -> list[Json]:
    """The panels of a dashboard that show something: all but the headings of its rows."""
    return [panel for panel in dashboard(name)["panels"] if panel["type"] != "row"]


def panel_expressions(name: str) -> Iterator[Expression]:
    """What a dashboard asks for: in its panels, annotations and variables' lists."""
    for panel in panels(name):
        for target in panel["targets"]:
            yield Expression(f"{name}: {panel['title']} {target['refId']}", target["expr"])
    for annotation in dashboard(name)["annotations"]["list"]:
        yield Expression(f"{name}: annotation {annotation['name']}", annotation["expr"])


def rule_expressions() -> Iterator[Expression]:
    """What the rules ask for."""
    for record, promql in records().items():
        yield Expression(record, promql)
    for name, rule in alerts().items():
        yield Expression(name, rule["expr"])


def series_names(promql: str) -> set[str]:
    """The names of the series in an expression, without those of its functions and labels."""
    bare = re.sub(r'"[^"]*"', "", promql)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = _GROUPING.sub("", bare)
    return set(re.findall(r"(?<![\w:$])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()", bare)) - _KEYWORDS


@cache
def exposed_names() -> frozenset[str]:
    """The names of all samples of a service's /metrics, and of those that Prometheus adds."""
    metrics = Metrics("0", ENDPOINTS)
    metrics.add_model("a", INFO)
    metrics.limits("a", queue_tokens=1, batch_tokens=1)
    metrics.inference_failure("a", FAILURES[0])
    metrics.keys(frozenset({"04e08273"}))
    families = text_string_to_metric_families(metrics.exposition().decode())
    return frozenset(sample.name for family in families for sample in family.samples) | _PROMETHEUS_OWN


def unknown_names(expressions: Iterator[Expression]) -> list[tuple[str, str]]:
    """Names in expressions that are neither exposed nor recorded, and where they stand."""
    known = exposed_names() | records().keys()
    return [(e.where, name) for e in expressions for name in sorted(series_names(e.promql) - known)]
