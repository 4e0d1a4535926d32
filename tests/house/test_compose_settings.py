"""What compose is told reaches the service, or the service does not start: nothing is dropped in silence."""

import re
from typing import Any

import yaml

from service.settings import PREFIX, Settings
from tests.support.serving import ROOT, free_port, run_command

SERVICE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["headlight"]
PUBLISHED = {"HEADLIGHT_HOST", "HEADLIGHT_PORT"}
"""Of this machine: in the container it is always the same address and port."""
SLIPS = {"HEADLIGHT_API_KEY", "HEADLIGHT_API_KEY_FILE"}


def test_every_setting_is_passed_or_says_where_the_port_is() -> None:
    """A setting that compose dropped would be thought to hold: with keys, the service stood open."""
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    passed = {name for name in SERVICE["environment"] if name.startswith(PREFIX)}
    assert passed == (names - PUBLISHED) | SLIPS
    (port,) = SERVICE["ports"]
    assert set(re.findall(r"HEADLIGHT_\w+", port)) == PUBLISHED


def test_each_is_passed_as_it_is() -> None:
    """Without a value of our own, or with the same name's as what holds where it is not set."""
    for name, value in SERVICE["environment"].items():
        assert value is None or re.fullmatch(rf"\$\{{{name}-[^}}]+\}}", value), name


def test_keys_that_are_not_there_end_the_start() -> None:
    """What compose passes on refuses to serve everybody: a file that the container has not, and slips."""
    told = {"API_KEYS_FILE": "./no-such-file", **{slip.removeprefix(PREFIX): "x" for slip in SLIPS}}
    for name, value in told.items():
        settings: dict[str, Any] = {"port": free_port(), name: value}
        code, _, err = run_command(**settings)
        assert code == 2
        assert "HEADLIGHT_API_KEY" in err
        assert name != "API_KEYS_FILE" or err.startswith(
            f"headlight: {ROOT / 'no-such-file'} does not exist:"
        )
