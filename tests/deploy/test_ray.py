"""Two replicas on Ray Serve answer as the plain service does, and stand in for each other."""

import json
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from model.checkpoints.source import resolve
from tests.deploy.network import own_network
from tests.deploy.ray_cluster import BIN, FOLDER, Cluster, serve_on_ray
from tests.references.checkpoints import MINILM
from tests.support.backends import Kept
from tests.support.serving import (
    JSON_TYPE,
    LONG,
    NDJSON,
    NPZ,
    ROOT,
    SAFETENSORS,
    Json,
    Service,
    assert_problem,
    environment,
    read_npz,
    read_safetensors,
    serve,
)

pytestmark = pytest.mark.deploy

TEXTS = ["The animal did not cross the street because it was too tired.", "Hello, world!", LONG]
REQUESTS = [
    ("/encode", {"inputs": TEXTS, "outputs": ["sentence", "tokens"], "layers": [0, -1]}),
    ("/attention", {"inputs": TEXTS[:2], "layers": [1, 3], "heads": [0, 5], "decimals": 9}),
]


@pytest.fixture(scope="module")
def folder(kept: Kept) -> Path:
    """The embedded model as a graph, so that a replica needs no PyTorch."""
    return kept.folder(resolve(MINILM), "onnx")


@pytest.fixture(scope="module")
def installed() -> None:
    """An environment with Ray, and headlight as it is now."""
    subprocess.run([ROOT / "tests" / "deploy" / "install_clusters.sh", "ray"], check=True, timeout=600)


