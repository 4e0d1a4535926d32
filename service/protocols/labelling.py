"""Answers with the labels of texts, or of their tokens, whatever the protocol."""

from collections.abc import Sequence

from starlette.responses import Response

from model.contract import Encoding, HeadInfo
from model.tokenization.tokenizer import Text, Truncation
from service.protocols.exchange import Exchange
from service.protocols.ways_out import any_of, smaller_maps
from service.tasks.attend import AttendOptions, plan_attention
from service.tasks.embed import NO_VECTORS, plan_encode
from service.tasks.label import Labelling, TokenizedInput, add_labels
from service.tasks.view import View


async def label(
    exchange: Exchange,
    inputs: Sequence[Text],
    truncation: Truncation,
    head: HeadInfo,
    labelling: Labelling,
    maps: AttendOptions | None = None,
    fewer: str = "top_k",
) -> Response:
    """Answer with what `labelling` makes of the logits of each input, and with its maps.

    `fewer` is the field that limits the labels of a text.
    """
    info = exchange.engine.info
    base = plan_encode(NO_VECTORS, info, info.default_task)
    plan = None if maps is None else plan_attention(maps, info, base)
    encodings = await exchange.tokenize(inputs, truncation)

    style = exchange.style() if plan is None else exchange.style(unit=plan.unit, axes=plan.axes)

    def view(index: int, encoding: Encoding) -> View:
        text = inputs[index]
        plain = (base if plan is None else plan).view(index, encoding, text)
        return add_labels(plain, labelling, len(head.labels), TokenizedInput(encoding, text))

    ways = ["send fewer inputs"]
    ways += [f"lower `{fewer}`"] if head.kind == "classification" else ["send shorter texts"]
    ways += [] if maps is None else smaller_maps(maps, exchange)
    return await exchange.answer(style, encodings, view, any_of(ways))
