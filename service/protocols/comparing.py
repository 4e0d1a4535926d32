"""Answers with the similarities of texts, whatever the protocol."""

from starlette.responses import Response

from service.http.delivery import Work
from service.protocols.exchange import Exchange
from service.replies.answer_size import bound
from service.tasks.compare import CompareOptions, Comparison
from service.tasks.embed import OWN_VECTORS, plan_encode
from service.tasks.prompts import choose_prompt, choose_task
from service.tasks.results import Expected, Item

_ARRAY = "similarities"
_FUNCTION_BYTES = 40
# Copies of the vectors while they are compared: those of the batches, an array of them, two of unit length.
_COPIES = 4


async def compare(exchange: Exchange, options: CompareOptions) -> Response:
    """Answer with the similarities of the texts."""
    info = exchange.engine.info
    plan = plan_encode(OWN_VECTORS, info, choose_task(info, options.task))
    prompt = choose_prompt(info, options.prompt_name, options.prompt)
    every, shape = options.every, options.shape
    style = exchange.style(listed=False)
    size = bound(style, [Expected({_ARRAY: shape}, column_bytes=_FUNCTION_BYTES)])
    exchange.reserve_answer(style, size, _way_out(options, exchange))
    exchange.reserve_arrays((len(every), plan.sentence_size), copies=_COPIES)
    encodings = await exchange.tokenize(every, options.truncation, prompt, options.place)
    delivery = exchange.delivery(style, Work.of(encodings), size)
    result = await exchange.run(delivery, encodings, [plan.want(encoding) for encoding in encodings])
    function = options.function or info.similarity
    comparison = Comparison(options, function, result.outputs)
    while await delivery.serialize(comparison.step, short=comparison.short):
        pass
    return await delivery.deliver([Item({"function": function}, {_ARRAY: comparison.similarities})])


def _way_out(options: CompareOptions, exchange: Exchange) -> str:
    """Suggest what would make this request's response smaller."""
    ways = [f"send fewer `{exchange.name('texts')}`"]
    ways += [f"compare them with one `{exchange.name('source')}`"] if options.source is None else []
    parsed = exchange.parsed
    ways += ["accept application/x-npz"] if parsed.format == "json" and "npz" in parsed.body.formats else []
    return ", or ".join(ways)
