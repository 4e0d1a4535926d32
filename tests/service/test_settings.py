"""Settings: read once, from the environment and from flags, and refused in one sentence."""

import logging
import os
import re
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from service.setting_values import parse_models
from service.settings import SettingsError, read_settings, unknown_variables


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADLIGHT_")]:
        monkeypatch.delenv(name)


def test_the_defaults_are_those_of_the_contract() -> None:
    """Without anything set, the service is the one that is documented."""
    settings = read_settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.models == {"all-MiniLM-L6-v2": "all-MiniLM-L6-v2"}
    assert (settings.backend, settings.device, settings.dtype, settings.threads) == ("auto",) * 3 + (None,)
    assert (settings.max_batch_tokens, settings.max_queue_tokens) == (None, None)
    assert (settings.max_inputs, settings.max_body_bytes) == (256, 2 * 2**20)
    assert settings.max_response_bytes == 64 * 2**20
    assert (settings.request_timeout_s, settings.patience_s, settings.drain_timeout_s) == (None, 30, 30)
    assert (settings.log_level, settings.log_format) == ("info", "text")
    assert (settings.log_refusals, settings.level_of_refusals) == ("info", logging.INFO)
    assert (settings.api_keys, settings.api_keys_file, settings.cors_origins) == (None, None, None)
    assert (settings.keys, settings.origins) == (frozenset(), [])


VALUES = [
    ("host", "0.0.0.0", "0.0.0.0"),  # noqa: S104 - it is only read
    ("port", "9000", 9000),
    ("model", "a=x,b=y", "a=x,b=y"),
    ("backend", "torch", "torch"),
    ("device", "cuda:1", "cuda:1"),
    ("dtype", "bfloat16", "bfloat16"),
    ("native", "off", "off"),
    ("threads", "2", 2),
    ("max_batch_tokens", "512", 512),
    ("max_queue_tokens", "1024", 1024),
    ("max_inputs", "8", 8),
    ("max_body_bytes", "1000", 1000),
    ("max_response_bytes", "2000", 2000),
    ("request_timeout_s", "1.5", 1.5),
    ("drain_timeout_s", "2", 2.0),
    ("api_keys", "key-0123456789abcdef", SecretStr("key-0123456789abcdef")),
    ("api_keys_file", "/run/secrets/keys", Path("/run/secrets/keys")),
    ("cors_origins", "https://a.example,*", "https://a.example,*"),
    ("trusted_proxies", "10.0.0.0/8, ::1", "10.0.0.0/8, ::1"),
    ("traces", "otlp", "otlp"),
    ("log_level", "debug", "debug"),
    ("log_refusals", "warning", "warning"),
    ("log_format", "json", "json"),
]


