"""`/status/server` and `/status/client`: what the service runs, and how it answers."""

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from service.http.request_context import context_of
from service.lifecycle import VERSION, ServiceState
from service.protocols.bert.encode import plan_defaults
from service.protocols.json_response import json_response


class BertServerStatus(BaseModel):
    """The first model, as `/encode` runs the texts of this protocol, and the limits."""

    model_dir: str = Field(description="The name of the model.")
    max_seq_len: int = Field(description="Tokens of a text.")
    max_batch_size: int = Field(description="Texts of a request.")
    pooling_layer: list[int] = Field(description="Counted from the end.")
    pooling_strategy: str
    cpu: bool
    server_version: str
    status: int = 200


class BertClientStatus(BaseModel):
    """How a client is answered."""

    identity: str = Field(description="The id of the request.")
    output_fmt: str = "list"
    server_version: str
    status: int = 200


async def server_status(request: Request) -> Response:
    """Describe the first model and the limits."""
    state: ServiceState = request.app.state.service
    state.check_ready()
    engine = state.engine(None)
    sentence = plan_defaults(engine.info).sentence
    layers, modes = ((), ()) if sentence is None else (sentence.layers, sentence.modes)
    found = BertServerStatus(
        model_dir=engine.name,
        max_seq_len=engine.info.max_length,
        max_batch_size=state.settings.max_inputs,
        pooling_layer=[layer - engine.info.layers - 1 for layer in layers],
        pooling_strategy="_".join(modes),
        cpu=engine.info.device == "cpu",
        server_version=VERSION,
    )
    return json_response(found)


async def client_status(request: Request) -> Response:
    """Describe how this client is answered."""
    identity = context_of(request.scope).request_id
    return json_response(BertClientStatus(identity=identity, server_version=VERSION))
