"""The arguments of the native kernels as ctypes structures, whose fields are read from interface.h."""

import ctypes
import re
from typing import Any, TypeVar

from model.pytorch.kernels.sources import FOLDER

_Class = TypeVar("_Class", bound=type[ctypes.Structure])

_TYPES: dict[str, Any] = {"float": ctypes.c_float, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64}
"""The types of fields that are not pointers: numbers, and the structures declared before."""
_INTERFACE = re.sub(r"//.*", "", (FOLDER / "interface.h").read_text("utf-8"))
_BODIES = dict(re.findall(r"^struct (\w+) \{(.*?)^\};", _INTERFACE, re.MULTILINE | re.DOTALL))


def fields(structure: str) -> list[tuple[str, Any]]:
    """Return the names and ctypes types of the fields of a structure that interface.h declares, in order."""
    found: list[tuple[str, Any]] = []
    for statement in _BODIES[structure].split(";"):
        declared = re.fullmatch(r"\s*(?:const )?(\w+) (.+?)\s*", statement, re.DOTALL)
        if declared is None:
            continue  # what follows the last semicolon
        type_, names = declared.groups()
        if function := re.match(r"\(\*(\w+)\)", names):
            found.append((function[1], ctypes.c_void_p))
            continue
        found += (
            (re.findall(r"\w+", name)[-1], ctypes.c_void_p if "*" in name else _TYPES[type_])
            for name in names.split(",")
        )
    return found


def _declared(structure: _Class) -> _Class:
    """Give a class the fields of the structure that has its name."""
    structure._fields_ = fields(structure.__name__)
    _TYPES[structure.__name__] = structure
    return structure


@_declared
class Observation(ctypes.Structure):
    """What to record of one sequence's attention."""


@_declared
class Distances(ctypes.Structure):
    """The vectors of distances of disentangled attention."""


@_declared
class Intervention(ctypes.Structure):
    """What is changed in one sequence's attention."""


@_declared
class Prefix(ctypes.Structure):
    """The tokens of another sequence with which one begins."""


@_declared
class Attention(ctypes.Structure):
    """Queries, keys and values of packed sequences."""


@_declared
class Norm(ctypes.Structure):
    """An addition to the residual stream, and a norm."""


@_declared
class Rotation(ctypes.Structure):
    """Rotary positions."""


@_declared
class Gate(ctypes.Structure):
    """The gates of a feed-forward network."""


@_declared
class Routing(ctypes.Structure):
    """The choice of experts."""


@_declared
class Collection(ctypes.Structure):
    """The results of one expert."""


@_declared
class Embedding(ctypes.Structure):
    """Tokens, and the tables of their embeddings."""


@_declared
class StoredRows(ctypes.Structure):
    """Rows of a weight as a file holds them."""


@_declared
class Linear(ctypes.Structure):
    """A linear layer."""


@_declared
class Product(ctypes.Structure):
    """A linear layer, its inputs and its outputs."""


@_declared
class Experts(ctypes.Structure):
    """The feed-forward networks of a mixture of experts."""


@_declared
class Layer(ctypes.Structure):
    """A layer of an encoder."""


@_declared
class Angles(ctypes.Structure):
    """The angles of rotary positions, for the rows of one call."""


@_declared
class Layers(ctypes.Structure):
    """A pass through consecutive layers."""