@pytest.mark.parametrize(("name", "text", "value"), VALUES)
def test_every_setting_is_a_variable_and_a_flag_and_the_flag_wins(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    """HEADLIGHT_MAX_INPUTS and --max-inputs are the same setting; the command line is the last word."""
    default = getattr(read_settings(), name)
    assert default != value
    flag = f"--{name.replace('_', '-')}"
    assert getattr(read_settings([flag, text]), name) == value
    assert getattr(read_settings([f"{flag}={text}"]), name) == value
    monkeypatch.setenv(f"HEADLIGHT_{name.upper()}", text)
    assert getattr(read_settings(), name) == value
    if default is not None:
        assert getattr(read_settings([flag, str(default)]), name) == default


IMPOSSIBLE = [
    ("host", ""),
    ("port", "70000"),
    ("port", "-1"),
    ("port", "http"),
    ("model", ""),
    ("model", "a=x,a=y"),
    ("model", "=x"),
    ("model", "a="),
    ("model", "a,,b"),
    ("model", "x/a,y/a"),
    ("backend", "tensorflow"),
    ("device", "tpu"),
    ("device", "cuda:x"),
    ("dtype", "int4"),
    ("native", "maybe"),
    ("trusted_proxies", "10.0.0.0/33"),
    ("traces", "jaeger"),
    ("threads", "0"),
    ("threads", "1.5"),
    ("max_batch_tokens", "0"),
    ("max_queue_tokens", "0"),
    ("max_inputs", "0"),
    ("max_inputs", "many"),
    ("max_body_bytes", "0"),
    ("max_response_bytes", "-5"),
    ("request_timeout_s", "0"),
    ("request_timeout_s", "nan"),
    ("request_timeout_s", "inf"),
    ("drain_timeout_s", "-1"),
    ("api_keys_file", ""),
    ("cors_origins", "a.example"),
    ("cors_origins", "https://a.example/"),
    ("cors_origins", "https://a.example,ftp://b.example"),
    ("log_level", "loud"),
    ("log_refusals", "error"),
    ("log_format", "xml"),
]


LIBRARY = re.compile(
    r"Value error|Input should|should be|should have|should match|valid (?:integer|number)|unable"
)
"""How pydantic speaks, to those who know it."""


@pytest.mark.parametrize(("name", "text"), IMPOSSIBLE)
def test_an_impossible_setting_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """The sentence names the setting and its value, from the environment as from the command line."""
    monkeypatch.setenv(f"HEADLIGHT_{name.upper()}", text)
    with pytest.raises(SettingsError) as refused:
        read_settings()
    message = str(refused.value)
    assert f"HEADLIGHT_{name.upper()}" in message
    assert repr(text) in message
    assert message.endswith(".")
    assert message.count(". ") == 0
    assert "\n" not in message
    assert not LIBRARY.search(message)
    monkeypatch.delenv(f"HEADLIGHT_{name.upper()}")
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(SettingsError) as flag_refused:
        read_settings([f"{flag}={text}"])
    assert str(flag_refused.value) == message.replace(f"HEADLIGHT_{name.upper()}", flag)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("port", "http", "it must be a whole number, at least 0 and at most 65535"),
        ("threads", "0", "it must be a whole number, at least 1, or auto"),
        ("request_timeout_s", "nan", "it must be a number, greater than 0 and at most 86400, or auto"),
        ("log_format", "xml", "it must be 'text' or 'json'"),
        ("host", "", "it must be a non-empty string"),
    ],
)
def test_a_refusal_says_what_is_allowed(name: str, text: str, allowed: str) -> None:
    """One plain sentence: the variable, its value, and all that it takes."""
    with pytest.raises(SettingsError) as refused:
        read_settings([f"--{name.replace('_', '-')}", text])
    assert str(refused.value) == f"--{name.replace('_', '-')} is {text!r}: {allowed}."


def test_each_wrong_setting_is_told() -> None:
    """Who has two to change learns of both."""
    with pytest.raises(SettingsError, match=r"--port is 'a': .+\. --threads is 'b': .+\.$"):
        read_settings(["--port", "a", "--threads", "b"])


def test_settings_are_frozen() -> None:
    """They are read once and never changed."""
    settings = read_settings()
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "models"),
    [
        ("all-MiniLM-L6-v2", {"all-MiniLM-L6-v2": "all-MiniLM-L6-v2"}),
        ("org/name", {"name": "org/name"}),
        ("/models/small/", {"small": "/models/small/"}),
        ("a=org/x, b=/models/y", {"a": "org/x", "b": "/models/y"}),
        ("org/x,b=org/x", {"x": "org/x", "b": "org/x"}),
    ],
)
def test_models_are_named_by_themselves_or_by_us(value: str, models: dict[str, str]) -> None:
    """A name not given is the last part of the source, and the first model is the default."""
    assert list(parse_models(value).items()) == list(models.items())


def test_a_variable_that_is_no_setting_is_told() -> None:
    """A slip of the hand in a name does not pass in silence."""
    environment = {"HEADLIGHT_MAX_INPUT": "3", "HEADLIGHT_PORT": "1", "PATH": "/", "HEADLIGHT_": ""}
    assert unknown_variables(environment) == ["HEADLIGHT_", "HEADLIGHT_MAX_INPUT"]


def test_every_setting_says_what_it_is() -> None:
    """The help of the command line has a sentence for each."""
    for name, field in type(read_settings()).model_fields.items():
        assert field.description, name
        assert re.search(r"\w{3}", field.description)
