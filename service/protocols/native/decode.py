"""`POST /decode`: token ids to text."""

from typing import ClassVar

from pydantic import BaseModel, Field, StrictBool, StrictStr
from starlette.responses import Response

from service.http.request_schema import RequestSchema
from service.protocols.decoding import check_counts, decode_ids
from service.protocols.exchange import Exchange
from service.protocols.fields import MAX_IDS, Options, TokenIds
from service.protocols.native.responses import Usage
from service.protocols.native.schemas import MODEL


class DecodeRequest(Options, RequestSchema):
    """Token ids to turn into text."""

    listed: ClassVar[str] = "token_ids"
    example: ClassVar[str] = '{"token_ids": [101, 102]}'
    elsewhere: ClassVar[dict[str, str]] = {"ids": "/tei/decode"}
    most_numbers: ClassVar[int] = MAX_IDS

    model: StrictStr | None = MODEL
    token_ids: TokenIds = Field(
        description=f"The ids of one text, or a list of such lists, with at most {MAX_IDS} ids in all. An "
        "empty list within a list is an empty text.",
        examples=[[101, 7592, 102], [[101, 7592, 102], []]],
    )
    skip_special_tokens: StrictBool = Field(
        True,  # noqa: FBT003
        description='Leave out special tokens, including those of a literal "[SEP]" in a text, which '
        "has the same id.",
    )

    def check(self, count: int, limit: int) -> None:
        """Raise a problem if too many lists or ids (`count`) were sent."""
        check_counts(self.token_ids, count, limit, self.listed)


class DecodedItem(BaseModel):
    """The text of one list of ids."""

    index: int = Field(ge=0, description="The index of the list.")
    text: str


class DecodeResponse(BaseModel):
    """The response of `/decode`."""

    model: str
    data: list[DecodedItem]
    usage: Usage = Field(description="Always 0 tokens: no model runs.")


async def decode(exchange: Exchange, body: DecodeRequest) -> Response:
    """Turn token ids into text, as the model's tokenizer joins them."""
    return await decode_ids(
        exchange, body.token_ids, body.listed, skip_special_tokens=body.skip_special_tokens
    )