@pytest.fixture(scope="module", autouse=True)
def alone(installed: None) -> Iterator[None]:
    """A network for Ray's many ports; the plain service runs in it too."""
    with own_network():
        yield


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Service]:
    """The service as it is started without Ray."""
    with serve(model=f"{MINILM}={folder}", threads=1) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two replicas of one core each."""
    arguments: dict[str, object] = {"model": f"{MINILM}={folder}", "threads": 1, "dtype": "float32"}
    with serve_on_ray(arguments, autoscaling_config={"min_replicas": 2, "max_replicas": 2}) as started:
        started.wait_for(lambda: len(started.metrics()) == 2, "a second replica")
        yield started


@contextmanager
def load(cluster: Cluster, clients: int = 4) -> Iterator[Counter[object]]:
    """Let clients ask one after the other all the while; counts statuses, and kinds of errors."""
    seen: Counter[object] = Counter()
    over = threading.Event()

    def ask() -> None:
        with cluster.new_client() as http:
            while not over.is_set():
                try:
                    seen[http.post("/encode", json={"inputs": TEXTS[0]}).status_code] += 1
                except httpx.TransportError as error:
                    seen[type(error)] += 1

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


def on_each_replica(cluster: Cluster, path: str, body: object, **headers: str) -> list[httpx.Response]:
    """Ask until both replicas have answered; all answers."""
    counted = f'headlight_requests_total{{kind="inference",route="{path}",status="200"}}'

    def answered_by_each() -> list[float]:
        return [samples[counted] for _, samples in sorted(cluster.metrics().items())]

    before = answered_by_each()
    responses: list[httpx.Response] = []

    def both_have_answered() -> bool:
        responses.extend(cluster.http.post(path, json=body, headers=headers) for _ in range(4))
        return all(late > early for early, late in zip(before, answered_by_each(), strict=True))

    cluster.wait_for(both_have_answered, "an answer of each of two replicas")
    return responses


@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=["encode", "attention"])
def test_both_replicas_answer_as_the_plain_service_does(
    cluster: Cluster, plain: Service, path: str, body: Json
) -> None:
    """A JSON answer is the same through Ray, from whichever replica, with its timings and one id."""
    expected = plain.http.post(path, json=body).json()
    for response in on_each_replica(cluster, path, body, **{"X-Request-ID": "mine"}):
        assert response.status_code == 200, response.text
        assert response.json() == expected
        assert response.headers.get_list("x-request-id") == ["mine"]
        assert "compute;dur=" in response.headers["server-timing"]


@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=["encode", "attention"])
def test_binary_answers_come_through_unharmed(
    cluster: Cluster, plain: Service, path: str, body: Json
) -> None:
    """Archives and safetensors have the same arrays through Ray, and the same metadata."""
    body = {name: value for name, value in body.items() if name != "decimals"}
    for accept, read in ((NPZ, read_npz), (SAFETENSORS, read_safetensors)):
        arrays, meta = read(plain.http.post(path, json=body, headers={"Accept": accept}).content)
        response = cluster.http.post(path, json=body, headers={"Accept": accept})
        assert response.headers["content-type"] == accept
        through_ray, meta_through_ray = read(response.content)
        assert meta_through_ray == meta
        assert through_ray.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(through_ray[name], array)


def test_lines_come_one_by_one(cluster: Cluster) -> None:
    """An ndjson answer has a line for each input and ends with the usage."""
    body = {"inputs": [LONG] * 16, "maps": False, "summary": True}
    with cluster.http.stream("POST", "/attention", json=body, headers={"Accept": NDJSON}) as response:
        lines = [json.loads(line) for line in response.iter_lines()]
    assert sorted(line["index"] for line in lines[:-1]) == list(range(16))
    assert lines[-1]["usage"]["input_tokens"] == 16 * 256


def test_errors_are_the_service_s_own(cluster: Cluster) -> None:
    """Whatever HTTP request is refused, Ray passes on the problem document and its one id."""
    http = cluster.http
    text = {"Content-Type": "text/plain"}
    refused = [
        (http.get("/nowhere"), 404, "not-found"),
        (http.get("/encode"), 405, "method-not-allowed"),
        (http.post("/encode", content="text", headers=text), 415, "unsupported-media-type"),
        (http.post("/encode", json={"inputs": "x"}, headers={"Accept": "image/png"}), 406, "not-acceptable"),
        (http.post("/encode", content=bytes(3_000_000), headers=JSON_TYPE), 413, "body-too-large"),
        (http.post("/encode", content="{", headers=JSON_TYPE), 400, "malformed-json"),
        (http.post("/attention", json={"inputs": "x", "layers": [9]}), 422, "invalid-request"),
        (http.post("/encode", json={"inputs": "x", "model": "none"}), 404, "model-not-found"),
    ]  # fmt: skip
    for response, status, kind in refused:
        assert_problem(response, status, kind)
        assert len(response.headers.get_list("x-request-id")) == 1


def test_who_leaves_early_is_no_error(cluster: Cluster) -> None:
    """A client that goes before its request or its answer is complete is counted as 499, not as a 5xx."""

    def counted(status: int) -> float:
        series = f'headlight_requests_total{{kind="inference",route="/encode",status="{status}"}}'
        return sum(samples[series] for samples in cluster.metrics().values())

    head = b"POST /encode HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    whole = json.dumps({"inputs": [LONG] * 200}).encode()
    gone, failed = counted(499), counted(500)
    for request in (head % 100 + b"{", head % len(whole) + whole):
        with socket.create_connection(("127.0.0.1", 8000)) as connection:
            connection.sendall(request)
            time.sleep(0.3)
    cluster.wait_for(lambda: counted(499) == gone + 2, "the end of what nobody waits for")
    assert counted(500) == failed


def test_a_replica_that_dies_is_replaced(cluster: Cluster) -> None:
    """When a replica is killed, only what it was answering is lost, and nobody meets one that still loads."""
    clients = 4
    before, starts = cluster.replicas(), set(cluster.metrics())
    with load(cluster, clients) as seen:
        cluster.kill(min(before))
        cluster.wait_for(lambda: len(cluster.metrics().keys() - starts) == 1, "a new replica")
        assert cluster.replicas() >= before - {min(before)}
    assert seen[200] > 10 * clients
    assert seen.total() - seen[200] == seen[500] <= clients, seen


def test_new_settings_reach_all_replicas_and_lose_no_request(cluster: Cluster) -> None:
    """Another version takes the place of the old one, replica by replica, while every request is answered."""
    before = cluster.replicas()
    with load(cluster) as seen:
        cluster.deploy(max_inputs=77)
        cluster.wait_for(lambda: not cluster.replicas() & before, "the end of the old replicas")
    assert seen.keys() == {200}, seen
    for _ in range(8):
        assert cluster.http.get("/info").json()["limits"]["max_inputs"] == 77


def inspect_application(code: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run code where Ray is installed, beside the application's file."""
    return subprocess.run(
        [BIN / "python", "-c", f"from headlight_on_ray import *\n{code}"],
        cwd=FOLDER,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_cores_and_times_follow_the_settings() -> None:
    """A replica reserves its threads, and may take as long to end as its last request."""
    code = """
deployment = build(Settings(device="cuda"))._bound_deployment
print(deployment.ray_actor_options["num_cpus"], deployment.ray_actor_options["num_gpus"])
print(deployment._deployment_config.graceful_shutdown_timeout_s)
"""
    ran = inspect_application(code, threads=3, request_timeout_s=50, drain_timeout_s=20)
    assert ran.stdout.split() == ["3", "1", "55.0"], ran.stderr


def test_threads_must_be_told() -> None:
    """Without a number of cores there is no application, and one sentence says what to set."""
    ran = inspect_application("build(Settings())")
    assert ran.stderr.splitlines()[-1].startswith("service.settings.SettingsError: HEADLIGHT_THREADS is auto")


def test_a_replica_that_cannot_work_is_unhealthy() -> None:
    """The health check says what /readyz says: here that the models are not loaded."""
    code = """
replica = Replica()
replica.app = BehindProxy(create_app(Settings()))
replica.check_health()
"""
    ran = inspect_application(code)
    assert "The models are still loading" in ran.stderr.splitlines()[-1]
