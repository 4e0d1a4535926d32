"""The schema of the API says what the API does."""

from typing import Any

import jsonschema_rs
import openapi_spec_validator
import pytest

from service.endpoints import Endpoint
from service.protocols.endpoints import ENDPOINTS
from service.protocols.native import routes as native
from service.protocols.native.examples import EXAMPLES
from tests.contract.test_invalid_requests import ATTENTION, BOTH, ENCODE
from tests.service.test_problems import TABLE
from tests.support.serving import JSON, NDJSON, NPZ, SAFETENSORS, Json, Service

ROUTES = ["/encode", "/attention"]
NATIVE = [endpoint.path for endpoint in ENDPOINTS if endpoint.inference and endpoint.protocol == "native"]
OTHERS = [
    endpoint
    for endpoint in ENDPOINTS
    if endpoint.inference and endpoint.summary and endpoint.protocol != "native"
]


@pytest.fixture(scope="module")
def schema(service: Service) -> Json:
    response = service.http.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    document: Json = response.json()
    return document


def validator(schema: Json, part: Json) -> Any:
    """A JSON Schema validator of a part of the document."""
    return jsonschema_rs.validator_for({**part, "components": schema["components"]})


def body_schema(schema: Json, path: str) -> Any:
    content = schema["paths"][path]["post"]["requestBody"]["content"]
    assert list(content) == ["application/json"]
    return validator(schema, content["application/json"]["schema"])


def answer_schema(schema: Json, path: str, status: int, method: str = "post") -> tuple[str, Any]:
    contents = schema["paths"][path][method]["responses"][str(status)]["content"]
    kind, content = next(iter(contents.items()))
    return kind, validator(schema, content["schema"])


