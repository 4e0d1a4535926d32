"""UltraBERT: a EuroBERT of which two layers in three have a window, and rotary positions of their own."""

from collections.abc import Mapping
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import LayerConfig, Rotary
from model.errors import CheckpointError
from model.families.decoders import decoder
from model.families.decoders.decoder import FULL, SLIDING
from model.families.family import Family
from model.families.predictors import TOKEN_CLASSES, PredictorTable, linear, pooled_by
from model.families.predictors import decoder as words
from model.families.reading.options import check_heads
from model.fields import switch, whole
from model.files import shown

_BASES = {SLIDING: 10_000.0, FULL: 2_560_000.0}


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read an UltraBERT `config.json`; raises CheckpointError for options that are not supported."""
    check_heads(config)
    bias = switch(config, "mlp_bias", default=False)
    attention_bias = switch(config, "attention_bias", default=False)
    size = decoder.head_size(config)
    return decoder.read_decoder(
        config,
        size,
        causal=False,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        inner_bias=bias,
        outer_bias=bias,
        layers=_layers(config, size),
    )


def _layers(config: Mapping[str, Any], size: int) -> tuple[LayerConfig, ...]:
    """Read the window and the rotary positions of each layer.

    The published files list windows (0: none) and bases layer by layer. As in transformers, all layers of a
    kind have the same ones.
    """
    listed = _listed(config, "attention_windows")
    kinds = [
        FULL if number % 3 == 0 else SLIDING for number in range(1, whole(config, "num_hidden_layers") + 1)
    ]
    if listed is not None:
        kinds = [SLIDING if window else FULL for window in listed]
    kinds = decoder.read_kinds(config, kinds)
    windows = {FULL: 0}
    if SLIDING in kinds:
        width = _shared("attention_windows", [window for window in listed or () if window])
        width = config.get("sliding_window", 128) if width is None else width
        windows[SLIDING] = decoder.read_window({"sliding_window": width}, exclusive=False)
    rotary = {kind: _rotary(config, size, kind, kinds) for kind in set(kinds)}
    return tuple(LayerConfig(windows[kind], rotary[kind]) for kind in kinds)


def _rotary(config: Mapping[str, Any], size: int, kind: str, kinds: list[str]) -> Rotary:
    """Read the rotary positions of a kind of layer, in the newer or the published form, or the default."""
    own = parameters = config.get("rope_parameters")
    if isinstance(parameters, dict):
        own = parameters.get(kind)
        if own is None:
            raise CheckpointError(f'rope_parameters is {shown(parameters)}; it must have an entry "{kind}".')
    bases = None if own else _listed(config, "rope_theta")
    base = _shared("rope_theta", [base for base, one in zip(bases or (), kinds, strict=False) if one == kind])
    return decoder.read_angles({**config, "rope_parameters": own, "rope_theta": base}, size, _BASES[kind])


def _listed(config: Mapping[str, Any], name: str) -> list[Any] | None:
    """Read a list with an entry for each layer, None if there is none; raises CheckpointError."""
    value, layers = config.get(name), whole(config, "num_hidden_layers")
    if value is not None and (not isinstance(value, list) or len(value) != layers):
        raise CheckpointError(
            f"{name} is {shown(value)}; it must have an entry for each of the {layers} layers."
        )
    return value


def _shared(name: str, values: list[Any]) -> Any:
    """Return the value that all layers of a kind share, None if none is listed; raises CheckpointError."""
    if any(value != values[0] for value in values):
        raise CheckpointError(
            f"{name} has {shown(values)} for layers of the same kind; these values must be equal."
        )
    return values[0] if values else None


ULTRABERT = Family(
    name="ultrabert",
    read_config=read_config,
    names=decoder.NAMES,
    block_names=decoder.BLOCK_NAMES,
    dropped=decoder.DROPPED,
    heads={"head.*": "masked words", "cls.*": "masked words", "classifier.*": "classes"},
    prefixes=("model.", "ultrabert."),
    predictors={
        "classification": PredictorTable(
            (linear("classifier"),), pooled_by("classifier_pooling", {"cls": "cls", "mean": "mean"})
        ),
        "token_classification": TOKEN_CLASSES,
        "masked_words": PredictorTable(
            (
                linear("head.linear1", activation="GELUTanh"),
                linear("head.linear2", activation="GELUTanh"),
                words(("head.decoder.weight", "cls.weight", "embed_tokens.weight"), ()),
            )
        ),
    },
)
