"""406 and 415: the formats that a client accepts and sends."""

import pytest

from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    ROUTES,
    SAFETENSORS,
    Service,
    answered,
    assert_problem,
    post,
    request_bytes,
)


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/xml, text/*",
        "application/json;q=0",
        "*/*;q=0",
        "application/*;q=0, text/*",
        "nonsense",
    ],
)
@pytest.mark.parametrize("path", ROUTES)
def test_another_accept_is_a_406_with_the_list(service: Service, accept: str, path: str) -> None:
    """A format there is none of is refused, with those there are."""
    response = post(service, {"inputs": "a"}, path, Accept=accept)
    document = assert_problem(response, 406, "not-acceptable")
    assert document["allowed"] == [JSON, NPZ, SAFETENSORS, NDJSON]


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (NPZ, NPZ),
        (NDJSON.upper(), NDJSON),
        (f"{NPZ}, {JSON}", JSON),
        (f"{JSON};q=0.9, {SAFETENSORS}", SAFETENSORS),
        (f"{NDJSON};q=0.5, {NPZ};q=0.5", NPZ),
        (f"*/*, {JSON};q=0.1", NPZ),
        (f"{JSON};q=0, application/*;q=0.5, */*", NPZ),
        (f"application/*;q=0, {NDJSON};q=0.1, */*", NDJSON),
        (f"text/html, {SAFETENSORS};q=0.001", SAFETENSORS),
    ],
)
@pytest.mark.parametrize("path", ROUTES)
def test_the_format_that_is_liked_best_is_sent(service: Service, path: str, accept: str, chosen: str) -> None:
    """The largest q-value counts, of the range that names a format most exactly; then our order."""
    response = post(service, {"inputs": "a"}, path, Accept=accept)
    assert response.status_code == 200
    assert response.headers["content-type"] == chosen
    assert response.headers["vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "*/*",
        "application/*",
        "text/html, application/json;q=0.1",
        "text/html;q=0.9, */*;q=0.1",
        "application/json; charset=utf-8",
    ],
)
def test_an_accept_that_allows_json_gets_json(service: Service, accept: str) -> None:
    """q-values and wildcards are honoured."""
    answered(post(service, {"inputs": "a"}, Accept=accept))


@pytest.mark.parametrize("ranges", [40, 60, 300])
def test_an_accept_of_very_many_ranges_is_not_read(service: Service, ranges: int) -> None:
    """Browsers and libraries send a dozen; to read hundreds of them would delay others."""
    response = post(service, {"inputs": "a"}, Accept=", ".join(["text/html"] * ranges + ["*/*"]))
    if ranges == 40:
        answered(response)
        return
    document = assert_problem(response, 406, "not-acceptable", field="Accept")
    assert f"in {ranges + 1} parts and the limits are 1000 and 50" in document["detail"]


def test_several_accept_headers_are_one_list(service: Service) -> None:
    """A list may be spread over headers (RFC 9110 §5.3)."""
    body = b'{"inputs": "a"}'
    answer = service.raw(request_bytes(body=body, headers=["Accept: text/html", "Accept: application/json"]))
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonl",
        "json",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
    ],
)
@pytest.mark.parametrize("path", ROUTES)
def test_another_content_type_is_a_415(service: Service, content_type: str, path: str) -> None:
    """What is declared as something else is not read as JSON."""
    response = service.http.post(path, content=b'{"inputs": "a"}', headers={"Content-Type": content_type})
    document = assert_problem(response, 415, "unsupported-media-type", actual=content_type)
    assert document["allowed"] == ["application/json"]


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "Application/JSON",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json; charset=utf-8; profile=a",
        "application/json; profile=a",
    ],
)
def test_json_by_any_of_its_names_is_read(service: Service, content_type: str | None) -> None:
    """Case and parameters do not matter, and a missing Content-Type is taken as JSON."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    answered(service.http.post("/encode", content=b'{"inputs": "a"}', headers=headers))
