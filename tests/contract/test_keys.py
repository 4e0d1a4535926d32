"""Who may ask: keys from the settings and from a file, over HTTP."""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from service.protocols.endpoints import ENDPOINTS
from tests.service.clients.test_keys import FIRST, SECOND, THIRD
from tests.support.serving import ROUTES, Json, Service, assert_problem, read_answer, run_command, serve

pytestmark = pytest.mark.thorough

BODY = {"inputs": "a"}


def test_keys_are_never_shown_by_a_start_that_fails(tmp_path: Path) -> None:
    """Exit code 2 and one sentence that names the setting, or the file and the line."""
    code, out, err = run_command(api_keys="good-key,two words")
    assert (code, out) == (2, "")
    assert "HEADLIGHT_API_KEYS" in err
    assert "two words" not in err
    assert "good-key" not in err
    code, _, err = run_command(api_keys="")
    assert code == 2
    assert "HEADLIGHT_API_KEYS" in err
    code, _, err = run_command(api_keys_file="")
    assert code == 2
    assert "HEADLIGHT_API_KEYS_FILE" in err
    code, _, err = run_command(api_keys_file=tmp_path / "none")
    assert code == 2
    assert err.splitlines()[-1].startswith(f"headlight: {tmp_path / 'none'}")


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secret") / "keys"
    file.write_text(FIRST, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def guarded(key_file: Path) -> Iterator[Service]:
    """A service with a file of keys."""
    with serve(api_keys_file=key_file, log_level="debug", log_format="json") as started:
        yield started


def digest_of(key: str) -> str:
    """What a key is called in logs and metrics."""
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def assert_refused(response: httpx.Response) -> None:
    assert_problem(response, 401, "unauthorized", field="Authorization")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ROUTES)
def test_inference_asks_for_a_key(guarded: Service, path: str) -> None:
    """Without one and with a wrong one it is refused, with the right one answered."""
    assert_refused(guarded.http.post(path, json=BODY))
    assert_refused(guarded.http.post(path, json=BODY, headers=bearer(THIRD)))
    assert guarded.http.post(path, json=BODY, headers=bearer(FIRST)).status_code == 200
    counted = guarded.metrics()[f'headlight_requests_total{{kind="inference",route="{path}",status="401"}}']
    assert counted >= 2


