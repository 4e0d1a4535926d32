"""A client of headlight in Python, `Headlight` and `AsyncHeadlight`: numpy arrays, retries, typed errors.

It needs httpx and numpy, and nothing of the service itself.
"""

from headlight_client.answers import Answer, AttentionMaps, Encoded
from headlight_client.bertviz import BertViz
from headlight_client.client import AsyncHeadlight, Headlight
from headlight_client.errors import HeadlightConnectionError, HeadlightError, HeadlightTimeout, InputsError
from headlight_client.info import Info

__all__ = [
    "Answer",
    "AsyncHeadlight",
    "AttentionMaps",
    "BertViz",
    "Encoded",
    "Headlight",
    "HeadlightConnectionError",
    "HeadlightError",
    "HeadlightTimeout",
    "Info",
    "InputsError",
]
