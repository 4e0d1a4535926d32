"""All that can be asked: the endpoints of each protocol, and of operators."""

from service.endpoints import Endpoints
from service.protocols import operations
from service.protocols.native import routes as native

ENDPOINTS = Endpoints([*native.ENDPOINTS, *operations.ENDPOINTS])
