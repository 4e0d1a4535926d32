"""Answers with explanations: several sequences run for each item of the response."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import accumulate, chain

from starlette.responses import Response

from model.contract import Encoding, Output
from service.engine.engine import Arrivals
from service.http.delivery import Work
from service.protocols.exchange import Exchange
from service.protocols.ways_out import any_of
from service.replies.answer_size import bound, waiting_bytes
from service.tasks.explain import ExplainOptions, Explanation
from service.tasks.parts import InteractionParts, plan_parts
from service.tasks.prompts import choose_prompt
from service.tasks.results import Item


async def explain(exchange: Exchange, options: ExplainOptions) -> Response:
    """Answer with an explanation of each input."""
    info = exchange.engine.info
    plan = plan_parts(options, info)
    prompt = choose_prompt(info, options.prompt_name, options.prompt)
    encodings = await _tokenize(exchange, options, prompt, roles=isinstance(plan, InteractionParts))
    work = sum(map(len, chain.from_iterable(encodings)))
    explanations = await exchange.off_loop(
        lambda: [plan.explain(index, some) for index, some in enumerate(encodings)], work
    )
    return await _answer(exchange, options, explanations)


async def _tokenize(
    exchange: Exchange, options: ExplainOptions, prompt: str, *, roles: bool
) -> list[list[Encoding]]:
    """Tokenize the two texts of each pair apart."""
    pairs = [text for text in options.inputs if not isinstance(text, str)]
    truncation = options.truncation
    if roles:
        queries = await exchange.tokenize(
            [query for query, _ in pairs], truncation, place="inputs.{}.0".format, role="query"
        )
        documents = await exchange.tokenize(
            [text for _, text in pairs], truncation, place="inputs.{}.1".format, role="document"
        )
        return [list(one) for one in zip(queries, documents, strict=True)]
    texts = [text for pair in pairs for text in pair]
    encodings = await exchange.tokenize(texts, truncation, prompt, _place)
    return [encodings[i : i + 2] for i in range(0, len(encodings), 2)]


def _place(index: int) -> str:
    return f"inputs.{index // 2}.{index % 2}"


async def _answer(
    exchange: Exchange, options: ExplainOptions, explanations: Sequence[Explanation]
) -> Response:
    """Run the sequences of all items together, and answer with an item for each explanation."""
    style = exchange.style(method=options.method)
    expected = [one.expected for one in explanations]
    size, waiting = bound(style, expected), waiting_bytes(style, expected)
    exchange.reserve_answer(style, size, _way_out(exchange), waiting=waiting)
    encodings = [encoding for one in explanations for encoding in one.encodings]
    wants = [want for one in explanations for want in one.wants]
    truncated = sum(bool(one.columns["truncated"]) for one in explanations)
    work = Work(len(explanations), truncated, sum(map(len, encodings)))
    exchange.context.record.tokens = work.tokens
    delivery = exchange.delivery(style, work, size + waiting)
    groups = _Groups([len(one.encodings) for one in explanations])

    def make_item(index: int, _: Output) -> Item:
        return explanations[index].item(groups.take(index))

    if style.format == "ndjson":
        stream = groups.complete(exchange.stream(encodings, wants))
        return await delivery.deliver_lines(stream, exchange.in_time, make_item)
    result = await exchange.run(encodings, wants)
    for number, output in enumerate(result.outputs):
        groups.add(number, output)
    return await delivery.deliver(make_item(index, Output()) for index in range(len(explanations)))


class _Groups:
    """The outputs of sequences that belong together, numbered from the first sequence of the first group."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._starts = list(accumulate(sizes, initial=0))
        self._group = [group for group, size in enumerate(sizes) for _ in range(size)]
        self._outputs: list[dict[int, Output]] = [{} for _ in sizes]

    def add(self, number: int, output: Output) -> int | None:
        """Take the output of a sequence; returns its group if all outputs of it are there."""
        group = self._group[number]
        self._outputs[group][number] = output
        return group if len(self._outputs[group]) == self._sizes[group] else None

    def take(self, group: int) -> list[Output]:
        """Hand out the outputs of a group, in order, and keep them no longer."""
        found, self._outputs[group] = self._outputs[group], {}
        return [found[number] for number in range(self._starts[group], self._starts[group + 1])]

    async def complete(self, stream: AsyncGenerator[Arrivals, None]) -> AsyncGenerator[Arrivals, None]:
        """Yield an arrival for each group once all of its outputs have arrived."""
        async with aclosing(stream):
            async for arrivals in stream:
                ready = [self.add(number, output) for number, output in arrivals.outputs]
                outputs = [(group, Output()) for group in ready if group is not None]
                if outputs:
                    yield Arrivals(outputs, arrivals.queue_s)


def _way_out(exchange: Exchange) -> str:
    ways = ["send fewer or shorter inputs", 'choose a larger `unit`: "word" or "sentence"']
    return any_of([*ways, "accept application/x-npz"] if exchange.parsed.format == "json" else ways)
