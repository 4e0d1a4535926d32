"""jina-embeddings-v2 (Günther et al. 2023): BERT with ALiBi and gated feed-forward layers, by jina's code.

Its `model_type` is "bert"; the code that `auto_map` names defines what is computed. It has two versions:
the second, for source code, also normalises queries and keys.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.encoder.config import EncoderConfig
from model.encoder.parts import Activation
from model.errors import CheckpointError
from model.families.bert import bert
from model.families.family import Family, Part, either_below
from model.families.reading.options import plain
from model.fields import whole

_GATES: dict[str, Activation] = {"geglu": "gelu", "reglu": "relu"}


def read_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a `config.json` of jina's BERT; raises CheckpointError for options that are not supported."""
    positions = config.get("position_embedding_type", "absolute")
    if positions != "alibi":
        raise CheckpointError(
            f'position_embedding_type "{plain(positions)}" is not supported with jina\'s code, only "alibi".'
        )
    kind = config.get("feed_forward_type", "original")
    if not isinstance(kind, str) or kind not in ("original", *_GATES):
        raise CheckpointError(
            f'feed_forward_type "{plain(kind)}" is not supported, only {", ".join(_GATES)} or original.'
        )
    encoder = bert.read_config({**config, "position_embedding_type": "absolute"})
    gated = kind != "original"
    return replace(
        encoder,
        positions="none",
        alibi=True,
        activation=_GATES.get(kind, encoder.activation),
        gated=gated,
        inner_bias=not gated,
        longest=whole(config, "max_position_embeddings"),
    )


def read_qk_config(config: Mapping[str, Any]) -> EncoderConfig:
    """Read a `config.json` of the version that normalises queries and keys; raises CheckpointError."""
    encoder = read_config(config)
    if not encoder.gated:
        raise CheckpointError(
            f'feed_forward_type "original" is not supported with layer norms of queries and keys, only '
            f"{', '.join(_GATES)}."
        )
    return replace(encoder, qk_norm="joint", double_residual=True)


_LAYER = "encoder.layer.{}."
_UP_AND_GATE = f"{_LAYER}mlp.up_gated_layer.weight"


_either = either_below(_LAYER, _LAYER)


JINA_BERT = replace(
    bert.BERT,
    name="jina_bert",
    read_config=read_config,
    block_names={
        **bert.BERT.block_names,
        "feed_forward.inner.weight": _either("mlp.gated_layers.weight", "intermediate.dense.weight"),
        "feed_forward.outer.weight": _either("mlp.wo.weight", "output.dense.weight"),
        "feed_forward.outer.bias": _either("mlp.wo.bias", "output.dense.bias"),
        "feed_forward_norm.weight": _either("mlp.layernorm.weight", "output.LayerNorm.weight"),
        "feed_forward_norm.bias": _either("mlp.layernorm.bias", "output.LayerNorm.bias"),
    },
)

JINA_BERT_QK: Family = replace(
    bert.BERT,
    name="jina_bert_qk",
    read_config=read_qk_config,
    block_names={
        **bert.BERT.block_names,
        "attention.query_norm.weight": (f"{_LAYER}attention.self.layer_norm_q.weight",),
        "attention.query_norm.bias": (f"{_LAYER}attention.self.layer_norm_q.bias",),
        "attention.key_norm.weight": (f"{_LAYER}attention.self.layer_norm_k.weight",),
        "attention.key_norm.bias": (f"{_LAYER}attention.self.layer_norm_k.bias",),
        "attention_output_norm.weight": (f"{_LAYER}attention.output.LayerNorm.weight",),
        "attention_output_norm.bias": (f"{_LAYER}attention.output.LayerNorm.bias",),
        "attention_norm.weight": (f"{_LAYER}layer_norm_1.weight",),
        "attention_norm.bias": (f"{_LAYER}layer_norm_1.bias",),
        # Here the gate is the second half; in our layout it is the first.
        "feed_forward.inner.weight": (Part(_UP_AND_GATE, 1, 2), Part(_UP_AND_GATE, 0, 2)),
        "feed_forward.outer.weight": (f"{_LAYER}mlp.down_layer.weight",),
        "feed_forward.outer.bias": (f"{_LAYER}mlp.down_layer.bias",),
        "feed_forward_norm.weight": (f"{_LAYER}layer_norm_2.weight",),
        "feed_forward_norm.bias": (f"{_LAYER}layer_norm_2.bias",),
    },
)
