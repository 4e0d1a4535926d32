"""The routes of the Open Inference Protocol; if two match a path, the first one counts."""

from service.protocols.contract import READS, Contract, Described
from service.protocols.oip import models
from service.protocols.oip.body import HEADER_LENGTH, read_inference
from service.protocols.oip.errors import STATUSES, InferenceError, write_error
from service.protocols.oip.infer import infer
from service.protocols.oip.schemas import InferenceRequest, InferenceResponse

_MODEL = "/v2/models/{model:path}"
_VERSION = f"{_MODEL}/versions/{{version}}"
_HEADER = {
    "name": HEADER_LENGTH,
    "in": "header",
    "required": False,
    "description": "The bytes of the JSON, if tensors follow it; 0 if the whole body is one text.",
    "schema": {"type": "integer", "minimum": 0},
}
_OCTETS = (
    f"JSON, whose size in bytes is the header {HEADER_LENGTH}, then the tensors that have a "
    "`binary_data_size` there, one after the other: little-endian, each text preceded by its size in four "
    "bytes."
)


_OIP = Contract(
    "oip",
    "Open Inference Protocol",
    InferenceError,
    write_error,
    STATUSES,
    read_inference,
    clients="Triton's and KServe's",
)
_NOT_SERVED = (
    f"{_MODEL}/config",
    f"{_MODEL}/stats",
    f"{_MODEL}/generate",
    f"{_MODEL}/generate_stream",
    f"{_MODEL}/trace/setting",
    "/v2/models/stats",
    "/v2/trace/setting",
    "/v2/logging",
    "/v2/repository/models/{model:path}",
    "/v2/systemsharedmemory/{call:path}",
    "/v2/cudasharedmemory/{call:path}",
)
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_LISTS = ("unauthorized", "not-ready")
_FINDS = (*_LISTS, "model-not-found")
_UNKNOWN = ("unauthorized", "not-found")

ENDPOINTS = (
    _OIP.operation("/v2", models.server, "The server", "unauthorized"),
    _OIP.operation("/v2/health/live", models.live, "Is the process alive? As /livez."),
    _OIP.operation("/v2/health/ready", models.ready, "Is the service ready? As /readyz.", "not-ready"),
    _OIP.operation("/v2/models", models.models, "The names of the served models", *_LISTS),
    _OIP.operation(
        "/v2/repository/index",
        models.index,
        "The served models and their state",
        *_LISTS,
        *READS,
        response=list[Described],
        methods=("POST",),
    ),
    *(
        _OIP.operation(path, models.not_served, None, *_UNKNOWN, methods=("GET", "POST"), route="/v2")
        for path in _NOT_SERVED
    ),
    *(
        _OIP.answering(
            f"{path}/infer",
            infer,
            "Vectors of texts",
            InferenceRequest,
            InferenceResponse,
            route="/v2/models/infer",
            headers=(_HEADER,),
            octets=_OCTETS,
        )
        for path in (_VERSION, _MODEL)
    ),
    _OIP.operation(f"{_VERSION}/ready", models.model_ready, "Is this version of a model ready?", *_FINDS),
    _OIP.operation(f"{_MODEL}/ready", models.model_ready, "Is a model ready?", *_FINDS),
    _OIP.operation(_VERSION, models.model_metadata, "A version of a model", *_FINDS),
    _OIP.operation(_MODEL, models.model_metadata, "A model: its inputs and outputs", *_FINDS),
    _OIP.operation(
        "/v2/{call:path}",
        models.unknown,
        None,
        *_UNKNOWN,
        "model-not-found",
        methods=_METHODS,
        route="/v2",
    ),
)
