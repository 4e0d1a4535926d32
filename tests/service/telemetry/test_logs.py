"""What is logged, in which form, and what never is."""

import json
import logging
import time
from collections.abc import Iterator

import pytest

from service.telemetry.logs import JsonFormatter, set_up_logs
from service.telemetry.request_record import Ended, RequestRecord
from tests.support.serving import KEY, ROUTES, Json, Service, request_bytes, serve


@pytest.fixture
def _logging_restored() -> Iterator[None]:
    root, names = logging.getLogger(), ("uvicorn", "httpx", "huggingface_hub")
    before = (root.level, root.handlers[:], [logging.getLogger(name).level for name in names])
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name, level in zip(names, before[2], strict=True):
        logging.getLogger(name).setLevel(level)


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("service.x", logging.WARNING, "f.py", 1, "%d of %s", (3, 'a\n"b"'), None)
    vars(made).update(extra)
    return made


def test_a_line_of_json_is_one_object() -> None:
    """Message, level, logger and time, on one line whatever the message is."""
    ended = Ended(RequestRecord("abc", "::1"), "/encode", 200, 0.5)
    line = JsonFormatter().format(record(ended=ended, colour="x"))
    assert "\n" not in line
    written = json.loads(line)
    assert written.pop("time")[:2] == "20"
    assert written == {
        "level": "warning",
        "logger": "service.x",
        "message": '3 of a\n"b"',
        "request_id": "abc",
        "route": "/encode",
        "status": 200,
        "seconds": 0.5,
        "stages": {},
        "bytes_in": 0,
        "bytes_out": 0,
        "peer": "::1",
    }


def test_an_exception_is_part_of_its_line() -> None:
    """A traceback does not spill over into lines that are no JSON."""
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 / 0
    line = JsonFormatter().format(record(exc_info=(raised.type, raised.value, raised.tb)))
    assert "division by zero" in json.loads(line)["exception"]
    assert "\n" not in line


@pytest.mark.usefixtures("_logging_restored")
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_level_holds_and_others_are_kept_quiet(level: str) -> None:
    """Our own lines follow the setting; those of the server and of HTTP clients begin at warnings."""
    set_up_logs(level, "text")
    ours, theirs = logging.getLogger("service.engine.engine"), logging.getLogger("uvicorn.error")
    number = getattr(logging, level.upper())
    assert ours.isEnabledFor(number)
    assert not ours.isEnabledFor(number - 10)
    assert theirs.getEffectiveLevel() == max(number, logging.WARNING)


def test_every_line_of_the_service_is_json(strict: Service) -> None:
    """From the first line on, with refused and malformed requests in between."""
    strict.encode("to have a line")
    strict.raw(b"not http\r\n\r\n")
    logged = strict.log.rpartition("\n")[0].splitlines()
    assert len(logged) >= 3
    for line in logged:
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()


def test_a_request_is_one_line_with_its_id(strict: Service) -> None:
    """Route, status and seconds of the request that a client names."""
    strict.http.post("/encode", json={"inputs": "a"}, headers={"X-Request-ID": "log-me-1"})
    strict.http.post("/encode", json={"inputs": []}, headers={"X-Request-ID": "log-me-2"})
    good = strict.line("log-me-1")
    bad = strict.line("log-me-2")
    assert (good["route"], good["status"], good["level"]) == ("/encode", 200, "info")
    assert (bad["route"], bad["status"]) == ("/encode", 422)
    assert (bad["problem"], bad["field"]) == ("invalid-request", "inputs")
    assert not {"problem", "field", "path"} & good.keys()
    assert 0 < good["seconds"] < 5


@pytest.mark.parametrize("accept", ["application/json", "application/x-npz", "application/x-ndjson"])
@pytest.mark.parametrize("path", ROUTES)
def test_a_line_says_where_the_time_went(strict: Service, path: str, accept: str) -> None:
    """The seconds of each stage of an answer, which are not more than all of it; none for a refusal."""
    name = f"stages-{path[1:]}-{accept[14:]}"
    body = {"inputs": "a", "layers": [0]} | (
        {"heads": [0]} if path == "/attention" else {"outputs": ["tokens"]}
    )
    headers = {"X-Request-ID": name, "Accept": accept}
    assert strict.http.post(path, json=body, headers=headers).status_code == 200
    line = strict.line(name)
    wanted = {"tokenize", "queue", "serialize"} | (set() if "ndjson" in accept else {"compute"})
    assert line["stages"].keys() == wanted
    assert all(seconds >= 0 for seconds in line["stages"].values())
    assert sum(line["stages"].values()) <= line["seconds"]
    strict.http.post(path, json={"inputs": []}, headers={"X-Request-ID": f"{name}-refused"})
    assert strict.line(f"{name}-refused")["stages"] == {}