BROKEN: dict[str, Json] = {
    "no JSON": {"content": b"{"},
    "another media type": {"content": b"a", "headers": {"Content-Type": "text/plain"}},
    "another format": {"json": BODY, "headers": {"Accept": "image/png"}},
    "an unknown field": {"json": {"inputs": "a", "x": 1}},
    "an unknown model": {"json": {"inputs": "a", "model": "x"}},
    "too large": {"content": b'"' + b"a" * (2**21) + b'"'},
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_not_told_without_a_key(guarded: Service, path: str, fault: str) -> None:
    """Who has no key learns nothing about requests, models or limits."""
    request = BROKEN[fault]
    assert_refused(guarded.http.post(path, **request))
    headers = request.get("headers", {}) | bearer(FIRST)
    told = guarded.http.post(path, **(request | {"headers": headers})).status_code
    assert told in {400, 404, 406, 413, 415, 422}


def test_unknown_paths_and_methods_come_before_the_key(guarded: Service) -> None:
    """404 and 405 are the same with and without a key."""
    for headers in ({}, bearer(FIRST), bearer(THIRD)):
        assert_problem(guarded.http.get("/nothing", headers=headers), 404, "not-found")
        assert_problem(guarded.http.get("/encode", headers=headers), 405, "method-not-allowed")


def test_operations_ask_for_no_key_but_info_does(guarded: Service) -> None:
    """Probes and Prometheus need none; what is served is not for everybody."""
    for path in ("/livez", "/readyz", "/health", "/metrics", "/openapi.json", "/docs"):
        assert guarded.http.get(path).status_code == 200
        assert guarded.http.get(path, headers=bearer(THIRD)).status_code == 200
    assert_refused(guarded.http.get("/info"))
    assert_refused(guarded.http.get("/info", headers=bearer(THIRD)))
    assert guarded.http.head("/info").status_code == 401
    assert guarded.http.get("/info", headers=bearer(FIRST)).json()["models"]


def test_a_request_without_a_key_is_refused_before_its_body_has_come(guarded: Service) -> None:
    """Who has no key cannot make the service wait or remember."""
    head = b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    start = time.perf_counter()
    assert guarded.raw(head, timeout=5).status_code == 401
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("byte", [b"\xa0", b"\x85"])
def test_only_spaces_and_tabs_may_surround_a_key(guarded: Service, byte: bytes) -> None:
    """Bytes that Unicode takes for spaces, as Latin-1, are a part of the key (RFC 9110 §5.6.3)."""
    for before, after, status in ((b"\t ", b" \t", 422), (byte, b"", 401), (b"", byte, 401)):
        header = b"Authorization: Bearer " + before + FIRST.encode() + after
        request = b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n" + header + b"\r\n\r\n{}"
        assert guarded.raw(request).status_code == status


@pytest.mark.parametrize(("path", "status"), [("/encode", 401), ("/nothing", 404), ("/livez", 405)])
def test_a_body_that_dribbles_after_its_refusal_is_let_go(key_file: Path, path: str, status: int) -> None:
    """A byte now and then keeps no connection open beyond the time that a body has."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n"
    with serve(api_keys_file=key_file, request_timeout_s=1.5) as service, service.connect() as connection:
        connection.sendall(head.encode())
        assert read_answer(connection).status_code == status
        start = time.perf_counter()
        with suppress(ConnectionError):
            while time.perf_counter() - start < 10:
                connection.sendall(b"a")
                time.sleep(0.2)
        assert time.perf_counter() - start < 5


def test_two_keys_at_once_open_nothing(guarded: Service) -> None:
    """A proxy in front may have judged the other one."""
    for first, second in ((FIRST, THIRD), (THIRD, FIRST), (FIRST, FIRST)):
        headers = [("Authorization", f"Bearer {key}") for key in (first, second)]
        assert_refused(guarded.http.post("/encode", json=BODY, headers=headers))


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        *(
            (slip, "HEADLIGHT_API_KEYS")
            for slip in ("API_KEY", "KEYS", "KEY", "API_KYES", "APIKEY", "API_TOKEN")
        ),
        *((slip, "HEADLIGHT_API_KEYS_FILE") for slip in ("API_KEY_FILE", "KEYS_FILE", "KEY_FILE")),
    ],
)
def test_a_slip_in_the_name_of_the_setting_ends_the_start(slip: str, meant: str) -> None:
    """Rather than to serve everybody with a warning; the sentence names the setting that was meant."""
    code, _, err = run_command(**{slip.lower(): "key-0123456789abcdef"})  # type: ignore[arg-type]
    assert code == 2
    assert err == f"headlight: HEADLIGHT_{slip} is not a setting: did you mean {meant}?\n"


def test_the_schema_says_where_a_key_is_asked_for(guarded: Service, service: Service) -> None:
    """OpenAPI names the scheme on inference routes and /info where keys are set, and nowhere else."""
    asked = {e.documented_path for e in ENDPOINTS if e.guarded and e.summary}
    for one, wanted in ((guarded, asked), (service, set())):
        schema = one.http.get("/openapi.json").json()
        asking = {p for p, item in schema["paths"].items() if any("security" in o for o in item.values())}
        assert (asking, "securitySchemes" in schema["components"]) == (wanted, bool(wanted))


def test_metrics_and_log_say_which_key_was_used(guarded: Service) -> None:
    """By the beginning of its digest, from the first scrape on; a key that does not open is not named."""
    series = f'headlight_key_requests_total{{key="{digest_of(FIRST)}"}}'
    last_used = f'headlight_key_last_used_timestamp_seconds{{key="{digest_of(FIRST)}"}}'
    before = guarded.metrics()
    guarded.http.post("/encode", json=BODY, headers=bearer(FIRST) | {"X-Request-ID": "with-key"})
    guarded.http.get("/info", headers=bearer(FIRST))
    guarded.http.post("/encode", json=BODY, headers=bearer(THIRD) | {"X-Request-ID": "wrong-key"})
    after = guarded.metrics()
    assert after[series] - before[series] == 2
    assert time.time() - 60 < after[last_used] <= time.time()
    assert not any(digest_of(THIRD) in name for name in after)
    assert guarded.line("with-key")["key"] == digest_of(FIRST)
    assert "key" not in guarded.line("wrong-key")
    assert digest_of(THIRD) not in guarded.log


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/encode", {"inputs": ["one", "two words"]}, 3 + 4),
        ("/encode", {"inputs": []}, 0),
        ("/tokenize", {"inputs": ["one", "two words"]}, 0),
        ("/v1/embeddings", {"input": ["one", "two words"], "model": "all-MiniLM-L6-v2"}, 3 + 4),
        ("/v1/rerank", {"query": "one", "documents": ["two words", "one"]}, 3 + 4 + 3),
    ],
)
def test_tokens_count_for_the_key_that_asked(guarded: Service, path: str, body: Json, tokens: int) -> None:
    """As many as the response says were run, on every protocol; none for what is refused or runs nothing."""
    series = f'headlight_key_tokens_total{{key="{digest_of(FIRST)}"}}'
    before = guarded.metrics()[series]
    response = guarded.http.post(path, json=body, headers=bearer(FIRST))
    assert guarded.metrics()[series] - before == tokens
    if tokens:
        usage = response.json()["usage"]
        assert tokens in usage.values()


def test_keys_rotate_without_a_restart(guarded: Service, key_file: Path) -> None:
    """First the old one, then both, then the new one alone; the log counts them and names none."""

    def wait_until(key: str, status: int) -> None:
        until = time.monotonic() + 10
        while guarded.http.post("/encode", json=BODY, headers=bearer(key)).status_code != status:
            assert time.monotonic() < until, f"{key} is not {status}"
            time.sleep(0.1)

    def write(*keys: str) -> None:
        new = key_file.with_name("new")
        new.write_text("\n".join(keys), encoding="utf-8")
        os.replace(new, key_file)  # noqa: PTH105 - the call that one would use

    def named() -> set[str]:
        return set(re.findall(r'headlight_key_requests_total{key="(\w+)"}', "\n".join(guarded.metrics())))

    wait_until(FIRST, 200)
    write(FIRST, SECOND)
    wait_until(SECOND, 200)
    wait_until(FIRST, 200)
    assert {digest_of(FIRST), digest_of(SECOND)} == named()
    write(SECOND)
    wait_until(FIRST, 401)
    wait_until(SECOND, 200)
    assert {digest_of(SECOND)} == named()
    assert guarded.metrics()["headlight_api_keys{}"] == 1
    write()
    wait_until(SECOND, 401)
    assert guarded.metrics()["headlight_api_keys{}"] == 0
    (warning,) = (line for line in map(json.loads, guarded.log.splitlines()) if line["level"] == "warning")
    assert warning["message"].startswith("the API keys have changed: 0 are accepted")
    write(FIRST)
    wait_until(FIRST, 200)
    assert not any(key in guarded.log for key in (FIRST, SECOND, THIRD))
    assert "2 are accepted" in guarded.log
