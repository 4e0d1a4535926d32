"""The arguments of the native kernels as ctypes structures, declared in interface.h."""

import ctypes

from model.progress import Counters

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64


class Observation(ctypes.Structure):
    """`Observation` of interface.h."""

    _fields_ = (
        ("statistics", _POINTER),
        ("statistic_slots", _POINTER),
        ("special", _POINTER),
        ("maps", _POINTER),
        ("head_slots", _POINTER),
        ("row_slots", _POINTER),
        ("finite", _POINTER),
        ("statistic_heads", _INT64),
        ("map_heads", _INT64),
        ("map_rows", _INT64),
        ("half", ctypes.c_int32),
    )


class Distances(ctypes.Structure):
    """`Distances` of interface.h."""

    _fields_ = (
        ("keys", _POINTER),
        ("queries", _POINTER),
        ("rows", _POINTER),
        ("number", _INT64),
        ("length", _INT64),
    )


class Attention(ctypes.Structure):
    """`Attention` of interface.h."""

    _fields_ = (
        ("q", _POINTER),
        ("k", _POINTER),
        ("v", _POINTER),
        ("token_stride", _INT64),
        ("output", _POINTER),
        ("starts", _POINTER),
        ("tokens", _INT64),
        ("sequences", _INT64),
        ("heads", _INT64),
        ("head_size", _INT64),
        ("scale", ctypes.c_float),
        ("observations", _POINTER),
        ("kv_heads", _INT64),
        ("bias", _POINTER),
        ("bias_length", _INT64),
        ("window", _INT64),
        ("causal", ctypes.c_int32),
        ("distances", _POINTER),
        ("unattended", _POINTER),
        ("steps", _POINTER),
    )


class Embedding(ctypes.Structure):
    """`Embedding` of interface.h."""

    _fields_ = (
        ("tokens", _POINTER),
        ("segments", _POINTER),
        ("starts", _POINTER),
        ("token_table", _POINTER),
        ("position_table", _POINTER),
        ("segment_table", _POINTER),
        ("token_count", _INT64),
        ("position_count", _INT64),
        ("segment_count", _INT64),
        ("gain", _POINTER),
        ("bias", _POINTER),
        ("output", _POINTER),
        ("rows", _INT64),
        ("sequences", _INT64),
        ("size", _INT64),
        ("epsilon", ctypes.c_float),
    )


class StoredRows(ctypes.Structure):
    """`StoredRows` of interface.h."""

    _fields_ = (("first", _POINTER), ("count", _INT64), ("type", ctypes.c_int32))


class Product(ctypes.Structure):
    """`Product` of interface.h."""

    _fields_ = (
        ("x", _POINTER),
        ("panels", _POINTER),
        ("bias", _POINTER),
        ("output", _POINTER),
        ("tokens", _INT64),
        ("inputs", _INT64),
        ("outputs", _INT64),
        ("activation", ctypes.c_int32),
        ("scales", _POINTER),
        ("smoothing", _POINTER),
        ("low_panels", _POINTER),
        ("precise", ctypes.c_int32),
        ("gated", ctypes.c_int32),
        ("stored", _POINTER),
        ("parts", _INT64),
        ("steps", _POINTER),
    )


class Linear(ctypes.Structure):
    """`Linear` of interface.h."""

    _fields_ = (
        ("panels", _POINTER),
        ("bias", _POINTER),
        ("inputs", _INT64),
        ("outputs", _INT64),
        ("activation", ctypes.c_int32),
        ("scales", _POINTER),
        ("smoothing", _POINTER),
        ("low_panels", _POINTER),
        ("precise", ctypes.c_int32),
        ("gated", ctypes.c_int32),
        ("stored", _POINTER),
        ("parts", _INT64),
    )


class Experts(ctypes.Structure):
    """`Experts` of interface.h."""

    _fields_ = (
        ("router", Linear),
        ("first", _POINTER),
        ("second", _POINTER),
        ("bias", _POINTER),
        ("count", _INT64),
        ("chosen", _INT64),
    )