def test_texts_of_clients_are_never_logged(strict: Service) -> None:
    """Neither of requests that are answered nor of those that are refused, at the lowest level."""
    secret = "xylophone quartz"
    strict.encode(secret)
    strict.http.post("/attention", json={"inputs": [secret], "queries": [99]})
    strict.http.post("/encode", json={"inputs": [[secret]], secret: 1})
    strict.http.post("/encode", content=f'{{"inputs": "{secret}", }}'.encode())
    strict.http.post("/encode", json={"inputs": [secret] * 9})
    strict.http.post("/encode", json={"inputs": secret, "dimensions": secret})
    strict.http.post(f"/encode?{secret}=1", json={"inputs": "a"})
    strict.http.post("/v1/embeddings", json={"input": "a", "dimensions": {secret: 1}, secret: secret})
    strict.http.get(f"/nothing?{secret}", headers={"X-Request-ID": "log-me-3"})
    assert strict.line("log-me-3")["status"] == 404
    assert "xylophone" not in strict.log


@pytest.mark.parametrize(
    ("path", "body", "problem", "field"),
    [
        ("/encode", {"inputs": "a", "dimensions": 5000}, "invalid-request", "dimensions"),
        ("/encode", {"inputs": ["a", 3]}, "invalid-request", "inputs"),
        ("/encode", {"inputs": ["a"] * 9}, "too-many-inputs", "inputs"),
        ("/encode?dtype=int7", {"inputs": "a"}, "invalid-request", "query.dtype"),
        ("/encode", {"inputs": "a", "model": "none"}, "model-not-found", "model"),
        ("/v1/embeddings", {"input": "a", "dimensions": 5000}, "invalid-request", "dimensions"),
        ("/encode", {"inputs": "a", "xylophone": 1}, "invalid-request", None),
        ("/encode?xylophone=1", {"inputs": "a"}, "invalid-request", "query"),
        ("/encode", {"inputs": "a" * 5000}, "body-too-large", "body"),
    ],
)
def test_a_refusal_says_why(strict: Service, path: str, body: Json, problem: str, field: str | None) -> None:
    """The type of the problem and the field, whose name is not logged if the client made it up."""
    name = f"why-{path[1:7]}-{problem}-{len(strict.log)}".replace("/", "-")
    strict.http.post(path, json=body, headers={"X-Request-ID": name})
    line = strict.line(name)
    assert (line["problem"], line.get("field")) == (problem, field)


def test_as_text_a_refusal_says_why_too() -> None:
    """With the names that the fields of JSON have."""
    request = RequestRecord("abc", "::1", problem="invalid-request", problem_field="dimensions")
    assert Ended(request, "/encode", 422, 0.5).text().startswith("problem=invalid-request field=dimensions ")


@pytest.mark.thorough
def test_refusals_have_a_level_of_their_own() -> None:
    """All that are answered with a 4xx or are no HTTP, and no other requests."""
    with serve(log_refusals="warning", log_format="json", api_keys=KEY) as service:
        for number, (method, path) in enumerate([("POST", "/encode"), ("GET", "/info"), ("GET", "/quux")]):
            service.http.request(method, path, headers={"X-Request-ID": f"refused-{number}"})
            assert service.line(f"refused-{number}")["level"] == "warning"
        headers = {"X-Request-ID": "answered", "Authorization": f"Bearer {KEY}"}
        service.http.post("/encode", json={"inputs": "a"}, headers=headers)
        service.raw(b"not http\r\n\r\n")
        assert service.line("answered")["level"] == "info"
        (refused,) = [line for line in service.log.splitlines() if "connection refused" in line]
        assert json.loads(refused)["level"] == "warning"
    with serve(log_refusals="debug") as service:
        service.http.post("/encode", json={"inputs": []})
        service.encode("a")
        service.raw(b"not http\r\n\r\n")
        service.encode("b")
        assert " 422 " not in service.log
        assert "connection refused" not in service.log
        assert " 200 " in service.log


def test_unknown_paths_are_logged_once_a_second(service: Service) -> None:
    """So that a wrong base URL leaves a trace: cut, escaped, without the query, and no flood."""
    time.sleep(1.1)
    long = "/v1/%1b[31m%0aembed%E2%80%AEding" + "x" * 200
    service.raw(request_bytes(f"{long}?secret=1", method="POST"))
    started = time.monotonic()
    for number in range(200):
        service.http.get(f"/flood-{number}")
    seconds = time.monotonic() - started
    found = [line for line in service.log.splitlines() if " path=/v1/%1B%5B31m%0Aembed%E2%80%AEding" in line]
    (line,) = found
    assert " unmatched 404 in " in line
    assert " problem=not-found path=" in line
    assert "…" in line
    assert len(line) < 300
    assert "secret" not in service.log
    assert service.log.count("path=/flood-") <= seconds + 1
