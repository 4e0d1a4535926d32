"""`/similarity`: the cosines of a sentence with others."""

from typing import ClassVar

from pydantic import Field, StrictStr
from starlette.responses import Response

from service.http.request_schema import check_count
from service.protocols.embedding import compare
from service.protocols.exchange import Exchange
from service.protocols.lenient import Asked, Fields
from service.protocols.tei.errors import EmptyInput, EmptyList
from service.protocols.tei.fields import PROMPT_NAME, Strings, Truncated
from service.tasks.compare import CompareOptions

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


class TeiSimilarityRequest(Asked):
    """Sentences to compare."""

    example: ClassVar[str] = '{"inputs": {"source_sentence": "a text", "sentences": ["another"]}}'

    inputs: Sentences = Field(description="An object with `source_sentence` and `sentences`.")
    parameters: SimilarityParameters = Field(
        default_factory=SimilarityParameters, description="Truncation, and the prompt of all sentences."
    )

    def check(self, _: int, limit: int) -> None:
        """Raise a problem if there are too many sentences or none, or if one is empty."""
        check_count(len(self.inputs), limit, "sentences")
        if not self.inputs.sentences:
            raise EmptyList("inputs.sentences")
        if not (self.inputs.source_sentence and all(self.inputs.sentences)):
            raise EmptyInput("`inputs`", "inputs")

    @property
    def characters(self) -> int:
        """The number of Unicode code points in the response's header."""
        return sum(map(len, (self.inputs.source_sentence, *self.inputs.sentences)))


async def similarity(exchange: Exchange, body: TeiSimilarityRequest) -> Response:
    """Return the cosine of a sentence's vector with that of each other."""
    inputs, options = body.inputs, body.parameters
    exchange.value, exchange.names = lambda item: item.arrays["similarities"], _NAMES
    asked = CompareOptions(
        inputs.sentences,
        inputs.source_sentence,
        "cosine",
        prompt_name=options.prompt_name,
        truncation=options.truncation,
    )
    return await compare(exchange, asked)
