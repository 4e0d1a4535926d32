"""The headers in which the original reports the work of a successful request."""

from typing import Any

from starlette.responses import Response

from service.protocols.contract import Answer, elapsed_s
from service.protocols.exchange import Exchange

_STAGES = {"tokenization": "tokenize", "queue": "queue", "inference": "compute"}


def with_headers(answer: Answer) -> Answer:
    """Add the headers to the responses of a route; its requests have a property `characters`."""

    async def measured(exchange: Exchange, body: Any) -> Response:
        response = await answer(exchange, body)
        _add_headers(response, exchange, body.characters)
        return response

    measured.__doc__ = answer.__doc__
    return measured


def _add_headers(response: Response, exchange: Exchange, characters: int) -> None:
    """Add the headers to a response; `characters` is what one of them reports.

    Times are in whole milliseconds. The inputs of a request run together, so each takes the time of all.
    """
    record, headers = exchange.context.record, response.headers
    total = str(int(1e3 * elapsed_s(exchange)))
    device = "cpu" if exchange.engine.info.device == "cpu" else "gpu"
    headers["x-compute-type"] = f"{device}+optimized"
    headers["x-compute-time"] = headers["x-total-time"] = total
    headers["x-compute-characters"] = str(characters)
    headers["x-compute-tokens"] = str(record.tokens or 0)
    for name, stage in _STAGES.items():
        headers[f"x-{name}-time"] = str(int(1e3 * record.stages.get(stage, 0.0)))
