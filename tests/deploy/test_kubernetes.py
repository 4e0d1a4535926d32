"""The manifests of deploy/kubernetes are valid, fit together, and fit the service."""

import copy
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.memory_limits import ANSWER
from service.protocols.endpoints import ENDPOINTS
from service.settings import PREFIX, Settings
from service.telemetry.metrics import Metrics
from tests.deploy.kustomize import Manifest, build, find, normal, read
from tests.support.serving import ROOT, operations_labels

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ["base", "overlays/production", "overlays/gpu", "overlays/own-model"]
# The oldest that knows every field used here, and the newest there is.
VERSIONS = ["1.30", kubernetes_validate.latest_version().rpartition(".")[0]]
# Of other projects than Kubernetes: there is no schema at hand, and tests name what they know of them.
FOREIGN = {"ServiceMonitor", "Gateway", "HTTPRoute", "BackendTrafficPolicy"}
KUSTOMIZATIONS = sorted(FOLDER.rglob("kustomization.yaml"))
UNDER_LOAD_BYTES = 350 * 2**20
"""What a replica takes beside the answers that it holds (benchmarks/service/footprint.py)."""

every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def pod(manifests: list[Manifest]) -> Manifest:
    spec: Manifest = find(manifests, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(manifests: list[Manifest]) -> Manifest:
    (only,) = pod(manifests)["containers"]
    return dict(only)


def variables(manifests: list[Manifest]) -> dict[str, str]:
    """The environment of the service: a reference to requested cores is their number."""
    described = container(manifests)
    cores = described["resources"]["requests"]["cpu"]
    references = {"requests.cpu": cores}
    return {
        entry["name"]: entry.get("value") or references[entry["valueFrom"]["resourceFieldRef"]["resource"]]
        for entry in described["env"]
    }


def size(quantity: str) -> int:
    """A number of bytes as Kubernetes writes it."""
    number, unit = re.fullmatch(r"(\d+)([KMG]i)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * 1024 ** ("KMG".index(unit[0]) + 1)


@every_overlay
@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_is_valid(overlay: str, version: str) -> None:
    """Kubernetes knows every kind, every field and every value, in the oldest version that we support too."""
    for manifest in build(FOLDER / overlay):
        if manifest["kind"] not in FOREIGN:
            assert kubernetes_validate.validate(manifest, version, strict=True) == version


@pytest.mark.parametrize(
    ("way", "name", "value"),
    [
        (["spec"], "replica", 2),
        (["spec", "template", "spec"], "enableServiceLink", False),
        (["spec", "template", "spec"], "terminationGracePeriodSeconds", "45"),
    ],
)
def test_a_slip_is_found(way: list[str], name: str, value: object) -> None:
    """A field that is misspelt or of the wrong type does not pass the validation above."""
    manifest = copy.deepcopy(find(build(FOLDER / "base"), "Deployment"))
    place: Any = manifest
    for step in way:
        place = place[step]
    place[name] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[0], strict=True)


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.parent.relative_to(FOLDER)))
def test_a_kustomization_names_the_files_beside_it(path: Path) -> None:
    """No manifest is forgotten, and none is named that is not there."""
    kustomization = read(path)
    named = {*kustomization.get("resources", []), *kustomization.get("components", [])}
    named |= {patch["path"] for patch in kustomization.get("patches", [])}
    there = {other.name for other in path.parent.glob("*.yaml")} - {path.name}
    assert {name for name in named if not name.startswith("..")} == there
    assert all((path.parent / name).exists() for name in named)


