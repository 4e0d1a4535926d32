"""The explorer in notebooks and as a file, without a browser: what Python sends and what it writes."""

import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headlight_client import Explorer, Headlight
from headlight_client.notebook import page
from headlight_client.notebook.widget import ExplorerWidget
from service.explorer.page import FOLDER
from tests.support.serving import ROOT, Service
from tests.support.stand_in import refused, stand_in

TEXT = "The cat sat. </script><b>"
FILES = ("explorer.js", "explorer.css")


@pytest.fixture
def client(service: Service) -> Iterator[Headlight]:
    """A client of the service, with a key that it does not need."""
    with Headlight(service.url, api_key="secret-key") as made:
        yield made


def held(document: str) -> Any:
    """The maps in a page."""
    found = re.search('id="headlight-data">(.*?)</script>', document, flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def numbers(tensor: Any) -> Any:
    """A packed tensor as an array."""
    return np.frombuffer(base64.b64decode(tensor["float16"]), "<f2").reshape(tensor["shape"])


def test_a_page_holds_the_maps_that_the_service_returns(client: Headlight) -> None:
    """Those of the layers that were asked for, in half precision, and the statistics of all heads."""
    data = held(Explorer(client, TEXT, weights="value_norm", special="drop").html(layers=[1, 4]))
    fields: Any = {"weights": "value_norm", "special_tokens": "drop"}
    (item,) = client.attention(TEXT, **fields, layers=[1, 4], dtype="float16")
    assert [layer["layers"] for layer in data["layers"]] == [[1], [4]]
    maps = np.concatenate([numbers(layer["attention"]) for layer in data["layers"]])
    assert item.attention is not None
    assert np.array_equal(maps, item.attention)
    (full,) = client.attention(TEXT, **fields, summary=True)
    assert full.summary is not None
    assert np.allclose(data["overview"]["summary"]["entropy"]["values"], full.summary["entropy"].ravel())
    assert data["fields"] == {"model": data["info"]["models"][0]["name"], **fields}
    assert data["state"]["text"] == TEXT


def test_a_text_cannot_end_what_it_stands_in(client: Headlight) -> None:
    """The page has two scripts, whatever the texts are, and no network."""
    document = Explorer(client, TEXT, "<!-- </STYLE>").html(layers=[0])
    assert document.count("</script>") == 2
    assert document.partition("<body>")[0].count("</style>") == 1
    assert "default-src 'none'" in document
    assert "secret-key" not in document


def test_pages_above_25_megabytes_are_refused(client: Headlight, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sentence that says what to do; a notebook shows one layer in place of all, if that fits."""
    explorer = Explorer(client, TEXT * 4, heads=[(2, 0)])
    one = len(explorer.html(layers=[2]).encode())
    monkeypatch.setattr("headlight_client.notebook.held.LARGEST_FILE", 1.2 * one)
    monkeypatch.setattr(page, "LARGEST_FILE", 1.2 * one)
    with pytest.raises(ValueError, match="more than 25 MB: choose fewer layers, or a shorter text"):
        explorer.html()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    frame = explorer._repr_html_()
    assert frame is not None
    assert [layer["layers"] for layer in held(html.unescape(frame))["layers"]] == [[2]]
    monkeypatch.setattr(page, "LARGEST_FILE", 1)
    assert str(explorer._repr_html_()).startswith("<p>The file would have")


def test_one_text_or_a_pair(client: Headlight) -> None:
    """Other numbers of texts are refused."""
    data = held(Explorer(client, "A cat", "a dog").html(layers=[0]))
    assert sorted(set(data["overview"]["segment_ids"])) == [0, 1]
    for texts in ((), ("a", "b", "c")):
        with pytest.raises(ValueError, match=f"has {len(texts)} texts"):
            Explorer(client, *texts)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[bytes]]]:
    """What the widget sends to its page."""
    messages: list[tuple[Any, list[bytes]]] = []
    monkeypatch.setattr(ExplorerWidget, "send", lambda _, *message: messages.append(message))
    return messages


def ask(widget: ExplorerWidget, path: str, body: str | None = None, accept: str = "application/json") -> None:
    """Let the page ask."""
    request = {"id": 7, "path": path, "accept": accept, "body": body}
    widget._handle_custom_msg(request, [])


def test_maps_come_as_buffers(client: Headlight, sent: list[tuple[Any, list[bytes]]]) -> None:
    """A request of the page is the service's own, and so is the response, in the format asked for."""
    widget = Explorer(client, TEXT, view="heads").widget
    body = json.dumps({"inputs": TEXT, "layers": [2]})
    ask(widget, "/attention?dtype=float16", body, "application/x-safetensors")
    ((answer, (content,)),) = sent
    assert (answer["id"], answer["status"]) == (7, 200)
    assert answer["headers"]["content-type"] == "application/x-safetensors"
    assert b"F16" in content[:4000]


def test_similarities_come_through_the_kernel(client: Headlight, sent: list[tuple[Any, list[bytes]]]) -> None:
    """Of the texts, as the table of heads asks for them."""
    ask(Explorer(client, TEXT).widget, "/similarity", json.dumps({"texts": [TEXT, "a dog"]}))
    ((answer, (content,)),) = sent
    assert answer["status"] == 200
    expected = client.similarity([TEXT, "a dog"]).similarities
    assert json.loads(content)["similarities"] == pytest.approx(expected, abs=1e-6)


def test_refusals_reach_the_page(client: Headlight, sent: list[tuple[Any, list[bytes]]]) -> None:
    """Those of the service as they are; and routes that the explorer does not ask are not asked."""
    widget = Explorer(client, TEXT).widget
    ask(widget, "/attention", '{"inputs": []}')
    ask(widget, "/metrics")
    (refused, (content,)), (unknown, nothing) = sent
    assert refused["status"] == 422
    assert json.loads(content)["status"] == 422
    assert (unknown["error"], nothing) == ("The explorer does not use the route /metrics.", [])


def test_the_page_reads_when_to_come_back(sent: list[tuple[Any, list[bytes]]]) -> None:
    """A refusal of a busy service reaches the page with both forms of its time."""
    with (
        stand_in(refused(429, retry_after_ms="250", Retry_After="1")) as server,
        Headlight(server.url) as client,
    ):
        ask(Explorer(client, TEXT).widget, "/attention", json.dumps({"inputs": TEXT}))
    ((answer, _),) = sent
    assert answer["status"] == 429
    assert (answer["headers"]["retry-after-ms"], answer["headers"]["retry-after"]) == ("250", "1")


def test_a_service_that_is_gone_is_an_error_of_the_page(sent: list[tuple[Any, list[bytes]]]) -> None:
    """The kernel goes on."""
    with Headlight("http://127.0.0.1:9", retries=0) as gone:
        ask(Explorer(gone, TEXT).widget, "/info")
    ((answer, _),) = sent
    assert "error" in answer


def test_notebooks_show_a_widget_or_a_page(client: Headlight, monkeypatch: pytest.MonkeyPatch) -> None:
    """The widget with anywidget, beside it what it embeds; without it a frame that holds the page."""
    shown, _ = Explorer(client, TEXT, embed=False)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "text/html" not in shown
    explorer = Explorer(client, TEXT)
    shown, _ = explorer._repr_mimebundle_()
    assert 'sandbox="allow-scripts' in shown["text/html"]
    assert explorer._repr_html_() is None
    monkeypatch.setitem(sys.modules, "anywidget", None)
    shown = Explorer(client, TEXT, height=300)._repr_mimebundle_()
    assert '<iframe srcdoc="' in shown["text/html"]
    assert 'height="300"' in shown["text/html"]


@pytest.mark.thorough
def test_the_wheel_has_the_explorer_that_the_service_serves(tmp_path: Path) -> None:
    """Byte for byte: there is one copy in the repository, which building the wheel takes."""
    for part in ("client/python", "service/explorer/static"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    source = tmp_path / "client" / "python"
    subprocess.run(
        [*command, "--wheel-dir", tmp_path, source],
        check=True,
        timeout=300,
        env=os.environ,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        for name in FILES:
            assert made.read(f"headlight_client/notebook/static/{name}") == (FOLDER / name).read_bytes()
