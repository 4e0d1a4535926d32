"""All checkpoint families, and how a checkpoint's is found."""

from collections.abc import Mapping
from typing import Any

from model.families.albert import ALBERT
from model.families.bert import BERT
from model.families.distilbert import DISTILBERT
from model.families.electra import ELECTRA
from model.families.esm import ESM
from model.families.eurobert import EUROBERT
from model.families.family import Family
from model.families.modernbert import MODERNBERT
from model.families.mpnet import MPNET
from model.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from model.families.t5 import MT5, T5, UMT5

_ALL = (
    BERT,
    ROBERTA,
    XLM_ROBERTA,
    CAMEMBERT,
    DISTILBERT,
    ELECTRA,
    ALBERT,
    MPNET,
    MODERNBERT,
    EUROBERT,
    T5,
    MT5,
    UMT5,
    ESM,
)

FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
"""Keyed by the `model_type` of a checkpoint's config.json."""


def find_family(config: Mapping[str, Any]) -> Family | None:
    """Find the family of a checkpoint by its config.json; None if it is not supported."""
    return FAMILIES.get(str(config.get("model_type")))
