"""Answers with the tokens of texts, whatever the protocol."""

from collections.abc import Callable, Sequence

from starlette.responses import Response

from model.contract import Encoding
from service.http.delivery import Work
from service.protocols.exchange import Exchange
from service.replies.answer_size import bound
from service.tasks.results import Expected, Item


async def answer_tokens(
    exchange: Exchange,
    encodings: Sequence[Encoding],
    column_bytes: Callable[[int, Encoding], int],
    item: Callable[[int, Encoding], Item],
    way_out: str,
) -> Response:
    """Answer with an item for each text, by its index and its tokens, in at most `column_bytes` of JSON.

    `way_out` says how to make a response smaller.
    """
    style = exchange.style()

    def size_of() -> int:
        expected = [Expected(column_bytes=column_bytes(*one)) for one in enumerate(encodings)]
        return bound(style, encodings, expected)

    size = await exchange.off_loop(size_of, sum(map(len, encodings)))
    exchange.reserve_answer(style, size, way_out)
    work = Work(len(encodings), sum(encoding.truncated for encoding in encodings))
    return await exchange.delivery(style, work, size).deliver(item(*one) for one in enumerate(encodings))
