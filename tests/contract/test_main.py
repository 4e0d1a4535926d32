"""The command line: starts, refusals, help."""

import re
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.lanes import count_cores
from service.http.server import ListenError, listen, open_listeners
from service.setting_help import default
from service.settings import PREFIX, Settings
from service.workers.count_processes import count_processes
from tests.contract.test_operations import VERSION
from tests.references.checkpoints import write_bert
from tests.support.serving import KEY, Json, Service, answered, free_port, run_command, serve

SENTENCE = re.compile(r"headlight: \S.*[.?]\n?", re.DOTALL)


def test_the_version() -> None:
    """--version prints it and does nothing else."""
    code, out, err = run_command("--version", afresh=True)
    assert (code, out, err) == (0, f"headlight {VERSION}\n", "")


def test_the_help_names_every_flag() -> None:
    """--help lists each setting with its meaning, its variable and its default, and what else there is."""
    code, out, err = run_command("--help", afresh=True)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')} " in out
        assert field.description is not None
        assert " ".join(field.description.split())[:20] in words
        assert f"[{PREFIX}{name.upper()}; default: {default(name, field)}]" in words
    for named in ("headlight export MODEL OUT_DIR", "--version", "2097152, 2 MiB", "{on,off}", "SECONDS"):
        assert named in out
    assert not re.search(r"\b(None|null|False|SecretStr|Path|str|int|float|bool)\b", out)


def test_help_is_a_command_too() -> None:
    """`headlight help` prints the same as --help."""
    assert run_command("help") == run_command("--help")


def test_the_help_is_true_of_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are counted alike for them, and their precision is their own."""
    monkeypatch.delenv("HEADLIGHT_PROCESSES", raising=False)
    assert count_processes(Settings(backend="onnx")) == count_processes(Settings(backend="torch"))
    fields = Settings.model_fields
    assert "PyTorch" not in str(fields["processes"].description)
    assert "auto: graphs as exported" in str(fields["dtype"].description)


@pytest.mark.parametrize(("words", "processes"), [([], 1), (["serve"], 2)])
def test_models_may_be_named_without_a_flag(tmp_path: Path, words: list[str], processes: int) -> None:
    """One or several, the first of which is the default; a folder may be called like a command.

    A folder of several names is loaded once; each name answers as itself, with the same vectors.
    """
    folder = tmp_path / "export"
    write_bert(folder)
    models = (f"{tmp_path}/./export", "--max-inputs", "3", f"second={folder}")
    with serve(*words, *models, processes=processes) as service:
        info = answered(service.http.get("/info"))
        first, second = (service.encode("hello", model=name) for name in ("export", "second"))
        assert service.log.count("loading export from") == 1
        assert "loading second from" not in service.log
    assert [model["name"] for model in info["models"]] == ["export", "second"]
    assert info["limits"]["max_inputs"] == 3
    assert (first["model"], second["model"]) == ("export", "second")
    assert first["data"] == second["data"]


@pytest.mark.parametrize(
    ("settings", "flags", "named"),
    [
        ({"port": "http"}, [], ["HEADLIGHT_PORT", "'http'"]),
        ({"max_inputs": "0"}, [], ["HEADLIGHT_MAX_INPUTS", "'0'", "at least 1"]),
        ({"dtype": "float8"}, [], ["HEADLIGHT_DTYPE", "'float8'", "'bfloat16'"]),
        ({}, ["--device", "tpu"], ["--device", "'tpu'"]),
        ({}, ["--model", "a=x,a=y"], ["--model", "name=source"]),
        ({}, ["serve", "a=x", "a=y"], ["--model", "name=source"]),
        ({"max_inputs": "9"}, ["--max-inputs", "-3"], ["--max-inputs", "'-3'"]),
        ({}, ["--port", "99999"], ["--port is '99999'", "at most 65535"]),
        ({}, ["--prot", "1"], ["--prot is not a flag: did you mean --port?"]),
        ({}, ["--prot=1"], ["--prot is not a flag: did you mean --port?"]),
        ({}, ["serve", "--prot", "1"], ["--prot is not a flag: did you mean --port?"]),
        ({}, ["--workers", "4"], ["--workers is not a flag: did you mean --processes?"]),
        ({}, ["--model-id=a/b"], ["--model-id is not a flag: did you mean --model?"]),
        ({}, ["--payload-limit", "1"], ["--payload-limit is not a flag: did you mean --max-body-bytes?"]),
        ({}, ["--zzz"], ["--zzz is not a flag; `headlight help` lists all flags."]),
        ({}, ["exprot", "a", "b"], ["exprot is neither a command nor a folder", "`headlight export`"]),
        ({}, ["help", "chekc"], ["chekc is not a command: did you mean check?"]),
        ({}, ["a", "--model", "b"], ["a is read as a model, but --model is also given: remove one of them"]),
    ],
)
def test_an_impossible_setting_ends_the_start_with_a_sentence(
    settings: dict[str, Any], flags: list[str], named: list[str]
) -> None:
    """Exit code 2, and one sentence on standard error that names the setting and its value."""
    code, out, err = run_command(*flags, **settings)
    assert (code, out) == (2, "")
    assert SENTENCE.fullmatch(err)
    assert err.count("\n") == 1
    assert all(part in err for part in named)
    assert "Traceback" not in err


@pytest.mark.parametrize("flag", ["--nothing", "--max-inputs"])
def test_a_flag_that_is_none_ends_the_start(flag: str) -> None:
    """Unknown flags and flags without their value are exit code 2."""
    code, _, err = run_command(flag)
    assert code == 2
    assert flag in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": "/no/such/folder"}, "/no/such/folder"),
        ({"model": "nobody/has-this-model"}, "nobody/has-this-model"),
        ({"device": "cuda:99", "processes": 1}, "cuda:99"),
        ({"device": "cpu", "dtype": "float16"}, "float16"),
        ({"dtype": "int8", "native": "off"}, "dtype int8 cannot run here: it needs the native kernels"),
    ],
)
def test_a_model_that_cannot_be_served_ends_the_start(settings: dict[str, Any], named: str) -> None:
    """Exit code 1, and a sentence that names what is missing; it does not stay up unready."""
    code, _, err = run_command(port=free_port(), **settings)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("headlight: ")
    assert named in last
    assert "Traceback" not in err


def test_a_broken_folder_ends_the_start(tmp_path: Path) -> None:
    """A folder that is no checkpoint is named with what it lacks."""
    code, _, err = run_command("--model", str(tmp_path), port=free_port())
    assert code == 1
    assert str(tmp_path) in err.splitlines()[-1]
    assert "config.json" in err.splitlines()[-1]


def test_a_port_that_is_taken_ends_the_start() -> None:
    """The last line says which port it is that cannot be had, and the exit code is 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run_command(port=port)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("headlight: ")
    assert str(port) in last
    assert "Traceback" not in err


