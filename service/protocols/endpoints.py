"""All endpoints: those of each protocol, and the operational ones."""

from service.endpoints import Endpoints
from service.protocols import operations
from service.protocols.native import decode, predict, rerank, routes, similarity, tokenize

_NATIVE = (routes, predict, rerank, similarity, tokenize, decode)

ENDPOINTS = Endpoints(
    [*(endpoint for protocol in _NATIVE for endpoint in protocol.ENDPOINTS), *operations.ENDPOINTS]
)