def test_it_is_a_schema_of_openapi_3_1(schema: Json) -> None:
    """Version, title, every route, and every reference leads somewhere."""
    assert schema["openapi"].startswith("3.1")
    assert schema["info"]["title"] == "headlight"
    operations = {"/livez", "/readyz", "/health", "/info", "/metrics"}
    assert set(schema["paths"]) == operations | {e.documented_path for e in ENDPOINTS if e.summary}
    unlisted = {e.path: e.label for e in ENDPOINTS if e.inference and not e.summary}
    assert set(unlisted.values()) == {"/tei", "/v1/embeddings", "/v1/contextualizedembeddings"}, (
        "which are listed at these addresses"
    )

    def references(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"]
            for inner in part.values():
                yield from references(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from references(inner)

    components = {
        f"#/components/{kind}/{name}" for kind in schema["components"] for name in schema["components"][kind]
    }
    assert set(references(schema)) == components


def test_routes_are_grouped_by_protocol(schema: Json) -> None:
    """Native ones first, the operational ones last, each in one group."""
    names = [tag["name"] for tag in schema["tags"]]
    assert (names[0], names[-1], len(names)) == ("native", "operations", 7)
    found = {path: one["tags"] for path, methods in schema["paths"].items() for one in methods.values()}
    assert [path for path, tags in found.items() if tags == ["native"]] == [
        one.path for one in native.ENDPOINTS
    ]
    assert found["/livez"] == ["operations"]
    assert found["/v1/models"] == found["/v1/embeddings"] != found["/v2/rerank"]
    assert {tag for tags in found.values() for tag in tags} == set(names)


def test_it_is_valid_to_the_letter(schema: Json) -> None:
    """By the specification's own schema, defaults and examples too: generators of clients insist on it."""
    openapi_spec_validator.validate(schema)


def test_operations_have_short_names(schema: Json) -> None:
    """Generated clients call their functions by them."""
    operations = {path: next(iter(methods.values())) for path, methods in schema["paths"].items()}
    assert {path: operation["operationId"] for path, operation in operations.items()} == {
        path: path.removeprefix("/").replace("/{", "_by_").replace("}", "").replace("/", "_")
        for path in operations
    }


# Those of /predict need a classifier, with which tests/contract/test_predict.py runs them.
RUN = [(path, name) for path in EXAMPLES if path != "/predict" for name in EXAMPLES[path]]


@pytest.mark.parametrize(("path", "name"), RUN)
def test_every_example_runs(schema: Json, service: Service, path: str, name: str) -> None:
    """Each whole request that the schema shows is answered as the schema says."""
    content = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    example = content["examples"][name]
    assert example["summary"]
    assert body_schema(schema, path).is_valid(example["value"])
    response = service.http.post(path, json=example["value"], params={"dtype": "float32"})
    assert response.status_code == 200, response.text
    _, answer = answer_schema(schema, path, 200)
    assert answer.is_valid(response.json())


@pytest.mark.parametrize("path", NATIVE)
def test_every_error_of_the_table_is_documented(schema: Json, path: str) -> None:
    """Each status with its kinds, as problem documents."""
    responses = schema["paths"][path]["post"]["responses"]
    expected = {200, *TABLE} - {405}
    assert {int(status) for status in responses} == expected
    for status, kinds in TABLE.items():
        if status == 405:
            continue
        assert list(responses[str(status)]["content"]) == ["application/problem+json"]
        for kind in kinds - {"not-found"}:
            assert f"`{kind}`" in responses[str(status)]["description"]
    for hurried in ("429", "503"):
        assert "Retry-After" in responses[hurried]["headers"]


@pytest.mark.parametrize("endpoint", OTHERS, ids=lambda endpoint: endpoint.path)
def test_other_protocols_document_their_own_errors(schema: Json, endpoint: Endpoint) -> None:
    """Each status of theirs, with their document; and each field, so that no other page is needed."""
    operation = schema["paths"][endpoint.documented_path]["post"]
    responses = {int(status): one for status, one in operation["responses"].items()}
    kinds = {kind for listed in TABLE.values() for kind in listed} - {"not-found", "method-not-allowed"}
    assert set(responses) == {200, *(int(endpoint.error_status(kind)) for kind in kinds), 500}
    for status in set(responses) - {200}:
        (content,) = responses[status]["content"].items()
        reference = f"#/components/schemas/{endpoint.error_document.__name__}"
        assert content[0] == JSON
        assert content[1]["schema"] == {"$ref": reference}
    name = operation["requestBody"]["content"][JSON]["schema"]["$ref"].rpartition("/")[2]
    fields = schema["components"]["schemas"][name]["properties"]
    assert all(field["description"] for field in fields.values())


@pytest.mark.parametrize("endpoint", OTHERS, ids=lambda endpoint: endpoint.path)
def test_other_protocols_show_a_valid_request(schema: Json, endpoint: Endpoint) -> None:
    """The example of errors, which the page offers to be sent."""
    content = schema["paths"][endpoint.documented_path]["post"]["requestBody"]["content"][JSON]
    (example,) = content["examples"].values()
    assert example["summary"] == endpoint.summary
    assert endpoint.request is not None
    validator(schema, content["schema"]).validate(example["value"])
    endpoint.request.model_validate(example["value"])


FEWER_FORMATS = {
    "/predict": [JSON, NDJSON],
    "/rerank": [JSON],
    "/similarity": [JSON, NPZ, SAFETENSORS],
    "/tokenize": [JSON, NDJSON],
    "/decode": [JSON],
}


@pytest.mark.parametrize("endpoint", OTHERS, ids=lambda endpoint: endpoint.path)
def test_other_protocols_answer_in_json(schema: Json, endpoint: Endpoint) -> None:
    """And in bytes where the protocol has them: never in the formats of the native routes."""
    operation = schema["paths"][endpoint.documented_path]["post"]
    octets = ["application/octet-stream"] if endpoint.octets else []
    assert list(operation["responses"]["200"]["content"]) == [JSON, *octets]
    assert "dtype" not in [parameter["name"] for parameter in operation.get("parameters", ())]


@pytest.mark.parametrize("path", NATIVE)
def test_every_format_and_the_type_of_arrays_are_documented(schema: Json, path: str) -> None:
    """The 200 has all content types, JSON first; where there are arrays, the query parameter its values."""
    operation = schema["paths"][path]["post"]
    formats = FEWER_FORMATS.get(path, [JSON, NPZ, SAFETENSORS, NDJSON])
    assert list(operation["responses"]["200"]["content"]) == formats
    if NPZ not in formats:
        assert "parameters" not in operation
        return
    (dtype,) = operation["parameters"]
    assert (dtype["name"], dtype["in"], dtype["required"]) == ("dtype", "query", False)
    assert dtype["schema"]["enum"] == ["float32", "float16", "uint8"]


@pytest.mark.parametrize("path", NATIVE)
def test_every_field_is_described(schema: Json, path: str) -> None:
    """A reader of the schema needs no other document."""
    name = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    body = schema["components"]["schemas"][name.rpartition("/")[2]]
    required = {"/rerank": ["query", "texts"], "/similarity": ["texts"], "/decode": ["token_ids"]}
    assert body["required"] == required.get(path, ["inputs"])
    assert body["additionalProperties"] is False
    assert all(field["description"] for field in body["properties"].values())


GOOD: list[tuple[str, Json]] = [
    ("/encode", {"inputs": "a"}),
    ("/encode", {"inputs": ["a", "b"], "outputs": ["tokens"], "layers": [0, -1.0]}),
    ("/encode", {"inputs": [["a", "b"]], "dimensions": 8.0, "normalize": False, "pooling": "cls"}),
    ("/encode", {"inputs": "a. B", "chunks": "sentences", "precision": "binary"}),
    ("/encode", {"inputs": ["a", "b"], "chunks": {"tokens": 2.0, "overlap": 1}, "outputs": []}),
    ("/encode", {"inputs": "a", "chunks": [[0, 1]], "precision": "uint8"}),
    ("/encode", {"inputs": "a", "columns": []}),
    ("/attention", {"inputs": "a"}),
    ("/attention", {"inputs": "a", "columns": ["special", "tokens"]}),
    ("/attention", {"inputs": ["a"], "layers": "all", "heads": [0, -1], "aggregate": "mean"}),
    ("/attention", {"inputs": [["a", ""]], "queries": [0], "keys": "all", "decimals": 9}),
    ("/similarity", {"texts": ["a", ""], "function": "dot"}),
    ("/similarity", {"texts": ["a"], "source": ""}),
    ("/tokenize", {"inputs": [["a", "b"]], "special_tokens": "drop"}),
    ("/decode", {"token_ids": [[101.0], []], "skip_special_tokens": False}),
    ("/decode", {"token_ids": [101]}),
]


@pytest.mark.parametrize(("path", "body"), GOOD)
def test_what_is_served_is_valid_and_so_is_the_answer(
    service: Service, schema: Json, path: str, body: Json
) -> None:
    """Requests of the contract fit the schema of requests, their answers that of answers."""
    body_schema(schema, path).validate(body)
    response = service.http.post(path, json=body)
    kind, answers = answer_schema(schema, path, 200)
    assert response.headers["content-type"] == kind
    answers.validate(response.json())


# Details of rules that a schema cannot say: between fields, and about the model that is served.
_BEYOND = (
    "no effect",
    "cannot be combined",
    "choose",
    "not one of the model's",
    "no prompts",
    "at most 64 bits",
)


def test_what_has_a_wrong_type_is_not_valid(service: Service, schema: Json) -> None:
    """The schema refuses what the service refuses, wherever one field alone is wrong."""
    checked = 0
    cases = [(path, {"inputs": "a"} | body) for path in ROUTES for body, _ in BOTH if "inputs" in body]
    cases += [("/encode", {"inputs": "a"} | options) for options, _ in ENCODE]
    cases += [("/attention", {"inputs": "a"} | options) for options, _ in ATTENTION]
    for path, body in cases:
        accepted = body_schema(schema, path).is_valid(body)
        response = service.http.post(path, json=body)
        assert response.status_code == 422
        kind, problems = answer_schema(schema, path, 422)
        assert response.headers["content-type"] == kind
        problems.validate(response.json())
        detail = response.json()["detail"]
        beyond = any(word in detail for word in _BEYOND)
        assert accepted == beyond, (path, body, detail)
        checked += not accepted
    assert checked > 60


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/info"])
def test_operations_answer_as_documented(service: Service, schema: Json, path: str) -> None:
    """Their answers fit as well."""
    response = service.http.get(path)
    kind, answers = answer_schema(schema, path, 200, "get")
    assert response.headers["content-type"] == kind
    answers.validate(response.json())


def test_examples_are_requests(service: Service, schema: Json) -> None:
    """What the schema shows as an example is served."""
    for name in ("EncodeRequest", "AttentionRequest"):
        examples = schema["components"]["schemas"][name]["properties"]["inputs"]["examples"]
        assert examples
        for example in examples:
            service.encode(example)
