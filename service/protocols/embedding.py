"""Answers with the vectors of texts, and with their similarities, whatever the protocol."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from model.contract import Encoding, ModelInfo
from service.http.delivery import Work
from service.protocols.exchange import Exchange
from service.replies.answer_size import bound
from service.replies.compression import CODINGS
from service.tasks.compare import CompareOptions, Comparison
from service.tasks.embed import OWN_VECTORS, EncodePlan, plan_encode
from service.tasks.prompts import choose_prompt, choose_task, find_prompt
from service.tasks.results import Expected, Item
from service.tasks.view import View

# Copies of the vectors: from the batches and in one array; to compare them, two more of unit length.
_COPIES, _COMPARED_COPIES = 2, 4
_SIMILARITIES = "similarities"
_FLOAT_BYTES = 4
# Bytes of JSON for the field that names the function.
_FUNCTION_BYTES = 40


async def embed(
    exchange: Exchange,
    plan: EncodePlan,
    encodings: Sequence[Encoding],
    way_out: str,
    *,
    column_bytes: int = 0,
) -> Response:
    """Answer with an item for each input: its vectors, and its index in at most `column_bytes` of JSON."""

    def view(index: int, encoding: Encoding) -> View:
        expected = Expected(plan.shapes(encoding), column_bytes=column_bytes)
        return View(plan.want(encoding), {"index": index}, expected, precision=plan.precision)

    return await exchange.answer(exchange.style(precision=plan.precision), encodings, view, way_out)


async def embed_together(
    exchange: Exchange,
    plan: EncodePlan,
    encodings: Sequence[Encoding],
    way_out: str,
    *,
    more_bytes: int,
    types: int = 1,
    binary: bool = False,
    codings: tuple[str, ...] = CODINGS,
    headers: Mapping[bytes, bytes] = MappingProxyType({}),
) -> Response:
    """Answer with one item: the sentence vectors of all inputs, as an array (inputs, components).

    They are written as text in this number of `types`, or as bytes if `binary`; the rest has `more_bytes`.
    """
    style, size = exchange.style(), plan.sentence_size
    exchange.reserve_arrays((len(encodings), size), copies=_COPIES)
    if binary:
        most = more_bytes + _FLOAT_BYTES * len(encodings) * size
    else:
        most = more_bytes + bound(style, [Expected({"embedding": (types * size,)})] * len(encodings))
    exchange.reserve_answer(style, most, way_out)
    delivery = exchange.delivery(style, Work.of(encodings), most)
    delivery.codings, delivery.headers = codings, headers
    result = await exchange.run(encodings, [plan.want(one) for one in encodings])
    vectors = [output.sentence for output in result.outputs if output.sentence is not None]
    return await delivery.deliver(Item({}, {"embedding": np.stack(some)}) for some in (vectors,))


async def compare(exchange: Exchange, options: CompareOptions) -> Response:
    """Answer with the similarities of the texts."""
    info = exchange.engine.info
    plan = plan_encode(OWN_VECTORS, info, choose_task(info, options.task))
    prompt = choose_prompt(info, options.prompt_name, options.prompt)
    every, shape = options.every, options.shape
    style = exchange.style(listed=False)
    size = bound(style, [Expected({_SIMILARITIES: shape}, column_bytes=_FUNCTION_BYTES)])
    exchange.reserve_answer(style, size, _way_out(options, exchange))
    exchange.reserve_arrays((len(every), plan.sentence_size), copies=_COMPARED_COPIES)
    encodings = await exchange.tokenize(every, options.truncation, prompt, options.place)
    delivery = exchange.delivery(style, Work.of(encodings), size)
    result = await exchange.run(encodings, [plan.want(encoding) for encoding in encodings])
    function = options.function or info.similarity
    comparison = Comparison(options, function, result.outputs)
    while await delivery.serialize(comparison.step, short=comparison.short):
        pass
    return await delivery.deliver([Item({"function": function}, {_SIMILARITIES: comparison.similarities})])


def _way_out(options: CompareOptions, exchange: Exchange) -> str:
    """Suggest what would make this request's response smaller."""
    ways = [f"send fewer `{exchange.name('texts')}`"]
    ways += [f"compare them with one `{exchange.name('source')}`"] if options.source is None else []
    parsed = exchange.parsed
    ways += (
        ["set Accept to application/x-npz"]
        if parsed.format == "json" and "npz" in parsed.body.formats
        else []
    )
    return ", or ".join(ways)


def prompt_of(input_type: str | None, info: ModelInfo) -> str:
    """Return the model's prompt for the purpose `input_type`; if that is None, its default prompt.

    Raises OptionError for an unknown purpose.
    """
    if input_type is None:
        return choose_prompt(info)
    name = find_prompt("input_type", input_type, info)
    return "" if name is None else info.prompts[name]


def vector(item: Item) -> NDArray[Any]:
    """Return the vector of an item, which is all that some protocols write of it."""
    return item.arrays["embedding"]
