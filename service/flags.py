"""The command-line flags: one for each setting, with its help text."""

import argparse
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from pydantic.fields import FieldInfo

from service.setting_help import default, placeholder

PROGRAMS = {"export": "export", "convert": "export.convert", "check": "export.check", "bench": "export.bench"}
"""Command that is a program of its own -> its module."""

OTHERS = {
    "workers": "processes",
    "num_workers": "processes",
    "model_id": "model",
    "max_client_batch_size": "max_inputs",
    "payload_limit": "max_body_bytes",
    "cors_allow_origin": "cors_origins",
    "otlp_endpoint": "traces",
    "key": "api_keys",
    "token": "api_keys",
    "api_token": "api_keys",
}
"""Another server's name of a setting -> ours."""

_USAGE = """headlight [serve] [MODEL ...] [--SETTING VALUE ...]
       headlight check MODEL [options]
       headlight bench [MODEL | URL] [options]
       headlight export MODEL OUT_DIR [options]
       headlight convert FOLDER OUT_DIR [options]
       headlight help [COMMAND]
       headlight --version"""

_DESCRIPTION = """\
Serve transformer encoders over HTTP: embeddings and per-head attention maps. MODEL is a folder, a hub name or
name=source, as in --model. Each setting is a flag or the environment variable in brackets; the flag takes
precedence.
"""
_COMMANDS = """\
`headlight check MODEL` says whether and how a model can be served, and how each setting in its files is used.
`headlight bench [MODEL]` measures texts per second and latencies on this machine. `headlight export MODEL
OUT_DIR` exports a model as an ONNX graph, which is served without PyTorch. `headlight convert FOLDER OUT_DIR`
copies a folder and rewrites its pickled weights as safetensors. `headlight help COMMAND` lists the options of
a command.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with one sentence, like other refusals of settings."""
        end = "" if message.endswith("?") else "; `headlight help` lists all flags."
        self.exit(2, f"headlight: {message}{end}\n")


def find_program(arguments: Sequence[str]) -> list[str] | None:
    """Return the module of a command in `PROGRAMS` and its arguments; None for any others."""
    first, *others = arguments or ("",)
    if first == "help" and others and others[0] in PROGRAMS:
        return [PROGRAMS[others[0]], "--help"]
    return [PROGRAMS[first], *others] if first in PROGRAMS else None


def parse_flags(arguments: Sequence[str], fields: Mapping[str, FieldInfo], prefix: str) -> dict[str, str]:
    """Return the settings given as flags, as strings; --help, --version and unknown flags exit."""
    parser = _Parser(
        prog="headlight",
        usage=_USAGE,
        description=_DESCRIPTION,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,  # a future setting could make an abbreviation ambiguous
    )
    parser.add_argument("--version", action="version", version=f"headlight {version('headlight-server')}")
    parser.add_argument_group("commands", _COMMANDS)
    settings = parser.add_argument_group("settings")
    for name, field in fields.items():
        description = f"{field.description} [{prefix}{name.upper()}; default: {default(name, field)}]"
        settings.add_argument(
            flag(name), dest=name, metavar=placeholder(name, field), help=description.replace("%", "%%")
        )
    if arguments and arguments[0] in ("help", "serve"):
        first, *arguments = arguments
        if first == "help" and arguments:
            parser.error(f"{arguments[0]} is not a command{neighbour(arguments[0], list(PROGRAMS))}")
        arguments = arguments if first == "serve" else ["--help"]
    known, others = parser.parse_known_args(arguments)
    given = dict(vars(known))
    if wrong := [word.partition("=")[0] for word in others if word.startswith("-")]:
        parser.error(f"{wrong[0]} is not a flag{neighbour(wrong[0], [*map(flag, fields), '--version'])}")
    if others:
        given["model"] = _models(others, given, parser)
    return given


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return f"--{name.replace('_', '-')}"


def neighbour(name: str, names: Sequence[str]) -> str:
    """Return the question whether the most similar name was meant; empty if none is similar."""
    found = nearest(name, names)
    return f": did you mean {found}?" if found else ""


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the name that is most similar to `name`, which may be another server's; None if none is."""
    plain = {_plain(one): one for one in names}
    meant = OTHERS.get(_plain(name), _plain(name))
    found = get_close_matches(meant, plain, n=1)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    """Return the name of a setting without the prefix of flags or of variables."""
    return name.lower().removeprefix("headlight_").lstrip("-").replace("-", "_")


def _models(words: Sequence[str], given: Mapping[str, str], parser: _Parser) -> str:
    """Return the setting `model` that words without a flag stand for; exits if they cannot be one."""
    if "model" in given:
        parser.error(f"{words[0]} is read as a model, but --model is also given: remove one of them")
    meant = get_close_matches(words[0], [*PROGRAMS, "serve", "help"], n=1)
    if meant and not Path(words[0]).exists():
        parser.error(f"{words[0]} is neither a command nor a folder: did you mean `headlight {meant[0]}`?")
    return ",".join(words)
