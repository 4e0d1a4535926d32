"""The real Prometheus watches the real service: every expression answers, and alerts fire as they should."""

import math
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.deploy.prometheus_server import Prometheus, hastened, prometheus
from tests.deploy.tools import tool
from tests.deploy.traffic import KEY, clients, crowd, embeddings, ordinary, unlucky
from tests.deploy.watching import (
    DASHBOARDS,
    PROMETHEUS,
    dashboard,
    panel_expressions,
    panels,
    records,
    rule_expressions,
)
from tests.support.serving import Service, free_port, serve

pytestmark = pytest.mark.deploy

MODEL = "all-MiniLM-L6-v2"
CALM_S = 10.0

PROVOKED = {"HeadlightErrorBudgetBurnsFast", "HeadlightInferenceFails", "HeadlightRefusesRequests"}
# What else is no wonder in a crowd.
ALLOWED = PROVOKED | {
    "HeadlightErrorBudgetBurns",
    "HeadlightErrorBudgetBurnsSlowly",
    "HeadlightLatencyBudgetBurnsFast",
    "HeadlightLatencyBudgetBurns",
    "HeadlightLatencyBudgetBurnsSlowly",
    "HeadlightQueueFills",
}


def promtool(*arguments: str, text: bytes | None = None) -> None:
    """Run promtool, which must find nothing to say against what it is given."""
    done = subprocess.run([tool("promtool"), *arguments], input=text, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_promtool_accepts_the_configuration() -> None:
    """The configuration, and the rules that it names."""
    promtool("check", "config", "--lint=all", "--lint-fatal", str(PROMETHEUS / "prometheus.yml"))


def test_promtool_sees_every_alert_fire_and_stay_silent() -> None:
    """The cases in deploy/prometheus/tests hold, to the words of the alerts."""
    promtool("test", "rules", *map(str, sorted((PROMETHEUS / "tests").glob("*.yml"))))


def test_promtool_accepts_the_metrics(service: Service) -> None:
    """Names, units and help texts of the running service are as Prometheus wants them."""
    promtool("check", "metrics", text=service.http.get("/metrics").content)


def test_hastened_rules_differ_in_their_times_alone() -> None:
    """What the other tests run is what is deployed, a minute shortened to a second."""
    rules = "expr: sum_over_time(job:a:rate5m[1h:1m]) * 60 > x[3d]\nfor: 10m\ninterval: 1m\n"
    assert hastened(rules) == (
        "expr: sum_over_time(job:a:rate5m[60s:1s]) * 1 > x[4320s]\nfor: 10s\ninterval: 1s\n"
    )


@pytest.fixture(scope="module")
def port() -> int:
    """Where the service is, also after it was started anew."""
    return free_port()


@pytest.fixture(scope="module")
def watched(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, which asks for that service every second."""
    with prometheus(port, tmp_path_factory.mktemp("prometheus")) as started:
        yield started


def small(port: int, *, wait: bool = True) -> AbstractContextManager[Service]:
    """A service that a few clients overload, and that fails on a word."""
    return serve(
        module="tests.support.doubles",
        exit_code=None,
        wait=wait,
        port=port,
        threads=1,
        max_batch_tokens=512,
        max_queue_tokens=2048,
        api_keys=KEY,
    )


def substituted(promql: str) -> str:
    """An expression as Grafana sends it, with its variables in place."""
    values = {"$__rate_interval": "5s", "$__range": "60s", "$instance": ".+", "$route": ".+", "$model": MODEL}
    values["$price"] = "0.02"
    for name, value in values.items():
        promql = promql.replace(name, value)
    assert "$" not in promql
    return promql


def both_sides(promql: str) -> str:
    """An alert's expression that has a value whenever both sides of its comparisons have one."""
    promql = re.sub(r"^absent\((.+)\)$", r"\1", promql.strip())
    return re.sub(r"(?<![=!<>])(==|!=|<=|>=|<|>)(?=\s)", r"\1 bool", promql)


def test_comparisons_become_values() -> None:
    """Both sides of a comparison stay, and only thresholds go."""
    assert both_sides('a{b=~"c"} > 1\nand d <= 2') == 'a{b=~"c"} > bool 1\nand d <= bool 2'
    assert both_sides('absent(up{a!="b"})\n') == 'up{a!="b"}'


def assert_answered(watched: Prometheus, where: str, promql: str) -> None:
    """Ask, until there is a value that is a number."""

    def answered() -> bool:
        return any(not math.isnan(sample.value) for sample in watched.query(promql))

    until = time.monotonic() + 5
    while not answered():
        assert time.monotonic() < until, f"{where} is empty: {promql}"
        time.sleep(0.2)


@pytest.mark.in_turns
@pytest.mark.parametrize("processes", [1, 2])
def test_every_panel_shows_a_load_of_embeddings_alone(processes: int, tmp_path: Path) -> None:
    """No panel is empty where clients know OpenAI's protocol alone, with one process and with several."""
    port = free_port()
    with (
        prometheus(port, tmp_path) as watched,
        serve(port=port, processes=processes, api_keys=KEY) as service,
    ):
        with clients(service, embeddings):
            time.sleep(CALM_S)
            for name in DASHBOARDS:
                for panel in panels(name):
                    for target in panel["targets"]:
                        assert_answered(watched, f"{name}: {panel['title']}", substituted(target["expr"]))
            (cost,) = (panel["targets"] for panel in panels("service") if panel["title"] == "Cost by key")
            assert watched.query(substituted(cost[0]["expr"]))[0].value > 0
        served = {sample.labels["route"] for sample in watched.query("headlight_inputs_total > 0")}
        assert served == {"/v1/embeddings"}


def test_a_day_of_the_service(watched: Prometheus, port: int) -> None:
    """Calm, then overloaded and failing, then gone, then back again and again: as the alerts say."""
    with small(port) as service:
        calm(watched, service)
        bad(watched, service)
        service.process.kill()
        service.wait()
        watched.wait_until(lambda: watched.firing() >= {"HeadlightDown", "HeadlightNoInstanceReady"})
        assert "HeadlightAbsent" not in watched.firing()
    with small(port, wait=False) as service:
        watched.wait_until(lambda: "HeadlightDown" not in watched.firing())
        assert "HeadlightRestarts" not in watched.ever_fired()
        service.process.kill()
    with small(port):
        gone = {"HeadlightDown", "HeadlightNoInstanceReady", "HeadlightNotReady"}
        watched.wait_until(lambda: "HeadlightRestarts" in watched.firing() and not gone & watched.firing())


def calm(watched: Prometheus, service: Service) -> None:
    """A service that does well: everything recorded has a value from the start, and no alert fires."""
    watched.wait_until(lambda: all(watched.query(record) for record in records()))
    assert watched.query("job:headlight_requests:rate5m")[0].value == 0
    with clients(service, ordinary):
        time.sleep(CALM_S)
    assert watched.query("job:headlight_requests:rate5m")[0].value > 0
    assert watched.firing() == set()


def bad(watched: Prometheus, service: Service) -> None:
    """More than it can do, and inputs that fail: those alerts and no others; and nothing asked is empty."""
    with clients(service, ordinary, unlucky, crowd):
        watched.wait_until(lambda: watched.firing() >= PROVOKED)
        assert watched.faulty_rules() == []
        for where, promql in rule_expressions():
            assert_answered(watched, where, hastened(both_sides(promql)))
        for name in DASHBOARDS:
            for where, promql in panel_expressions(name):
                assert_answered(watched, where, substituted(promql))
            assert_variables_have_values(watched, name)
        assert watched.firing() <= ALLOWED


def assert_variables_have_values(watched: Prometheus, name: str) -> None:
    """The lists that a dashboard offers have something to choose."""
    for variable in dashboard(name)["templating"]["list"]:
        if variable["type"] == "query":
            (parts,) = re.findall(r"^label_values\((.+), (\w+)\)$", variable["query"]["query"])
            assert watched.label_values(parts[1], parts[0]), variable["name"]
