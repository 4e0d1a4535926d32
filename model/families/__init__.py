"""One small file per checkpoint family: a literal table of weight names and what differs from BERT."""

from model.families.bert import BERT
from model.families.family import Family

FAMILIES: dict[str, Family] = {family.name: family for family in (BERT,)}
"""Keyed by the `model_type` of a checkpoint's config.json."""
