"""Responses of routes that only describe: an object as JSON."""

from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response

JSON = "application/json"
Described = dict[str, Any]
"""The type of a response whose fields only the documents of its protocol describe."""


def json_response(found: object) -> Response:
    """Build the response, for a model of pydantic or for what orjson writes."""
    if isinstance(found, BaseModel):
        return Response(found.model_dump_json(), media_type=JSON)
    return Response(orjson.dumps(found, option=orjson.OPT_UTC_Z), media_type=JSON)
