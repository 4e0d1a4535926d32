"""`headlight bench` measures what the service counts."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.bench.__main__ import main
from export.bench.load import LoadError, measure
from export.bench.target import Target, reason
from tests.references.checkpoints import write_bert
from tests.support.serving import ROOT, Service, free_port, serve

COUNTED = 'headlight_requests_total{kind="inference",route="/encode",status="200"}'
KEY = "key-0123456789abcdef"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serve(api_keys=KEY) as started:
        yield started


def target(service: Service, key: str | None = KEY) -> Target:
    return Target(f"http://127.0.0.1:{service.port}", key=key)


@pytest.mark.parametrize("connections", [1, 8])
def test_it_counts_what_the_service_counts(service: Service, connections: int) -> None:
    """All answers of the measured second; the service has counted those before it, too, and the last ones."""
    asked = target(service)
    before = service.metrics()[COUNTED]
    found = measure(asked.address, [asked.request("a"), asked.request("another text")], connections, 1.0)
    counted = service.metrics()[COUNTED] - before
    assert found.refused == 0
    assert 0.5 * counted - connections <= found.texts_per_s <= counted
    assert 0 < found.p50_ms <= found.p99_ms
    # A connection waits for one answer at a time, so that latencies and texts/s are two sides of one time.
    assert found.p50_ms * found.texts_per_s < 3000 * connections


@pytest.mark.thorough
def test_a_table_and_bars_are_printed(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each length and number of connections; the longest bar is that of the most texts."""
    url = f"http://127.0.0.1:{service.port}"
    assert main([url, "--key", KEY, "--seconds", "0.3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"all-MiniLM-L6-v2: float32 on cpu, at {url}\n")
    lines = re.findall(r"^ *(\d+) +(\d+) +(\d+) +([\d.]+) +([\d.]+) +0  (█*)$", out, re.MULTILINE)
    assert [(words, connections) for words, connections, *_ in lines] == [
        (words, connections) for words in ("8", "32", "128") for connections in ("1", "8", "32")
    ]
    bars = {int(texts): len(bar) for _, _, texts, _, _, bar in lines}
    assert bars[max(bars)] == max(bars.values()) == 30


def test_what_is_refused_is_not_measured(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its key, with another model, and where nothing listens."""
    asked = target(service, key=None)
    with pytest.raises(LoadError, match=r"the service encoded no text: HTTP/1.1 401"):
        measure(asked.address, [asked.request("a")], 1, 0.2)
    assert main([asked.url, "--key", KEY, "--model", "another"]) == 1
    assert f"bench: {asked.url} does not serve another.\n" in capsys.readouterr().err
    for address in (f"http://127.0.0.1:{free_port()}", "http://127.0.0.1:port"):
        assert main([address]) == 1
        assert f"bench: {address} does not describe its models" in capsys.readouterr().err
    with pytest.raises(ConnectionRefusedError):
        measure(("127.0.0.1", free_port()), [asked.request("a")], 1, 0.2)


@pytest.mark.parametrize("flag", ["--model", "--key"])
def test_flags_of_a_url_without_one_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--model FOLDER` would measure the embedded model."""
    with pytest.raises(SystemExit, match="2"):
        main([flag, "x"])
    assert "--model and --key are only for a URL" in capsys.readouterr().err


@pytest.mark.thorough
def test_it_starts_a_service_and_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of the environment; a model that cannot be served is told in its own words."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HEADLIGHT_DTYPE", "float32")
    monkeypatch.setenv("HEADLIGHT_API_KEYS", KEY)
    monkeypatch.setenv("HEADLIGHT_PROCESSES", "1")
    assert main(["--seconds", "0.1"]) == 0
    out = capsys.readouterr().out
    (port,) = re.findall(r"float32 on cpu, at http://127\.0\.0\.1:(\d+)$", out, re.MULTILINE)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port))).close()
    assert main(["/no/such/folder"]) == 1
    assert re.search(r"bench: the service did not start: /no/such/folder is not ", capsys.readouterr().err)


def test_the_reason_is_found_in_the_log() -> None:
    """It is the sentence that the service ends with, also if a thread has written a line after it."""
    assert reason("09:22:25 INFO    loading\nheadlight: no.\n09:22:26 INFO    loading\n") == "no."
    assert reason("Killed\n") == "Killed"
    assert reason("") == "it did not become ready"


def test_a_model_that_reads_fewer_tokens_than_any_text_has_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of an empty table."""
    write_bert(tmp_path / "tiny", max_position_embeddings=8)
    capsys.readouterr()  # the bars of what wrote it
    with serve(model=tmp_path / "tiny") as tiny:
        assert main([tiny.url]) == 1
    assert capsys.readouterr().err == "bench: tiny reads 8 tokens, fewer than any text here has.\n"