def test_a_flag_wins_over_its_variable_and_slips_are_told() -> None:
    """A running service obeys the command line first, and warns of what is no setting or no good one."""
    settings: Json = {
        "max_inputs": 5,
        "max_input": 7,
        "workers": 2,
        "api_url": "x",
        "threads": count_cores() + 1,
    }
    with serve("--max-inputs", "3", **settings) as service:
        limits = answered(service.http.get("/info"))["limits"]
        assert limits["max_inputs"] == 3
        assert "HEADLIGHT_MAX_INPUT is not a headlight setting" in service.log
        assert "did you mean HEADLIGHT_MAX_INPUTS?" in service.log
        assert (
            "HEADLIGHT_WORKERS is not a headlight setting and is ignored: did you mean HEADLIGHT_PROCESSES?"
            in (service.log)
        )
        assert "HEADLIGHT_API_URL is not a headlight setting and is ignored" in service.log  # of a client
        assert f"HEADLIGHT_THREADS is {count_cores() + 1}, but only {count_cores()} cores" in service.log
        assert service.http.post("/encode", json={"inputs": ["a"] * 4}).status_code == 413


@pytest.mark.thorough
def test_port_0_takes_a_free_one_and_says_which() -> None:
    """The log has the address that was taken."""
    with serve(wait=False, afresh=True, port=0) as service:
        service.port = _port_in(service)
        service.http.close()
        service.http = service.new_client()
        service.wait_until_ready()
        service.encode("hello")


def _port_in(service: Service) -> int:
    for _ in range(1000):
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", service.log):
            assert int(found[1]) > 0
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError(service.log)


@pytest.mark.parametrize("processes", [1, 2])
def test_all_addresses_are_those_of_ipv4_too(processes: int) -> None:
    """`::` answers at 127.0.0.1 as at ::1, and the log warns of an open service that has no keys."""
    with serve(host="::", processes=processes) as service:
        for host in ("127.0.0.1", "[::1]"):
            assert get(f"http://{host}:{service.port}/readyz") == 200
        assert service.log.count("no API keys are set") == 1
        assert f"http://[::]:{service.port}: anyone who can reach this address" in service.log


@pytest.mark.parametrize("processes", [1, 2])
def test_several_addresses_have_one_port(processes: int) -> None:
    """Each of them answers and is in the log; of loopback ones none is warned."""
    with serve(host="127.0.0.1, 127.0.0.2,[::1]", processes=processes) as service:
        for host in ("127.0.0.1", "127.0.0.2", "[::1]"):
            assert get(f"http://{host}:{service.port}/readyz") == 200
            assert f"listens on http://{host}:{service.port}" in service.log
        assert "no API keys are set" not in service.log
        with pytest.raises(httpx.ConnectError):
            get(f"http://127.0.0.3:{service.port}/readyz")


def test_of_several_addresses_the_one_that_cannot_be_had_is_named() -> None:
    """And the others are given back; both families may be asked for by their own names."""
    port = free_port()
    with pytest.raises(ListenError, match=f"192.0.2.1:{port}"):
        listen(["127.0.0.1", "192.0.2.1"], port)
    for listener in listen(["::", "0.0.0.0"], port):  # noqa: S104 - closed at once
        listener.close()


def test_with_keys_an_open_address_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The warning is for services that answer anyone."""
    for keys, warned in ((None, True), (KEY, False)):
        caplog.clear()
        for listener in open_listeners(Settings(host="0.0.0.0", port=0, api_keys=keys)):  # noqa: S104 - closed
            listener.close()
        assert ("no API keys are set" in caplog.text) == warned


def get(url: str) -> int:
    """The status of a GET."""
    return httpx.get(url, trust_env=False, timeout=10).status_code
