"""All endpoints: those of each protocol, and the operational ones."""

from service.endpoints import Endpoints
from service.protocols import operations
from service.protocols.native import routes as native

ENDPOINTS = Endpoints([*native.ENDPOINTS, *operations.ENDPOINTS])
