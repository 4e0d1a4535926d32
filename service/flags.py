"""The flags of the command line: one for each setting, and what `--help` says of it."""

import argparse
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from pydantic.fields import FieldInfo

from service.setting_help import default, placeholder

_USAGE = """headlight [--SETTING VALUE ...]
       headlight export MODEL OUT_DIR [options]
       headlight --version"""

_DESCRIPTION = """\
Serve transformer encoders over HTTP: embeddings and per-head attention maps. Each setting is a flag or the
environment variable in its brackets; the flag wins.
"""
_EXPORT = """\
`headlight export MODEL OUT_DIR` writes a model as an ONNX graph that is served without PyTorch;
`headlight export --help` says how.
"""


def parse_flags(arguments: Sequence[str], fields: Mapping[str, FieldInfo], prefix: str) -> dict[str, str]:
    """Read the settings that flags give, as text; --help, --version and unknown flags end the process."""
    parser = argparse.ArgumentParser(
        prog="headlight",
        usage=_USAGE,
        description=_DESCRIPTION,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,  # what is short today could mean two settings tomorrow
    )
    parser.add_argument("--version", action="version", version=f"headlight {version('headlight-server')}")
    parser.add_argument_group("commands", _EXPORT)
    settings = parser.add_argument_group("settings")
    for name, field in fields.items():
        told = f"{field.description} [{prefix}{name.upper()}; default: {default(name, field)}]"
        settings.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=placeholder(name, field),
            help=told.replace("%", "%%"),
        )
    return dict(vars(parser.parse_args(arguments)))
