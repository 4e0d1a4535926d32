"""What operators ask a running service."""

import re
import tomllib
from base64 import b64encode
from hashlib import sha256

import pytest
import torch

from tests.support.backends import instructions
from tests.support.serving import ROOT, Service, answered, serve

ROUTES = ["/livez", "/readyz", "/health", "/metrics", "/info", "/openapi.json", "/docs"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_a_service_that_can_work_says_so(service: Service) -> None:
    """Alive, ready and healthy, as JSON."""
    assert answered(service.http.get("/livez")) == {"status": "alive"}
    assert answered(service.http.get("/readyz")) == {"status": "ready"}
    assert answered(service.http.get("/health")) == {"status": "ready"}


@pytest.mark.parametrize("path", ROUTES)
def test_head_is_get_without_the_body(service: Service, path: str) -> None:
    """Probes may use HEAD: the same status and headers, and no body."""
    plain = {"Accept-Encoding": "identity"}  # else the length is that of the compressed page
    get, head = service.http.get(path, headers=plain), service.http.head(path, headers=plain)
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # its length changes from one scrape to the next
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


def test_info_describes_what_runs(several: Service) -> None:
    """Version, limits, and for each model what a client needs to ask the right thing."""
    info = answered(several.http.get("/info"))
    assert info["version"] == VERSION
    first, second = info["models"]
    assert 0 < first.pop("longest_text_s") < first["request_timeout_s"]
    assert first == {
        "name": "mini",
        "family": "bert",
        "layers": 6,
        "heads": 12,
        "attention_layers": [*range(6)],
        "hidden_size": 384,
        "max_length": 256,
        "pooling": ["mean"],
        "normalize": True,
        "sentence_size": 384,
        "similarity": "cosine",
        "prompts": {},
        "default_prompt_name": None,
        "tasks": [],
        "default_task": None,
        "backend": "torch",
        "provider": None,
        "device": "cpu",
        "dtype": "float32",
        "kernels": instructions(torch.float32),
        "attention": True,
        "token_embeddings": True,
        "prediction": None,
        "max_batch_tokens": 256,
        "max_queue_tokens": 512,
        "request_timeout_s": 30.0,
    }
    assert (second["name"], second["layers"], second["heads"], second["hidden_size"]) == (
        "prompted",
        2,
        4,
        64,
    )
    assert (second["normalize"], second["max_length"]) == (False, 64)
    assert second["prompts"] == {"query": "the man: ", "passage": "hello world "}
    assert second["default_prompt_name"] == "query"
    assert info["limits"] == {
        "max_inputs": 256,
        "max_body_bytes": 2 * 2**20,
        "max_response_bytes": 64 * 2**20,
        "request_timeout_s": 30.0,
    }


def test_the_numbers_of_info_are_those_of_the_answers(service: Service) -> None:
    """What /info says about the model is what it does."""
    (model,) = answered(service.http.get("/info"))["models"]
    (item,) = service.attention("a text", layers="all", heads="all")["data"]
    assert (len(item["layers"]), len(item["heads"])) == (model["layers"], model["heads"])
    (item,) = service.encode("word " * 1000)["data"]
    assert len(item["tokens"]) == model["max_length"]
    assert len(item["embedding"]) == model["sentence_size"]


@pytest.mark.parametrize("path", ["/encode", "/attention"])
def test_server_timing_has_the_four_stages(service: Service, path: str) -> None:
    """Milliseconds of each stage, in order, that are no more than the whole request took."""
    body = {"inputs": ["some words " * 40] * 4} | (
        {"layers": [0], "heads": [0]} if path == "/attention" else {}
    )
    response = service.http.post(path, json=body)
    answered(response)
    header = response.headers["server-timing"]
    stages = re.fullmatch(
        r"tokenize;dur=([\d.]+), queue;dur=([\d.]+), compute;dur=([\d.]+), serialize;dur=([\d.]+)", header
    )
    assert stages, header
    tokenize, queue, compute, serialize = map(float, stages.groups())
    assert tokenize > 0
    assert compute > 0.5, "four texts of 82 tokens take a millisecond at least"
    assert serialize > 0
    assert tokenize + queue + compute + serialize <= 1000 * response.elapsed.total_seconds()


def test_the_page_loads_nothing_from_elsewhere(service: Service) -> None:
    """/docs and all it refers to comes from this service."""
    page = service.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.findall(r"https?:|//[a-z]", page.text)
    parts = [part for part in re.findall(r'(?:src|href)="([^"]+)"', page.text) if part != "data:,"]
    assert len(parts) == 2
    types = {".js": "text/javascript", ".css": "text/css"}
    for part in parts:
        response = service.http.get("/" + part)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(types[part[part.rindex(".") :]])
        assert len(response.content) > 10_000
        if part.endswith(".css"):
            urls = re.findall(r"url\(([^)]*)\)", response.text)
            assert all(url.strip("\"'").startswith("data:") for url in urls)
            assert "@import" not in response.text
    assert re.search(r"""url: ['"]openapi.json['"]""", page.text), "the schema is found beside the page"


def test_the_page_may_load_nothing_from_elsewhere(service: Service) -> None:
    """The page and its parts have a policy: no other origin, no evaluation, and of scripts only its own."""
    page = service.http.get("/docs")
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    for path in ("/docs", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"):
        headers = service.http.get(path).headers
        assert headers["content-security-policy"] == policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert service.http.get("/openapi.json").headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs/swagger-ui.css", "/explorer"])
def test_a_client_that_has_a_page_is_told_so(service: Service, path: str) -> None:
    """304 without a body, for HEAD too; and a page is the same for all who ask."""
    first = service.http.get(path)
    assert service.http.get(path).content == first.content
    for method in ("GET", "HEAD"):
        again = service.http.request(method, path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]


def test_readiness_comes_after_loading_and_liveness_before() -> None:
    """The process answers while it loads."""
    with serve(wait=False) as starting:
        starting.wait_until_listening()
        seen = {starting.http.get(path).status_code for path in ("/readyz", "/health")}
        assert seen == {503}
        assert starting.http.get("/livez").status_code == 200
        assert answered(starting.http.get("/info"))["models"] == []
        starting.wait_until_ready()
        assert starting.http.get("/health").status_code == 200
