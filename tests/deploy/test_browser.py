"""The schema as others use it: the page in a real browser, and a client that is generated from it."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.deploy.tools import CACHE, run, tool
from tests.support.serving import ROUTES, Json, Service, serve

pytestmark = pytest.mark.deploy

PROGRAMS = CACHE / "python" / "bin"


@pytest.fixture(scope="module")
def served() -> Iterator[Service]:
    with serve() as started:
        yield started


def test_execute_is_answered_in_a_browser(served: Service) -> None:
    """Each route, as its form is prefilled, is a 200 on the page."""
    script = Path(__file__).parent / "press_execute.py"
    seen: Json = json.loads(
        run(PROGRAMS / "python", script, tool("chromium"), f"{served.url}/docs", *ROUTES, timeout=150)
    )
    assert seen["errors"] == []
    for path, answer in seen["answers"].items():
        assert (answer["status"], answer["shown"]) == (200, "200"), answer
        assert answer["body"]["data"], path
    hosts = {urlsplit(url).netloc for url in seen["requested"] if not url.startswith("data:")}
    assert hosts == {urlsplit(served.url).netloc}, "the page works without the internet"


@pytest.fixture(scope="module")
def generated(served: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A package that openapi-python-client writes, without a warning, from the schema that is served."""
    place = tmp_path_factory.mktemp("generated")
    schema = place / "openapi.json"
    schema.write_bytes(served.http.get("/openapi.json").content)
    # Its last step is to format the package with ruff, which lies beside it.
    environment = ["env", f"PATH={PROGRAMS}:/usr/bin:/bin"]
    generate = [tool("openapi-python-client"), "generate", "--meta", "none", "--fail-on-warning"]
    run(*environment, *generate, "--path", schema, "--output-path", place / "headlight_api")
    sys.path.insert(0, str(place))
    yield importlib.import_module
    sys.path.remove(str(place))


def test_a_generated_client_calls_both_routes(served: Service, generated: Any) -> None:
    """With nothing but the inputs it sends every default there is, and reads the answers."""
    models = generated("headlight_api.models")
    encode = generated("headlight_api.api.native.encode")
    attention = generated("headlight_api.api.native.attention")
    with generated("headlight_api").Client(base_url=served.url) as client:
        vectors = encode.sync(client=client, body=models.EncodeRequest(inputs=["a", "b"]))
        maps = attention.sync(client=client, body=models.AttentionRequest(inputs="a"))
    assert isinstance(vectors, models.EncodeResponse)
    assert len(vectors.data) == 2
    assert len(vectors.data[0].embedding) == 384
    assert isinstance(maps, models.AttentionResponse)
    (item,) = maps.data
    assert item.tokens == ["[CLS]", "a", "[SEP]"]
    assert (len(item.attention), len(item.attention[0])) == (6, 12)


def test_a_generated_client_reads_refusals(served: Service, generated: Any) -> None:
    """A problem document is an object of its own."""
    models = generated("headlight_api.models")
    encode = generated("headlight_api.api.native.encode")
    with generated("headlight_api").Client(base_url=served.url) as client:
        problem = encode.sync(client=client, body=models.EncodeRequest(inputs=[]))
    assert isinstance(problem, models.ProblemDocument)
    assert (problem.status, problem.to_dict()["field"]) == (422, "inputs")
