"""The components of deploy/kubernetes that bring a model, and a gateway that balances requests."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from service.protocols.endpoints import ENDPOINTS
from service.settings import Settings
from tests.deploy.gateway_schemas import SCHEMAS
from tests.deploy.kustomize import Manifest, build, find
from tests.references.checkpoints import SUITED, write_bert
from tests.support.serving import ROOT, operations_labels

MANIFESTS = build(ROOT / "deploy" / "kubernetes" / "overlays" / "own-model")
POD = find(MANIFESTS, "Deployment")["spec"]["template"]["spec"]
(INIT,) = POD["initContainers"]
(SERVICE,) = POD["containers"]


def environment(container: Manifest) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def test_every_pod_reads_the_folder_that_the_first_one_writes() -> None:
    """It lies in a claim that several nodes may mount, and only what exports may write there."""
    claim = find(MANIFESTS, "PersistentVolumeClaim", "headlight-models")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (volume,) = (v for v in POD["volumes"] if v.get("persistentVolumeClaim"))
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    mounts = [
        next(m for m in container["volumeMounts"] if m["name"] == volume["name"])
        for container in (INIT, SERVICE)
    ]
    assert mounts[0]["mountPath"] == mounts[1]["mountPath"]
    assert [mount.get("readOnly", False) for mount in mounts] == [False, True]
    folder = environment(INIT)["FOLDER"]
    assert environment(SERVICE)["HEADLIGHT_MODEL"] == folder
    for path in (folder, environment(INIT)["HF_HOME"]):
        assert Path(path).parent == Path(mounts[0]["mountPath"])


def test_what_exports_has_pytorch_and_no_more_rights_than_the_service() -> None:
    """Its image is another one, its limits are its own, and its user, root and capabilities are the same."""
    assert INIT["image"].endswith("-torch")
    assert INIT["image"].rpartition(":")[0] == SERVICE["image"].rpartition(":")[0]
    assert INIT["securityContext"] == SERVICE["securityContext"]
    assert environment(INIT)["HF_HUB_OFFLINE"] == "0"
    policy = find(MANIFESTS, "NetworkPolicy", "headlight-model")["spec"]
    assert policy["policyTypes"] == ["Egress"]
    assert {rule["port"] for rule in policy["egress"][0]["ports"]} == {53, 443}


@pytest.mark.deploy
def test_pods_that_start_together_export_once(tmp_path: Path) -> None:
    """The command of the manifest, run twice at once and once more: one export, and a whole folder."""
    write_bert(tmp_path / "checkpoint", **SUITED)
    binaries = Path(sys.executable).parent
    variables = {
        "MODEL": str(tmp_path / "checkpoint"),
        "FOLDER": str(tmp_path / "exported"),
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
    }
    command = [*INIT["command"], *INIT["args"]]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    together = [start(), start()]
    told = [process.communicate(timeout=180)[1] for process in together]
    assert [process.returncode for process in together] == [0, 0], told
    assert sorted("Tracing" in err for err in told) == [False, True]
    assert (tmp_path / "exported" / "manifest.json").exists()
    again = start()
    assert again.communicate(timeout=60) == ("", "")
    assert again.returncode == 0


@pytest.mark.parametrize("kind", SCHEMAS)
def test_each_manifest_of_the_gateway_is_valid(kind: str) -> None:
    """Every field is one that the Gateway API or Envoy Gateway has, with a value of its type."""
    jsonschema_rs.validate(SCHEMAS[kind], find(MANIFESTS, kind))


@pytest.mark.parametrize(
    ("kind", "name"), [("Gateway", "listener"), ("HTTPRoute", "timeout"), ("BackendTrafficPolicy", "retries")]
)
def test_a_slip_is_found(kind: str, name: str) -> None:
    """A field that is misspelt does not pass the validation above."""
    manifest = copy.deepcopy(find(MANIFESTS, kind))
    manifest["spec"][name] = []
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMAS[kind], manifest)


def test_the_route_leads_from_the_gateway_to_the_service() -> None:
    """Names, ports and hosts fit, and keys cross no network in the open."""
    (listener,) = find(MANIFESTS, "Gateway")["spec"]["listeners"]
    assert (listener["protocol"], listener["tls"]["mode"]) == ("HTTPS", "Terminate")
    route = find(MANIFESTS, "HTTPRoute")["spec"]
    assert route["parentRefs"] == [{"name": "headlight", "sectionName": listener["name"]}]
    assert route["hostnames"] == [listener["hostname"]]
    (rule,) = route["rules"]
    (backend,) = rule["backendRefs"]
    (port,) = find(MANIFESTS, "Service", backend["name"])["spec"]["ports"]
    assert backend["port"] == port["port"]


def test_clients_reach_what_is_for_them_and_nothing_else() -> None:
    """Inference and its documents; not the metrics, which ask for no key."""
    (rule,) = find(MANIFESTS, "HTTPRoute")["spec"]["rules"]
    matches = [match["path"] for match in rule["matches"]]

    def reached(path: str) -> bool:
        return any(
            path == match["value"]
            or (match["type"] == "PathPrefix" and path.startswith(match["value"] + "/"))
            for match in matches
        )

    served = {endpoint.path for endpoint in ENDPOINTS}
    assert all(map(reached, (*(endpoint.path for endpoint in ENDPOINTS if endpoint.inference), "/info")))
    assert not any(map(reached, ("/metrics", "/livez", "/readyz", "/health", "/ping")))
    for match in matches:  # none leads nowhere
        below = match["type"] == "PathPrefix" and any(
            path.startswith(match["value"] + "/") for path in served
        )
        assert match["value"] in served or below


def test_a_second_try_has_its_time_and_goes_once() -> None:
    """A 429 or a reset is tried again, once; the service gives up before the gateway does."""
    (rule,) = find(MANIFESTS, "HTTPRoute")["spec"]["rules"]
    each, both = (seconds(rule["timeouts"][name]) for name in ("backendRequest", "request"))
    assert Settings().patience_s < each
    assert both >= 2 * each
    policy = find(MANIFESTS, "BackendTrafficPolicy")["spec"]
    assert policy["targetRefs"][0]["kind"] == "HTTPRoute"
    assert policy["loadBalancer"]["type"] == "LeastRequest"
    assert policy["retry"]["numRetries"] == 1
    assert {"reset", "connect-failure", "retriable-status-codes"} <= {*policy["retry"]["retryOn"]["triggers"]}
    assert policy["retry"]["retryOn"]["httpStatusCodes"] == [429, 503]
    assert policy["healthCheck"]["active"]["http"]["path"] in operations_labels(ENDPOINTS)


def test_the_overlay_says_where_both_images_are() -> None:
    """Neither keeps the name that it has for want of a registry."""
    for container in (INIT, SERVICE):
        assert re.fullmatch(r"registry\.example\.com/headlight:[\d.]+-\w+", container["image"])
