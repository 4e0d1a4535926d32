"""All checkpoint families, and how the family of a checkpoint is found."""

from collections.abc import Mapping
from typing import Any

from model.families.bert.albert import ALBERT
from model.families.bert.bert import BERT
from model.families.bert.deberta import DEBERTA
from model.families.bert.distilbert import DISTILBERT
from model.families.bert.electra import ELECTRA
from model.families.bert.mpnet import MPNET
from model.families.bert.prenorm import MEGATRON_BERT, ROBERTA_PRENORM, XLM_ROBERTA_XL
from model.families.bert.rembert import REMBERT
from model.families.bert.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from model.families.decoders import embedding_gemma
from model.families.decoders.gemma import GEMMA, GEMMA3
from model.families.decoders.lfm2 import LFM2
from model.families.decoders.llama import LLAMA, LLAMA_BIDIRECTIONAL, MISTRAL
from model.families.decoders.qwen import JINA_V5, PPLX, QWEN2, QWEN3
from model.families.esm import ESM
from model.families.eurobert import EUROBERT
from model.families.family import Family
from model.families.gte import GTE, NEW
from model.families.jina.v2 import JINA_BERT, JINA_BERT_QK
from model.families.jina.v3 import JINA_V3, JINA_V3_ORIGINAL
from model.families.modernbert import MODERNBERT
from model.families.nomic import NOMIC_BERT
from model.families.own.headlight import HEADLIGHT
from model.families.t5 import MT5, T5, UMT5
from model.families.ultrabert import ULTRABERT
from model.files import shown

_ALL = (
    BERT,
    ROBERTA,
    XLM_ROBERTA,
    CAMEMBERT,
    ROBERTA_PRENORM,
    XLM_ROBERTA_XL,
    MEGATRON_BERT,
    DISTILBERT,
    ELECTRA,
    ALBERT,
    REMBERT,
    MPNET,
    DEBERTA,
    MODERNBERT,
    EUROBERT,
    ULTRABERT,
    QWEN3,
    JINA_V5,
    PPLX,
    QWEN2,
    GEMMA3,
    embedding_gemma.WHOLE,
    embedding_gemma.TEXT,
    GEMMA,
    LLAMA,
    LLAMA_BIDIRECTIONAL,
    MISTRAL,
    LFM2,
    NOMIC_BERT,
    GTE,
    NEW,
    T5,
    MT5,
    UMT5,
    ESM,
    JINA_V3,
    JINA_V3_ORIGINAL,
    JINA_BERT,
    JINA_BERT_QK,
    HEADLIGHT,
)

FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
"""Keyed by the `model_type` in config.json, or by a name of our own if another family has that type."""


_BY_CODE: tuple[tuple[str, str, Family], ...] = (
    ("bert", "jina-bert-v2-qk-post-norm--", JINA_BERT_QK),
    ("bert", "JinaBertConfig", JINA_BERT),
    ("xlm-roberta", "XLMRobertaFlashConfig", JINA_V3_ORIGINAL),
)
"""A model_type, part of the name of code in `auto_map`, and the other family that this code computes.

Code that is not listed here is ignored.
"""


def find_family(config: Mapping[str, Any]) -> Family | None:
    """Find the family of a checkpoint by its config.json; None if it is not supported."""
    return _find_by_code(config) or FAMILIES.get(str(config.get("model_type")))


def explain_unsupported(config: Mapping[str, Any]) -> str:
    """Say why `find_family` finds none, and what to do."""
    if config.get("model_type") is None:
        return (
            "the field model_type is missing; add it, with the family of the weights: one of "
            f"{', '.join(FAMILIES)}"
        )
    return (
        f"model_type {shown(config.get('model_type'))} is not one of the supported families: "
        f"{', '.join(FAMILIES)}; to serve embeddings of any other family, provide an ONNX graph as "
        "onnx/model.onnx and set HEADLIGHT_BACKEND=onnx"
    )


def _find_by_code(config: Mapping[str, Any]) -> Family | None:
    """Find the family that the code in `auto_map` computes, if _BY_CODE lists it; None otherwise."""
    named = config.get("auto_map")
    code = str(named.get("AutoConfig")) if isinstance(named, dict) else ""
    listed = (found for kind, part, found in _BY_CODE if kind == config.get("model_type") and part in code)
    return next(listed, None)
