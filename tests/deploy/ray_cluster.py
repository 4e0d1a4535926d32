"""Starts a Ray cluster of one machine as processes of its own, and ends them all."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.network import network_of
from tests.support.serving import ROOT, environment, parse_metrics

FOLDER = ROOT / "deploy" / "ray"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headlight-deploy"
BIN = CACHE / "ray" / "bin"
START_S = 90.0
"""A start takes about fifteen seconds; the bound is for a machine that is busy with something else."""

# The first process of a namespace takes all others along when it ends. Ray's own resources do not depend on
# the cores that this machine happens to have.
_START = """
"$0/ray" start --head --num-cpus=4 --object-store-memory=100000000 --include-dashboard=false
exec "$0/serve" run "$1"
"""
_OWN_PROCESSES = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass
class Cluster:
    """A cluster that serves the application of deploy/ray/serve.yaml on port 8000 of this network."""

    process: subprocess.Popen[bytes]
    log_file: Path
    url: str = "http://127.0.0.1:8000"
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = self.new_client()

    def new_client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def wait_for(self, happened: Callable[[], bool], what: str) -> float:
        """Wait; the seconds that it took."""
        start = time.monotonic()
        while time.monotonic() - start < START_S:
            assert self.process.poll() is None, f"Ray ended by itself:\n{self.log}"
            if happened():
                return time.monotonic() - start
            time.sleep(0.1)
        raise AssertionError(f"{what} did not happen in {START_S} s:\n{self.log}")

    @property
    def log(self) -> str:
        """What Ray and the replicas have written so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def kill(self, replica: int) -> None:
        """End a replica by its process id, as a fault would."""
        os.kill(replica, signal.SIGKILL)

    def deploy(self, **arguments: object) -> None:
        """Replace what runs by the same application with other settings; returns before it is done."""
        config_file = self.log_file.with_name("serve.yaml")
        config = yaml.safe_load(config_file.read_text(encoding="utf-8"))
        config["applications"][0]["args"] |= arguments
        config_file.write_text(yaml.safe_dump(config), encoding="utf-8")
        inside = ["nsenter", "--pid", "--mount", "--target", str(_first_process(self.process))]
        command = [str(BIN / "serve"), "run", "--address", "127.0.0.1:6379", "--non-blocking"]
        with self.log_file.open("ab") as log:
            subprocess.run(
                [*inside, *command, str(config_file)],
                env=_environment(config_file.parent),
                stdout=log,
                stderr=log,
                timeout=START_S,
                check=True,
            )

    def ready(self) -> bool:
        """Whether a replica answers."""
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def replicas(self) -> set[int]:
        """The process ids of the replicas, those that still load included."""
        found = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    name = (folder / "cmdline").read_bytes()
                    if name.startswith(b"ray::ServeReplica") and network_of(folder.name) == network_of():
                        found.add(int(folder.name))
                except OSError:
                    continue  # it has ended
        return found

    def metrics(self) -> dict[float, dict[str, float]]:
        """The metrics of each replica as of now, by its start: a scrape reaches one that Ray chooses."""
        now = {"Cache-Control": "no-cache"}
        with ThreadPoolExecutor(8) as threads:
            texts = threads.map(lambda _: self.http.get("/metrics", headers=now).text, range(40))
            scraped = [parse_metrics(text) for text in texts]
        return {samples["process_start_time_seconds{}"]: samples for samples in scraped}


@contextmanager
def serve_on_ray(arguments: dict[str, object], **deployment: Any) -> Iterator[Cluster]:
    """Serve with these settings, and with these options of the deployment instead of those of serve.yaml."""
    config = yaml.safe_load((FOLDER / "serve.yaml").read_text(encoding="utf-8"))
    config["http_options"]["host"] = "127.0.0.1"
    (application,) = config["applications"]
    application["args"] |= arguments
    application["deployments"][0] |= deployment
    # Of a short name: the paths of Ray's sockets have 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        config_file, log_file = Path(folder) / "serve.yaml", Path(folder) / "log"
        config_file.write_text(yaml.safe_dump(config), encoding="utf-8")
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*_OWN_PROCESSES, "sh", "-ec", _START, str(BIN), str(config_file)],
                cwd=folder,
                env=_environment(Path(folder)),
                stdout=log,
                stderr=log,
            )
        cluster = Cluster(process, log_file)
        try:
            cluster.wait_for(cluster.ready, "readiness")
            yield cluster
        finally:
            cluster.http.close()
            _end(process)


def _environment(folder: Path) -> dict[str, str]:
    ray = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    return environment() | ray | {"PYTHONPATH": str(FOLDER)}


def _first_process(process: subprocess.Popen[bytes]) -> int:
    """Find the first process of the namespace that was made by this one."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the namespace's first process; its parent returns when all of them have ended."""
    if process.poll() is None:
        os.kill(_first_process(process), signal.SIGKILL)
        process.wait(10)