@pytest.mark.deploy
@every_overlay
def test_kustomize_builds_the_same(overlay: str) -> None:
    """What the tests here look at is what kustomize makes of the files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headlight-deploy"
    subprocess.run([ROOT / "tests" / "deploy" / "install_clusters.sh", "kustomize"], check=True, timeout=300)
    built = subprocess.run(
        [cache / "bin" / "kustomize", "build", FOLDER / overlay], capture_output=True, text=True, check=True
    )
    assert named(yaml.safe_load_all(built.stdout)) == named(build(FOLDER / overlay))


def named(manifests: Iterable[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(each["kind"], each["metadata"]["name"]): normal(each) for each in manifests}


@every_overlay
def test_what_selects_finds_the_pods(overlay: str) -> None:
    """Each selector is satisfied by the pods' labels, and the monitor's by the Service's."""
    manifests = build(FOLDER / overlay)
    labels = find(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        find(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
        find(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        find(manifests, "Service")["spec"]["selector"],
        *(c["labelSelector"]["matchLabels"] for c in pod(manifests)["topologySpreadConstraints"]),
    ]
    if overlay != "base":
        selectors.append(find(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"])
        monitored = find(manifests, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
        assert monitored.items() <= find(manifests, "Service")["metadata"]["labels"].items()
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()


@every_overlay
def test_the_ports_are_those_of_the_service(overlay: str) -> None:
    """Every port is the one that the service listens on, on an address that others reach."""
    manifests = build(FOLDER / overlay)
    (port,) = container(manifests)["ports"]
    settings = read_settings(manifests)
    assert port["containerPort"] == settings.port
    assert settings.host == "0.0.0.0"  # noqa: S104
    assert find(manifests, "Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    if overlay != "base":
        ((allowed,),) = (rule["ports"] for rule in find(manifests, "NetworkPolicy")["spec"]["ingress"])
        assert allowed["port"] == port["name"]
        (endpoint,) = find(manifests, "ServiceMonitor")["spec"]["endpoints"]
        assert endpoint["port"] == find(manifests, "Service")["spec"]["ports"][0]["name"]
        assert endpoint["path"] in operations_labels(ENDPOINTS)
        assert endpoint.keys() <= {"port", "path", "interval", "scrapeTimeout"}


@every_overlay
def test_the_probes_ask_what_the_service_answers(overlay: str) -> None:
    """Start and readiness are /readyz, life is /livez, which a service answers that is busy or draining."""
    described = container(build(FOLDER / overlay))
    paths = {
        name: described[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}
    assert set(paths.values()) <= operations_labels(ENDPOINTS)


@every_overlay
def test_the_variables_are_settings(overlay: str) -> None:
    """Each HEADLIGHT_ variable is a setting with a value that it takes."""
    manifests = build(FOLDER / overlay)
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    assert variables(manifests).keys() <= known
    assert read_settings(manifests).threads == int(container(manifests)["resources"]["requests"]["cpu"])


def read_settings(manifests: list[Manifest]) -> Settings:
    values = variables(manifests)
    return Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in values.items()})  # type: ignore[arg-type]


@every_overlay
def test_a_pod_has_time_to_drain(overlay: str) -> None:
    """Nobody is cut off at the end: the grace is longer than the pause and the drain together."""
    manifests = build(FOLDER / overlay)
    pause = container(manifests)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause > 0
    drain = read_settings(manifests).drain_timeout_s
    assert pod(manifests)["terminationGracePeriodSeconds"] >= pause + drain + 5


@every_overlay
def test_a_pod_has_memory_for_the_largest_answers(overlay: str) -> None:
    """Four of them at a time are within the budget, and none is refused for lack of memory."""
    manifests = build(FOLDER / overlay)
    resources = container(manifests)["resources"]
    needed = 4 * ANSWER * read_settings(manifests).max_response_bytes + UNDER_LOAD_BYTES
    assert size(resources["limits"]["memory"]) >= needed
    assert resources["limits"]["memory"] == resources["requests"]["memory"]
    assert "cpu" not in resources["limits"]


@every_overlay
def test_disruptions_leave_a_replica(overlay: str) -> None:
    """A drained node or a new version never takes the last replica away."""
    manifests = build(FOLDER / overlay)
    deployment, autoscaler = find(manifests, "Deployment"), find(manifests, "HorizontalPodAutoscaler")
    assert (
        find(manifests, "PodDisruptionBudget")["spec"]["maxUnavailable"] < autoscaler["spec"]["minReplicas"]
    )
    assert (
        deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] < autoscaler["spec"]["minReplicas"]
    )


@every_overlay
def test_the_autoscaler_scales_the_deployment_by_metrics_that_exist(overlay: str) -> None:
    """It alone says how many replicas there are, by metrics that the adapter offers."""
    manifests = build(FOLDER / overlay)
    spec, deployment = find(manifests, "HorizontalPodAutoscaler")["spec"], find(manifests, "Deployment")
    target = spec["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == (deployment["apiVersion"], deployment["kind"])
    assert target["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    asked = [m["pods"]["metric"]["name"] for m in spec["metrics"] if m["type"] == "Pods"]
    offered = {rule["name"]["as"] for rule in read(FOLDER / "prometheus-adapter.yaml")["rules"]["custom"]}
    assert "headlight_queue_tokens" in asked
    assert set(asked) <= offered


def test_the_adapter_offers_metrics_of_ours() -> None:
    """Each series that the adapter looks for is exposed by the service, and keeps its name."""
    exposed = {metric.name for metric in Metrics("0", ENDPOINTS).defined}
    for rule in read(FOLDER / "prometheus-adapter.yaml")["rules"]["custom"]:
        series = rule["seriesQuery"].partition("{")[0]
        assert series in exposed
        assert series == rule["name"]["as"]


@every_overlay
def test_a_pod_may_do_nothing_but_serve(overlay: str) -> None:
    """It meets the restricted standard, writes to /tmp alone, and has no token and no others' variables."""
    manifests = build(FOLDER / overlay)
    spec, described = pod(manifests), container(manifests)
    assert spec["enableServiceLinks"] is spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["runAsGroup"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert described["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = [m["mountPath"] for m in described["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["/tmp"]  # noqa: S108


@pytest.mark.parametrize("overlay", OVERLAYS[1:])
def test_new_keys_arrive(overlay: str) -> None:
    """The file of keys lies in a Secret that is mounted whole: by subPath it would never change."""
    manifests = build(FOLDER / overlay)
    file = read_settings(manifests).api_keys_file
    assert file is not None
    (mount,) = (m for m in container(manifests)["volumeMounts"] if m["mountPath"] == str(file.parent))
    assert "subPath" not in mount
    (volume,) = (v for v in pod(manifests)["volumes"] if v["name"] == mount["name"])
    # The group of the pod may read it, as its user is not the owner.
    assert volume["secret"]["defaultMode"] & 0o040
    assert pod(manifests)["securityContext"]["fsGroup"] == 10001
