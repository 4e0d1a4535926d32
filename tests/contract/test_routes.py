"""404 and 405: routes that there are none of, and routes asked with another method."""

import pytest

from tests.support.serving import ROUTES, Service, assert_problem, request_bytes


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("POST", "/nothing"),
        ("POST", "/encode/"),
        ("POST", "//encode"),
        ("POST", "/Encode"),
        ("POST", "/attention/"),
        ("GET", "/metrics/"),
        ("GET", "/docs/"),
        ("GET", "/docs/nothing.js"),
        ("GET", "/docs/../encode/x"),
        ("DELETE", "/openapi.json/x"),
        ("PROPFIND", "/nothing"),
    ],
)
def test_an_unknown_route_is_a_404_without_redirects(service: Service, method: str, path: str) -> None:
    """Routes are exact: a slash too many is not found, and never redirected."""
    answer = service.raw(request_bytes(path, method=method))
    assert_problem(answer, 404, "not-found", instance=path)
    assert answer.headers["location"] is None


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *(
            (method, path, "POST")
            for path in ROUTES
            for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")
        ),
        *(
            ("POST", path, "GET")
            for path in ("/livez", "/readyz", "/health", "/metrics", "/info", "/openapi.json", "/docs")
        ),
        ("PROPFIND", "/encode", "POST"),
    ],
)
def test_another_method_is_a_405_that_names_the_right_one(
    service: Service, method: str, path: str, allowed: str
) -> None:
    """A known route with a wrong method says in Allow which it takes."""
    answer = service.raw(request_bytes(path, method=method))
    assert_problem(answer, 405, "method-not-allowed", instance=path)
    assert allowed in answer.headers["allow"].split(", ")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_address_in_the_log_leads_to_the_page(service: Service, method: str) -> None:
    """What the start prints can be opened; the redirect is relative, so that a proxy may have a prefix."""
    assert f"listens on {service.url}\n" in service.log
    response = service.http.request(method, "/")
    assert (response.status_code, response.headers["location"], response.content) == (307, "docs", b"")
    assert response.next_request is not None
    page = service.http.get(response.next_request.url)
    assert page.status_code == 200
    assert "swagger-ui" in page.text


def test_head_of_an_inference_route_is_a_405_without_a_body(service: Service) -> None:
    """HEAD is answered like GET, with nothing after the headers."""
    response = service.http.head("/encode")
    assert (response.status_code, response.headers["allow"], response.content) == (405, "POST", b"")
