"""The dashboards are whole: placed, explained, and made of series that exist."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from service.protocols.endpoints import ENDPOINTS
from service.telemetry.metrics import Metrics
from tests.deploy.watching import (
    DASHBOARDS,
    GRAFANA,
    dashboard,
    panel_expressions,
    panels,
    read_yaml,
    series_names,
    unknown_names,
)
from tests.support.serving import ROOT, Json

COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_GRAFANA = {"__rate_interval", "__range"}

pytestmark = pytest.mark.parametrize("name", DASHBOARDS)


def found(value: Any, key: str) -> Iterator[Any]:
    """Every value under a key, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from found(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from found(inner, key)


def overlap(one: Json, other: Json) -> bool:
    """Whether two places on the grid have a cell in common."""
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


def test_panels_have_places_of_their_own(name: str) -> None:
    """No id twice, nothing beyond the 24 columns, and nothing upon something else."""
    placed = dashboard(name)["panels"]
    assert len({panel["id"] for panel in placed}) == len(placed)
    for panel in placed:
        place = panel["gridPos"]
        assert place["w"] > 0, panel["title"]
        assert place["h"] > 0, panel["title"]
        assert 0 <= place["x"] <= COLUMNS - place["w"], panel["title"]
    for one, other in combinations(placed, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def test_a_panel_explains_itself(name: str) -> None:
    """It has a title of its own, a sentence, a unit, and a legend for each series."""
    titles = [panel["title"] for panel in panels(name)]
    assert len(set(titles)) == len(titles)
    for panel in panels(name):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ids)) == len(ids), panel["title"]
        for target in panel["targets"]:
            assert target["expr"].strip(), panel["title"]
            assert target["legendFormat"], panel["title"]


def test_the_data_source_is_chosen_once(name: str) -> None:
    """Everything asks the data source that the variable names, so that an imported dashboard works."""
    board = dashboard(name)
    assert all(panel["datasource"] == SOURCE for panel in panels(name))
    assert all(target["datasource"] == SOURCE for panel in panels(name) for target in panel["targets"])
    assert all(source == SOURCE for source in found(board, "datasource"))
    first = board["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")


def test_what_is_shown_exists(name: str) -> None:
    """Every series is exposed by the service, by Prometheus, or recorded by the rules."""
    assert unknown_names(panel_expressions(name)) == []


def test_variables_are_defined_and_used(name: str) -> None:
    """No expression names a variable that is not there, and none is there for nothing."""
    defined = {variable["name"] for variable in dashboard(name)["templating"]["list"]}
    used = {v for e in panel_expressions(name) for v in re.findall(r"\$\{?(\w+)", e.promql)} - OF_GRAFANA
    linked = {v for link in dashboard(name)["links"] for v in re.findall(r"\$\{?(\w+)", link["url"])}
    assert used | linked == defined - {"datasource"}


def test_it_opens_on_what_happens_now(name: str) -> None:
    """Its address, its range and its refreshing are fixed, and it is in a form that Grafana still reads."""
    board = dashboard(name)
    assert board["uid"] == f"headlight-{name}"
    assert "id" not in board
    assert board["schemaVersion"] >= 39
    assert board["time"] == {"from": "now-1h", "to": "now"}
    assert board["refresh"] == "10s"
    assert {annotation["name"] for annotation in board["annotations"]["list"]} == {"Starts", "Alerts"}


def test_it_leads_to_the_others(name: str) -> None:
    """A link for each other dashboard takes the time range and the variables along."""
    links = [link for link in dashboard(name)["links"] if link["url"].startswith("/")]
    assert {link["url"] for link in links} == {
        f"/d/headlight-{other}" for other in DASHBOARDS if other != name
    }
    assert all(link["includeVars"] and link["keepTime"] for link in links)


def test_it_leads_to_the_explorer(name: str) -> None:
    """At the address of a variable, which starts as the documents name it; time range and variables stay."""
    (link,) = (link for link in dashboard(name)["links"] if not link["url"].startswith("/"))
    assert link["url"] == "${address}/explorer"
    assert link["url"].removeprefix("${address}") in {endpoint.path for endpoint in ENDPOINTS}
    assert link["targetBlank"]
    assert (link["includeVars"], link["keepTime"]) == (False, False)
    (address,) = (one for one in dashboard(name)["templating"]["list"] if one["name"] == "address")
    documented = re.search(r"`(http://[^`]+)/explorer`", (ROOT / "docs" / "explorer.md").read_text("utf-8"))
    assert documented is not None
    assert (address["type"], address["query"]) == ("textbox", documented[1])
    assert address["current"]["value"] == address["query"] == address["options"][0]["value"]


def test_every_metric_is_somewhere(name: str) -> None:
    """Nothing is counted that no panel of either dashboard shows."""
    shown = {s for board in DASHBOARDS for e in panel_expressions(board) for s in series_names(e.promql)}
    bare = {re.sub(r"_(bucket|sum|count|total)$", "", series) for series in shown}
    ours = {metric.name.removesuffix("_total") for metric in Metrics("0", ENDPOINTS).defined}
    assert ours <= bare


def test_a_table_has_a_column_for_each_label(name: str) -> None:
    """What is told of a model is shown of it, under a name for people."""
    labels = {m.name: {*m.label_names, "instance"} for m in Metrics("0", ENDPOINTS).defined}
    for panel in (panel for panel in panels(name) if panel["type"] == "table"):
        (expression,) = (target["expr"] for target in panel["targets"])
        (series,) = series_names(expression)
        (columns,) = found(panel, "renameByName")
        assert columns.keys() == labels[series]
        assert set(re.split(r", |[()]", expression)) >= labels[series]


def test_it_is_provisioned(name: str) -> None:
    """Its file lies where the provider looks, and the data source knows how often is scraped."""
    assert (GRAFANA / "dashboards" / f"{name}.json").exists()
    (provider,) = read_yaml("grafana", "provisioning", "dashboards", "headlight.yml")["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    (source,) = read_yaml("grafana", "provisioning", "datasources", "prometheus.yml")["datasources"]
    scraped = read_yaml("prometheus", "prometheus.yml")["global"]["scrape_interval"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["jsonData"]["timeInterval"] == scraped
