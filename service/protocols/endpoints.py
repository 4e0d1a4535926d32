"""All endpoints: those of each protocol, and the operational ones."""

from collections.abc import Set
from dataclasses import replace
from importlib import import_module

from service.endpoints import Endpoints
from service.explorer import page
from service.protocols import documentation, operations
from service.protocols.native import routes as native
from service.protocols.openai import routes as openai
from service.protocols.tei import routes as tei
from service.setting_values import PROTOCOLS

# Protocols are named once, in the setting's values, so that reading settings imports none of them.
_OTHERS = tuple(import_module(f"service.protocols.{name}.routes") for name in PROTOCOLS)
# text-embeddings-inference has OpenAI's embeddings, too.
_TEI_EMBEDDINGS = tuple(
    replace(openai.EMBEDDINGS, path=path, summary=None, route=openai.EMBEDDINGS.path, protocol="tei")
    for path in ("/embeddings", tei.PREFIX + "/embeddings", tei.PREFIX + "/v1/embeddings")
)


def select_endpoints(protocols: Set[str], *, explorer: bool = True) -> Endpoints:
    """Build the table: the native endpoints, the operational ones, those of other protocols, the explorer."""
    others = (*(endpoint for module in _OTHERS for endpoint in module.ENDPOINTS), *_TEI_EMBEDDINGS)
    return Endpoints(
        [
            *native.ENDPOINTS,
            *(endpoint for endpoint in others if endpoint.protocol in protocols),
            *operations.ENDPOINTS,
            *documentation.ENDPOINTS,
            *(page.ENDPOINTS if explorer else ()),
        ]
    )


ENDPOINTS = select_endpoints(frozenset(PROTOCOLS))
"""The table with all protocols and the explorer."""
