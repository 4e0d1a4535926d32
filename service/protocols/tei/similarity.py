"""`/similarity`: the cosines of a sentence with others."""

from typing import Any, ClassVar

from pydantic import Field, StrictStr
from starlette.requests import Request
from starlette.responses import Response

from service.http.request_body import check_count, read_request
from service.protocols.comparing import compare
from service.protocols.exchange import Exchange
from service.protocols.lenient import Fields
from service.protocols.tei.errors import EmptyInput, EmptyList
from service.protocols.tei.fields import PROMPT_NAME, Strings, TeiRequest, Truncated
from service.protocols.tei.headers import add_headers
from service.tasks.compare import CompareOptions
from service.tasks.results import Item

_NAMES = {
    "texts": "inputs.sentences",
    "source": "inputs.source_sentence",
    "prompt_name": "parameters.prompt_name",
}


class Sentences(Fields):
    """A sentence, and those that it is compared with."""

    source_sentence: StrictStr = Field(description="The sentence that the others are compared with.")
    sentences: Strings = Field(description="The other sentences.")

    def __len__(self) -> int:
        return len(self.sentences)


class SimilarityParameters(Truncated):
    """Options."""

    prompt_name: StrictStr | None = PROMPT_NAME


class TeiSimilarityRequest(TeiRequest):
    """Sentences to compare."""

    example: ClassVar[str] = '{"inputs": {"source_sentence": "a text", "sentences": ["another"]}}'

    inputs: Sentences = Field(description="An object with `source_sentence` and `sentences`.")
    parameters: SimilarityParameters = Field(
        default_factory=SimilarityParameters, description="Truncation, and the prompt of all sentences."
    )


async def similarity(request: Request) -> Response:
    """Return the cosine of a sentence's vector with that of each other."""
    parsed = await read_request(request, TeiSimilarityRequest)
    inputs = parsed.body.inputs
    check_count(len(inputs), request.app.state.service.settings, "sentences")
    if not inputs.sentences:
        raise EmptyList("inputs.sentences")
    if not (inputs.source_sentence and all(inputs.sentences)):
        raise EmptyInput("`inputs`", "inputs")
    exchange = Exchange.open(request, parsed)
    return await exchange.in_time(_similarity(exchange, parsed.body))


async def _similarity(exchange: Exchange, body: TeiSimilarityRequest) -> Response:
    inputs, options = body.inputs, body.parameters
    exchange.value, exchange.names = _similarities, _NAMES
    asked = CompareOptions(
        inputs.sentences,
        inputs.source_sentence,
        "cosine",
        prompt_name=options.prompt_name,
        truncation=options.truncation,
    )
    response = await compare(exchange, asked)
    return add_headers(response, exchange, sum(map(len, (inputs.source_sentence, *inputs.sentences))))


def _similarities(item: Item) -> Any:
    return item.arrays["similarities"]