class Layer(ctypes.Structure):
    """`Layer` of interface.h."""

    _fields_ = (
        *((name, Linear) for name in ("qkv", "output", "inner", "outer")),
        ("attention_gain", _POINTER),
        ("attention_bias", _POINTER),
        ("feed_forward_gain", _POINTER),
        ("feed_forward_bias", _POINTER),
        ("window", _INT64),
        ("gated", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        ("experts", _POINTER),
    )


class Angles(ctypes.Structure):
    """`Angles` of interface.h."""

    _fields_ = (("cos", _POINTER), ("sin", _POINTER), ("pairs", _INT64), ("interleaved", ctypes.c_int32))


class Layers(ctypes.Structure):
    """`Layers` of interface.h."""

    _fields_ = (
        ("multiply", _POINTER),
        ("attend", _POINTER),
        ("add_norm", _POINTER),
        ("layers", _POINTER),
        ("count", _INT64),
        ("tokens", _INT64),
        ("size", _INT64),
        ("element", _INT64),
        ("epsilon", ctypes.c_float),
        ("x", _POINTER),
        ("rounded", _POINTER),
        ("mixed", _POINTER),
        ("gated", _POINTER),
        ("gated_width", _INT64),
        ("wide", _POINTER),
        ("narrow", _POINTER),
        ("widest", _INT64),
        ("stream", _POINTER),
        ("states", _POINTER),
        ("projections", _POINTER),
        ("observations", _POINTER),
        ("attention", _POINTER),
        ("ends_observing", ctypes.c_int32),
        ("rotate", _POINTER),
        ("gate", _POINTER),
        ("route", _POINTER),
        ("collect", _POINTER),
        ("gathered", _POINTER),
        ("sums", _POINTER),
        ("shares", _POINTER),
        ("rows", _POINTER),
        ("angles", _POINTER),
        ("biases", _POINTER),
        ("distances", _POINTER),
        ("normed", _POINTER),
        ("norms_input", ctypes.c_int32),
        ("rms", ctypes.c_int32),
        ("precise", ctypes.c_int32),
        ("progress", _POINTER),
    )


class Norm(ctypes.Structure):
    """`Norm` of interface.h."""

    _fields_ = (
        ("x", _POINTER),
        ("added", _POINTER),
        ("gain", _POINTER),
        ("bias", _POINTER),
        ("output", _POINTER),
        ("rounded", _POINTER),
        ("tokens", _INT64),
        ("size", _INT64),
        ("epsilon", ctypes.c_float),
        ("sum", _POINTER),
        ("rms", ctypes.c_int32),
    )


class Rotation(ctypes.Structure):
    """`Rotation` of interface.h."""

    _fields_ = (
        ("x", _POINTER),
        ("cos", _POINTER),
        ("sin", _POINTER),
        ("tokens", _INT64),
        ("stride", _INT64),
        ("heads", _INT64),
        ("head_size", _INT64),
        ("pairs", _INT64),
        ("interleaved", ctypes.c_int32),
    )


class Gate(ctypes.Structure):
    """`Gate` of interface.h."""

    _fields_ = (
        ("x", _POINTER),
        ("output", _POINTER),
        ("tokens", _INT64),
        ("size", _INT64),
        ("activation", ctypes.c_int32),
    )


class Routing(ctypes.Structure):
    """`Routing` of interface.h."""

    _fields_ = (
        ("logits", _POINTER),
        ("shares", _POINTER),
        ("tokens", _INT64),
        ("experts", _INT64),
        ("chosen", _INT64),
    )


class Collection(ctypes.Structure):
    """`Collection` of interface.h."""

    _fields_ = (
        ("results", _POINTER),
        ("rows", _POINTER),
        ("shares", _POINTER),
        ("sums", _POINTER),
        ("count", _INT64),
        ("size", _INT64),
        ("experts", _INT64),
    )


STRUCTURES = (
    Counters,
    Observation,
    Distances,
    Attention,
    Norm,
    Rotation,
    Gate,
    Routing,
    Collection,
    Embedding,
    StoredRows,
    Product,
    Linear,
    Experts,
    Layer,
    Angles,
    Layers,
)
"""All structures, in the order of `headlight_sizes`."""
