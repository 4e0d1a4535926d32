"""As much of kustomize as deploy/kubernetes uses: bases, components, patches and images."""

from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

# By which member Kubernetes tells the items of a list apart; other lists are replaced whole.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}


def read(path: Path) -> Any:
    """The one document of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def build(folder: Path, onto: list[Manifest] | None = None) -> list[Manifest]:
    """The manifests of a kustomization; a component is laid onto those that are there."""
    kustomization = read(folder / "kustomization.yaml")
    manifests = [] if onto is None else onto
    for name in kustomization.get("resources", []):
        path = folder / name
        manifests += build(path) if path.is_dir() else [read(path)]
    for name in kustomization.get("components", []):
        build(folder / name, manifests)
    for entry in kustomization.get("patches", []):
        patch = read(folder / entry["path"])
        target = entry["target"] if "target" in entry else {"kind": patch["kind"], **patch["metadata"]}
        manifest = find(manifests, target["kind"], target["name"])
        if isinstance(patch, list):
            _operate(manifest, patch)
        else:
            _merge(manifest, patch)
    for image in kustomization.get("images", []):
        pod = find(manifests, "Deployment")["spec"]["template"]["spec"]
        for container in pod["containers"] + pod.get("initContainers", []):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    return manifests


def find(manifests: list[Manifest], kind: str, name: str = "headlight") -> Manifest:
    """The one manifest of this kind and name."""
    (found,) = (m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name)
    return found


def normal(value: Any, name: str = "") -> Any:
    """Lists whose items have names as what they are, so that their order does not count."""
    if isinstance(value, dict):
        return {key: normal(member, key) for key, member in value.items()}
    if isinstance(value, list):
        items = [normal(item) for item in value]
        return {item[_KEYS[name]]: item for item in items} if name in _KEYS else items
    return value


def _merge(manifest: Manifest, patch: Manifest) -> None:
    """Lay a strategic merge patch over a manifest."""
    for name, value in patch.items():
        if isinstance(value, dict) and isinstance(manifest.get(name), dict):
            _merge(manifest[name], value)
        elif name in _KEYS and name in manifest:
            key = _KEYS[name]
            there = {item[key]: item for item in manifest[name]}
            for item in value:
                if item[key] in there:
                    _merge(there[item[key]], item)
                else:
                    manifest[name].append(item)
        else:
            manifest[name] = value


def _operate(manifest: Manifest, operations: list[Manifest]) -> None:
    """Carry out a JSON patch of tests and replacements (RFC 6902)."""
    for operation in operations:
        *way, last = [int(p) if p.isdecimal() else p for p in operation["path"].split("/")[1:]]
        place: Any = manifest
        for step in way:
            place = place[step]
        if operation["op"] == "test":
            assert place[last] == operation["value"], operation
        else:
            assert operation["op"] == "replace"
            assert last in range(len(place)) if isinstance(place, list) else last in place
            place[last] = operation["value"]
