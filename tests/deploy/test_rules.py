"""Every alert is explained, tested, and made of what is there."""

import re
from typing import Any

import pytest

from service.protocols.endpoints import ENDPOINTS
from tests.deploy.watching import (
    DASHBOARDS,
    MONITORING,
    PROMETHEUS,
    alerts,
    dashboard,
    exposed_names,
    panel_expressions,
    panels,
    read_yaml,
    records,
    rule_expressions,
    series_names,
    unknown_names,
)
from tests.support.serving import ROOT, Json

_, _, _RUNBOOKS = MONITORING.partition("\n## Alerts\n")
_RUNBOOKS = _RUNBOOKS.partition("\n## ")[0]
RUNBOOKS = dict(re.findall(r"^### (\S+)\n\n(.+?)(?=\n+### |\Z)", _RUNBOOKS, flags=re.DOTALL | re.MULTILINE))

OF_ALL_ROUTES = {"service: Requests by route A"}
"""Panels that count operational requests, too."""


def promtool_cases() -> list[Json]:
    """The tests of all files for `promtool test rules`."""
    files = sorted((PROMETHEUS / "tests").glob("*.yml"))
    return [case for file in files for case in read_yaml("prometheus", "tests", file.name)["tests"]]


def alert_cases(name: str) -> list[Any]:
    """The alerts that the cases expect under this name at each evaluation, or none."""
    checks = [check for case in promtool_cases() for check in case.get("alert_rule_test", [])]
    return [check["exp_alerts"] for check in checks if check["alertname"] == name]


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_it_means(name: str) -> None:
    """It has a severity that somebody routes by, two sentences, and the address of its runbook."""
    rule = alerts()[name]
    assert rule["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    annotations = rule["annotations"]
    assert set(annotations) == {"summary", "description", "runbook"}
    assert annotations["summary"].endswith(".")
    assert annotations["description"].endswith(".")
    assert annotations["runbook"] == f"docs/monitoring.md#{name.lower()}"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """The headings under "Alerts" are the alerts, none missing and none left over."""
    assert sorted(RUNBOOKS) == sorted(alerts())


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_a_runbook_speaks_of_what_is_there(name: str) -> None:
    """The panels, series and other alerts that it names exist."""
    text = RUNBOOKS[name]
    assert len(text.split()) > 40
    titles = {panel["title"] for board in DASHBOARDS for panel in panels(board)}
    assert set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", text.replace("\n", " "))) <= titles
    named = set(re.findall(r"\b(?:\w+:)?headlight_\w+(?::\w+)?", text))
    assert named <= exposed_names() | records().keys()
    assert set(re.findall(r"\bHeadlight\w+", text)) <= alerts().keys()


def test_the_objectives_name_what_is_recorded() -> None:
    """The series that the documents name in passing are those of the rules."""
    named = set(re.findall(r"\bjob:headlight_\w+:\w+", MONITORING))
    assert named
    assert named <= records().keys()


@pytest.mark.parametrize("name", alerts())
def test_an_alert_is_seen_to_fire_and_to_stay_silent(name: str) -> None:
    """The cases for promtool have it go off in one and hold still in another."""
    expected = alert_cases(name)
    assert any(expected)
    assert not all(expected)


@pytest.mark.parametrize("record", records())
def test_a_recorded_value_is_checked(record: str) -> None:
    """The cases for promtool compare every recorded series with a number."""
    checks = [check["expr"] for case in promtool_cases() for check in case.get("promql_expr_test", [])]
    assert any(record in series_names(promql) for promql in checks)


@pytest.mark.parametrize("record", records())
def test_a_recorded_name_is_formed_as_others_are_and_used(record: str) -> None:
    """Level, metric and operation; and some alert, dashboard or other rule reads it."""
    assert re.fullmatch(r"(job|instance_model):headlight_[a-z_]+:[a-z]+(_[a-z]+)?\d*[mhd]?", record)
    boards = [e.promql for board in DASHBOARDS for e in panel_expressions(board)]
    assert any(
        record in series_names(promql) for promql in [*boards, *(e.promql for e in rule_expressions())]
    )


def test_rules_are_made_of_series_that_exist() -> None:
    """A metric that was renamed would leave its alerts silent for ever."""
    assert unknown_names(rule_expressions()) == []


def test_every_inference_route_counts() -> None:
    """Rules and panels count all requests that a model computes, or name routes that there are."""
    expressions = [*rule_expressions(), *(e for name in DASHBOARDS for e in panel_expressions(name))]
    counted = re.compile(r"headlight_request(?:s_total|_duration_seconds_\w+)\b(\{[^}]*\})?")
    selected = [(e.where, labels) for e in expressions for labels in counted.findall(e.promql)]
    assert len(selected) > 20
    for where, labels in selected:
        named = re.findall(r'\broute=~?"(/[^"]*)"', labels)
        assert 'kind="inference"' in labels or named or where in OF_ALL_ROUTES, where
        assert {route for one in named for route in one.split("|")} <= {*ENDPOINTS.inference_labels}, where


def test_names_of_series_are_told_from_functions_and_labels() -> None:
    """What the other tests compare is really taken out of expressions."""
    promql = (
        'sum by (job) (rate(a_total{route=~"/x|y", b="c"}[5m])) / on (d) group_left (e) f:g:h5m > bool 1e-9'
    )
    assert series_names(promql) == {"a_total", "f:g:h5m"}
    assert series_names("max(up) or vector(0) and $model - z") == {"up", "z"}


def test_prometheus_reads_these_rules_and_this_job() -> None:
    """The job has the name that rules and dashboards select, and all rule files are read."""
    config = read_yaml("prometheus", "prometheus.yml")
    (job,) = config["scrape_configs"]
    assert job == {"job_name": "headlight", "static_configs": [{"targets": ["headlight:8000"]}]}
    assert config["rule_files"] == ["rules/*.yml"]
    selected = {job for e in rule_expressions() for job in re.findall(r'job="([^"]+)"', e.promql)} | {
        job for board in DASHBOARDS for job in re.findall(r'job=\\?"([^"\\]+)', str(dashboard(board)))
    }
    assert selected == {"headlight"}


def test_the_documents_say_how_long_history_must_be_kept() -> None:
    """Budgets of 30 days need as much history; both places that say so agree."""
    comment = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    assert "--storage.tsdb.retention.time=35d" in comment
    assert "--storage.tsdb.retention.time=35d" in MONITORING
