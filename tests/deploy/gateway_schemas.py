"""As much of the Gateway API and of Envoy Gateway as deploy/kubernetes uses, as JSON schemas, and no more.

Written from the types of Gateway API 1.2 (`apis/v1`) and Envoy Gateway 1.2 (`api/v1alpha1`).
"""

from typing import Any

Schema = dict[str, Any]

_NAME: Schema = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_HOST: Schema = {
    "type": "string",
    "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_TIME: Schema = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_STATUS: Schema = {"type": "integer", "minimum": 100, "maximum": 599}
_TRIGGERS = [
    "5xx",
    "gateway-error",
    "reset",
    "connect-failure",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
]


def _object(*required: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": 64}


def _one_of(*choices: str) -> Schema:
    return {"enum": list(choices)}


def _resource(version: str, kind: str, spec: Schema) -> Schema:
    metadata = _object("name", name=_NAME, labels={"type": "object"})
    version_, kind_ = {"const": version}, {"const": kind}
    fields = {"apiVersion": version_, "kind": kind_, "metadata": metadata, "spec": spec}
    return _object(*fields, **fields)


_LISTENER = _object(
    "name",
    "port",
    "protocol",
    name=_NAME,
    port=_PORT,
    protocol=_one_of("HTTP", "HTTPS", "TLS", "TCP", "UDP"),
    hostname=_HOST,
    tls=_object(
        "certificateRefs", mode=_one_of("Terminate"), certificateRefs=_list(_object("name", name=_NAME))
    ),
    allowedRoutes=_object("namespaces", namespaces=_object("from", **{"from": _one_of("All", "Same")})),
)
_MATCH = _object(
    "path",
    path=_object(
        "type",
        "value",
        type=_one_of("Exact", "PathPrefix", "RegularExpression"),
        value={"type": "string", "pattern": "^/"},
    ),
)
_RULE = _object(
    "matches",
    "backendRefs",
    matches=_list(_MATCH),
    timeouts=_object(request=_TIME, backendRequest=_TIME),
    backendRefs=_list(_object("name", "port", name=_NAME, port=_PORT)),
)
_TARGET = _object(
    "group",
    "kind",
    "name",
    group=_one_of("gateway.networking.k8s.io"),
    kind=_one_of("Gateway", "HTTPRoute"),
    name=_NAME,
)
_POLICY = _object(
    "targetRefs",
    targetRefs=_list(_TARGET),
    loadBalancer=_object(
        "type", type=_one_of("LeastRequest", "RoundRobin"), slowStart=_object("window", window=_TIME)
    ),
    retry=_object(
        numRetries={"type": "integer", "minimum": 0},
        retryOn=_object(triggers=_list(_one_of(*_TRIGGERS)), httpStatusCodes=_list(_STATUS)),
    ),
    timeout=_object(http=_object(connectionIdleTimeout=_TIME, maxConnectionDuration=_TIME)),
    healthCheck=_object(
        active=_object(
            "type",
            "http",
            type=_one_of("HTTP"),
            interval=_TIME,
            timeout=_TIME,
            unhealthyThreshold=_COUNT,
            healthyThreshold=_COUNT,
            http=_object("path", path={"type": "string", "pattern": "^/"}, expectedStatuses=_list(_STATUS)),
        )
    ),
)

SCHEMAS: dict[str, Schema] = {
    "Gateway": _resource(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        _object("gatewayClassName", "listeners", gatewayClassName=_NAME, listeners=_list(_LISTENER)),
    ),
    "HTTPRoute": _resource(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        _object(
            "parentRefs",
            "rules",
            parentRefs=_list(_object("name", name=_NAME, sectionName=_NAME)),
            hostnames=_list(_HOST),
            rules=_list(_RULE),
        ),
    ),
    "BackendTrafficPolicy": _resource("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", _POLICY),
}
