"""Starts the real Prometheus on the loopback, with the rules of the repository, a minute made a second."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.tools import tool
from tests.deploy.watching import PROMETHEUS, read_yaml
from tests.support.serving import free_port

_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_PATIENCE_S = 90.0


def hastened(rules: str) -> str:
    """The same rules with a second in each minute's place: windows, waits, and what they count per window."""

    def seconds(found: re.Match[str]) -> str:
        return f"{int(found[1]) * _SECONDS[found[2]] // 60}s"

    def window(found: re.Match[str]) -> str:
        return re.sub(r"(\d+)([mhd])", seconds, found[0])

    rules = re.sub(r"\[\d+[mhd](?::\d+[mhd])?\]", window, rules)
    rules = re.sub(r"(?<=for: )(\d+)([mhd])\b", seconds, rules)
    rules = re.sub(r"(?<=interval: )(\d+)([mhd])\b", seconds, rules)
    return re.sub(r"(?<=\* )(60|300)\b", lambda found: str(int(found[0]) // 60), rules)


@dataclass(frozen=True)
class Sample:
    """One series of an answer."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus, asked over HTTP."""

    http: httpx.Client

    def query(self, promql: str) -> list[Sample]:
        """The value of an expression now; raises AssertionError with Prometheus' own words."""
        result = self._get("query", query=promql)
        if result["resultType"] == "scalar":
            return [Sample({}, float(result["result"][1]))]
        return [Sample(series["metric"], float(series["value"][1])) for series in result["result"]]

    def label_values(self, name: str, series: str) -> list[str]:
        """The values that a label of some series has."""
        values: list[str] = self._get(f"label/{name}/values", **{"match[]": series})
        return values

    def faulty_rules(self) -> list[tuple[str, str]]:
        """The rules that Prometheus could not evaluate, with its reason."""
        rules = [rule for group in self._get("rules")["groups"] for rule in group["rules"]]
        assert rules
        return [(rule["name"], rule.get("lastError", "")) for rule in rules if rule["health"] == "err"]

    def firing(self) -> set[str]:
        """The alerts that are firing now."""
        return {sample.labels["alertname"] for sample in self.query('ALERTS{alertstate="firing"}')}

    def ever_fired(self) -> set[str]:
        """The alerts that were firing at any time."""
        fired = self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')
        return {sample.labels["alertname"] for sample in fired}

    def wait_until(self, happened: Callable[[], Any]) -> None:
        """Wait for something to be seen; what is firing meanwhile is told where it is not."""
        until = time.monotonic() + _PATIENCE_S
        while not happened():
            assert time.monotonic() < until, f"not seen in {_PATIENCE_S} s; firing: {self.firing()}"
            time.sleep(0.2)

    def _get(self, path: str, **parameters: str) -> Any:
        answer = self.http.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]


@contextmanager
def prometheus(target_port: int, place: Path) -> Iterator[Prometheus]:
    """Run Prometheus as configured in the repository, but asking a service at this port every second."""
    config = read_yaml("prometheus", "prometheus.yml")
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{target_port}"]}]
    (place / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (place / "rules").mkdir()
    for file in (PROMETHEUS / "rules").glob("*.yml"):
        (place / "rules" / file.name).write_text(hastened(file.read_text(encoding="utf-8")), encoding="utf-8")
    port = free_port()
    command = [
        tool("prometheus"),
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as http:
            _wait_until_ready(http, process, place / "log")
            yield Prometheus(http)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait_until_ready(http: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, f"Prometheus ended by itself:\n{log.read_text(encoding='utf-8')}"
        try:
            if http.get("/-/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"Prometheus was not ready in {_PATIENCE_S} s:\n{log.read_text(encoding='utf-8')}")
