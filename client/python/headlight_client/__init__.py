"""The Python client of headlight, `Headlight` and `AsyncHeadlight`: numpy arrays, retries, typed errors.

It depends on httpx, numpy and anyio, not on the service.
"""

from headlight_client.answers import Answer, AttentionMaps, Chunks, Encoded, LogitLens, SparseVector, Tokens
from headlight_client.bertviz import BertViz
from headlight_client.client import AsyncHeadlight, Headlight
from headlight_client.errors import HeadlightConnectionError, HeadlightError, HeadlightTimeout, InputsError
from headlight_client.explanations import Explained, Units
from headlight_client.info import Info
from headlight_client.notebook import Explorer
from headlight_client.predictions import Entity, Label, Predicted, Ranked
from headlight_client.similarities import Similarities

__all__ = [
    "Answer",
    "AsyncHeadlight",
    "AttentionMaps",
    "BertViz",
    "Chunks",
    "Encoded",
    "Entity",
    "Explained",
    "Explorer",
    "Headlight",
    "HeadlightConnectionError",
    "HeadlightError",
    "HeadlightTimeout",
    "Info",
    "InputsError",
    "Label",
    "LogitLens",
    "Predicted",
    "Ranked",
    "Similarities",
    "SparseVector",
    "Tokens",
    "Units",
]
