"""Answers with explanations: several sequences run for each item of the response."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import accumulate, chain

from starlette.responses import Response

from model.contract import Encoding, Output
from service.engine.engine import Arrivals
from service.http.delivery import Work
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.protocols.ways_out import any_of
from service.replies.answer_size import bound, waiting_bytes
from service.tasks.explain import ExplainOptions, Explanation, Method, units_of
from service.tasks.explaining import choose_target, plan_explanation
from service.tasks.prompts import choose_prompt
from service.tasks.results import Item
from service.tasks.targets import InteractionTarget, LabelTarget, Target
from service.tasks.units import Units

# What a further sequence takes while it waits: its ids and segments, and the objects around them (measured).
_TOKEN_BYTES, _SEQUENCE_BYTES = 16, 1500


async def explain(exchange: Exchange, options: ExplainOptions) -> Response:
    """Answer with an explanation of each input."""
    engine = exchange.engine
    target = choose_target(options, engine, exchange.state.engines)
    plan = plan_explanation(options, engine, target)
    encodings = await _tokenize(exchange, options, target)
    tokens = sum(map(len, chain.from_iterable(encodings)))

    def find_units() -> list[list[Units]]:
        return [units_of(options, index, some) for index, some in enumerate(encodings)]

    units = await exchange.off_loop(find_units, tokens)
    further = [plan.further(several) for several in units]
    sequences, more = (sum(counts) for counts in zip(*further, strict=True))
    _check_work(exchange, plan.each, sequences, tokens + more)
    exchange.reserve(_SEQUENCE_BYTES * sequences + _TOKEN_BYTES * more)
    explanations = await exchange.off_loop(
        lambda: [plan.explain(index, several) for index, several in enumerate(units)], tokens + more
    )
    return await _answer(exchange, plan.method, explanations)


def _check_work(exchange: Exchange, each: str, sequences: int, tokens: int) -> None:
    """Raise the 413 for more tokens than one client may have waiting."""
    limit = exchange.engine.max_queue_tokens // 2
    way_out = "send fewer or shorter inputs" + (", or choose a larger `unit`" if each == "unit" else "")
    if sequences and tokens > limit:
        raise Problem(
            "explanation-too-large",
            f"The texts would run {sequences} times more, each without one {each}, with {tokens} tokens in "
            f"all, and the limit is {limit}: {way_out}.",
            members={"limit": limit, "actual": tokens},
        )


async def _tokenize(exchange: Exchange, options: ExplainOptions, target: Target) -> list[list[Encoding]]:
    """Tokenize the inputs; two texts that are compared run apart."""
    truncation, inputs, info = options.truncation, options.inputs, exchange.engine.info
    if isinstance(target, LabelTarget):
        prompt = choose_prompt(info) if target.option.kind == "score" else ""
        return [[one] for one in await exchange.tokenize(inputs, truncation, prompt)]
    pairs = [text for text in inputs if not isinstance(text, str)]
    if isinstance(target, InteractionTarget):
        queries = await exchange.tokenize(
            [query for query, _ in pairs], truncation, place="inputs.{}.0".format, role="query"
        )
        documents = await exchange.tokenize(
            [text for _, text in pairs], truncation, place="inputs.{}.1".format, role="document"
        )
        return [list(one) for one in zip(queries, documents, strict=True)]
    prompt = choose_prompt(info, options.prompt_name, options.prompt)
    encodings = await exchange.tokenize([text for pair in pairs for text in pair], truncation, prompt, _place)
    return [encodings[i : i + 2] for i in range(0, len(encodings), 2)]


def _place(index: int) -> str:
    return f"inputs.{index // 2}.{index % 2}"


async def _answer(exchange: Exchange, method: Method, explanations: Sequence[Explanation]) -> Response:
    """Run the sequences of all items together, and answer with an item for each explanation."""
    style = exchange.style(method=method)
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
