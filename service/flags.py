"""The command-line flags: one for each setting, with its help text."""

import argparse
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from pydantic.fields import FieldInfo

from service.setting_help import default, placeholder

_USAGE = """headlight [--SETTING VALUE ...]
       headlight export MODEL OUT_DIR [options]
       headlight convert FOLDER OUT_DIR [options]
       headlight --version"""

_DESCRIPTION = """\
Serve transformer encoders over HTTP: embeddings and per-head attention maps. Each setting is a flag or the
environment variable in brackets; the flag takes precedence.
"""
_EXPORT = """\
`headlight export MODEL OUT_DIR` exports a model as an ONNX graph, which is served without PyTorch; see
`headlight export --help`. `headlight convert FOLDER OUT_DIR` copies a folder with pickled weights, with the
same weights as safetensors.
"""


def parse_flags(arguments: Sequence[str], fields: Mapping[str, FieldInfo], prefix: str) -> dict[str, str]:
    """Return the settings given as flags, as strings; --help, --version and unknown flags exit."""
    parser = argparse.ArgumentParser(
        prog="headlight",
        usage=_USAGE,
        description=_DESCRIPTION,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,  # a future setting could make an abbreviation ambiguous
    )
    parser.add_argument("--version", action="version", version=f"headlight {version('headlight-server')}")
    parser.add_argument_group("commands", _EXPORT)
    settings = parser.add_argument_group("settings")
    for name, field in fields.items():
        description = f"{field.description} [{prefix}{name.upper()}; default: {default(name, field)}]"
        settings.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=placeholder(name, field),
            help=description.replace("%", "%%"),
        )
    return dict(vars(parser.parse_args(arguments)))
