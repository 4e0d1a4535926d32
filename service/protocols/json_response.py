"""Responses of routes that only describe: an object as JSON."""

from pydantic import BaseModel
from starlette.responses import Response

JSON = "application/json"


def json_response(found: BaseModel) -> Response:
    """Build the response."""
    return Response(found.model_dump_json(), media_type=JSON)
