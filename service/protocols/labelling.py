"""Answers with the labels of texts, or of their tokens, whatever the protocol."""

from collections.abc import Sequence

from starlette.responses import Response

from model.contract import Encoding, HeadInfo
from model.tokenization.tokenizer import Text, Truncation
from service.protocols.exchange import Exchange
from service.protocols.ways_out import fewer_inputs, smaller_maps
from service.replies.too_large import TooLarge, largest
from service.tasks.attend import AttendOptions, plan_attention
from service.tasks.embed import NO_VECTORS, plan_encode
from service.tasks.label import Labelling, TextLabels, TokenizedInput, add_labels
from service.tasks.view import View


async def label(
    exchange: Exchange,
    inputs: Sequence[Text],
    truncation: Truncation,
    head: HeadInfo,
    labelling: Labelling,
    maps: AttendOptions | None = None,
    fewer_labels: str = "top_k",
) -> Response:
    """Answer with what `labelling` makes of the logits of each input, and with its maps.

    `fewer_labels` is the field that limits the labels of a text.
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

    def ways(refused: TooLarge) -> list[str]:
        found = fewer_inputs(refused)
        if isinstance(labelling, TextLabels):
            most = largest(lambda count: refused.fits(saved=labelling.saved(count)), labelling.top_k)
            found += [f"lower `{fewer_labels}` to {most}"] if most else []
        return found + ([] if maps is None else smaller_maps(maps, exchange, refused))

    return await exchange.answer(style, encodings, view, ways)
