"""The answers that the schema of the API shows are those of the service.

`python -m tests.contract.test_recorded` records them anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import jsonschema_rs
import pytest

from service.endpoints import Endpoint
from service.protocols.endpoints import ENDPOINTS
from tests.references.fitted import write_fitted
from tests.support.serving import ROOT, Json, Service, serve

FOLDER = ROOT / "service" / "protocols"
MODEL = "all-MiniLM-L6-v2"
LABELS = ("/predict", "/tei/predict")
"""What needs a classifier: answered by the one of the examples in docs/api.md."""
OTHERS = {
    "POST /embed_sparse",
    "POST /tei/embed_sparse",
    "POST /tei/rerank",
    "GET /metrics",
    "GET /tei/health",
}
"""What needs a sparse encoder or a cross-encoder, which no package brings, and what is not JSON."""
BODIES: dict[str, Json] = {
    "/api/show": {"model": MODEL},
    "/api/pull": {"model": MODEL},
    "/v2/repository/index": {},
}
"""Bodies of routes for which no model runs."""
ERRORS: dict[str, tuple[str, Json]] = {
    "native": ("/encode", {"inputs": "a text", "dimensions": 500}),
    "openai": ("/v1/embeddings", {"input": "a text", "dimensions": 500}),
    "tei": ("/embed", {"inputs": "a text", "dimensions": 500}),
    "cohere": ("/v2/embed", {"texts": ["a text"], "output_dimension": 500}),
    "oip": ("/v2/models/bert/infer", {"inputs": []}),
    "ollama": ("/api/embed", {"model": "bert", "input": "a text"}),
}
"""For each protocol a request that it refuses."""
VARY = {
    *("id", "request_id", "created", "created_at", "modified_at", "expires_at", "digest", "version"),
    *("kernels", "longest_text_s", "total_duration", "load_duration", "server_version"),
}
"""Fields with another value each time, on each machine, or of each version."""
LONGEST, SHOWN = 16, 4
"""Of more numbers, the first few are recorded."""
NEAR = 1e-4


@pytest.fixture(scope="module")
def recorded() -> dict[str, Json]:
    """What is recorded of each protocol."""
    files = sorted(FOLDER.glob("*/recorded.json"))
    return {file.parent.name: json.loads(file.read_text(encoding="utf-8")) for file in files}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with serve(dtype="float32") as embedded, labelling(tmp_path_factory.mktemp("mood")) as labels:
        yield embedded, labels


def labelling(place: Path) -> Any:
    write_fitted(place / "mood", tokens=False)
    return serve(model=place / "mood", dtype="float32")


def operations() -> Iterator[tuple[str, str, Endpoint]]:
    """Each operation of the schema: its key, its method, its endpoint."""
    for endpoint in ENDPOINTS:
        for method in endpoint.methods if endpoint.summary else ():
            yield f"{method} {endpoint.documented_path}", method, endpoint


def ask(
    embedded: Service, labels: Service, method: str, endpoint: Endpoint
) -> tuple[str, str, httpx.Response]:
    """The name and the title of the request that is shown first, and its answer."""
    path = endpoint.documented_path
    name, example = next(iter(endpoint.examples.items()), ("answer", {"summary": endpoint.summary}))
    body = json.loads(json.dumps(example.get("value", BODIES.get(path))).replace('"NAME"', f'"{MODEL}"'))
    service = labels if path in LABELS else embedded
    url = path.replace("{model}", MODEL).replace("{version}", "1")
    return name, str(example["summary"]), service.http.request(method, url, json=body)


def cut(value: Any) -> Any:
    """Leave out most numbers of a vector."""
    if isinstance(value, dict):
        return {name: cut(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    floats = len(value) > LONGEST and all(isinstance(one, float) for one in value)
    return value[:SHOWN] if floats else [*map(cut, value)]


def differences(found: Any, expected: Any, place: str = "") -> Iterator[str]:
    """Name where two documents differ: in their fields, their types or their values."""
    name = place.rpartition(".")[2]
    if type(found) is not type(expected):
        yield f"{place}: {found!r} is not {expected!r}"
    elif isinstance(expected, dict):
        if list(found) != list(expected):
            yield f"{place}: {list(found)} are not {list(expected)}"
        for field in found.keys() & expected.keys():
            yield from differences(found[field], expected[field], f"{place}.{field}")
    elif isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{place}: {len(found)} are not {len(expected)}"
        for i, (one, other) in enumerate(zip(found, expected, strict=False)):
            yield from differences(one, other, f"{place}.{i}")
    elif (
        name not in VARY
        and found != expected
        and not (isinstance(found, float) and abs(found - expected) <= NEAR)
    ):
        yield f"{place}: {found!r} is not {expected!r}"


def test_every_answer_is_the_one_that_the_service_gives(
    served: tuple[Service, Service], recorded: dict[str, Json]
) -> None:
    """Each operation with JSON has one, equal to that of its first request up to the errors of float32."""
    answers = answers_of(recorded)
    assert answers.keys() == {key for key, _, _ in operations()} - OTHERS
    for key, method, endpoint in operations():
        if key in OTHERS:
            continue
        name, _, response = ask(*served, method, endpoint)
        assert response.status_code == 200, (key, response.text)
        whole = response.json()
        assert answers[key]["name"] == name
        assert answers[key]["cut"] == (cut(whole) != whole)
        assert [*differences(cut(whole), answers[key]["value"])] == [], key


def test_every_error_is_the_one_that_the_service_gives(
    served: tuple[Service, Service], recorded: dict[str, Json]
) -> None:
    """For each protocol one, in its own form."""
    assert recorded.keys() == ERRORS.keys() == {one.protocol for _, _, one in operations()}
    for error in (one["error"] for one in recorded.values()):
        response = served[0].http.post(error["path"], json=error["request"])
        assert response.status_code == error["status"] in (400, 404, 422)
        assert [*differences(response.json(), error["value"])] == []


def test_the_schema_shows_them(served: tuple[Service, Service], recorded: dict[str, Json]) -> None:
    """Under the name of the request, as its schema says, and the error wherever its status may occur."""
    schema = served[0].http.get("/openapi.json").json()
    protocols = {key: endpoint.protocol for key, _, endpoint in operations()}
    shown, refused = set(), set()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            key = f"{method.upper()} {path}"
            content = operation["responses"]["200"].get("content", {}).get("application/json", {})
            for name, example in content.get("examples", {}).items():
                answer = recorded[protocols[key]]["answers"][key]
                assert (name, example["value"]) == (answer["name"], answer["value"])
                assert ("first four numbers" in example.get("description", "")) == answer["cut"]
                part = {**content["schema"], "components": schema["components"]}
                assert jsonschema_rs.validator_for(part).is_valid(example["value"]), key
                shown.add(key)
            protocol = protocols[key]
            error = recorded[protocol]["error"]
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values() if status == str(error["status"]) else ():
                    reference = content["examples"]["error"]["$ref"]
                    example = schema["components"]["examples"][reference.rpartition("/")[2]]
                    assert example["value"] == error["value"]
                    assert error["path"] in example["summary"]
                    part = {**content["schema"], "components": schema["components"]}
                    assert jsonschema_rs.validator_for(part).is_valid(example["value"])
                    refused.add(protocol)
    assert shown == answers_of(recorded).keys()
    assert refused == ERRORS.keys()


def answers_of(recorded: dict[str, Json]) -> dict[str, Json]:
    """The answers of all protocols."""
    return {key: answer for one in recorded.values() for key, answer in one["answers"].items()}


def main() -> None:
    """Record the answers, one on each line."""
    with TemporaryDirectory() as place, serve(dtype="float32") as embedded, labelling(Path(place)) as labels:
        for protocol, (path, body) in ERRORS.items():
            answers = {}
            for key, method, endpoint in operations():
                if endpoint.protocol == protocol and key not in OTHERS:
                    name, summary, response = ask(embedded, labels, method, endpoint)
                    whole = response.raise_for_status().json()
                    short = cut(whole)
                    answers[key] = {"name": name, "summary": summary, "cut": short != whole, "value": short}
            response = embedded.http.post(path, json=body)
            status, value = response.status_code, response.json()
            write(protocol, answers, {"path": path, "request": body, "status": status, "value": value})


def write(protocol: str, answers: dict[str, Json], error: Json) -> None:
    """Write what is recorded of a protocol."""
    lines = ",\n".join(f"{dumps(key)}: {dumps(answer)}" for key, answer in answers.items())
    text = f'{{\n"answers": {{\n{lines}\n}},\n"error": {dumps(error)}\n}}\n'
    (FOLDER / protocol / "recorded.json").write_text(text, encoding="utf-8")


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
