"""Answers with explanations: several sequences run for each item of the response."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise

from starlette.responses import Response

from model.contract import Encoding, Output, Want
from service.engine.engine import Arrivals
from service.http.delivery import Delivery, Work, say_covered
from service.problems import Problem
from service.protocols.exchange import Exchange
from service.replies.answer_size import bound, waiting_bytes
from service.replies.too_large import any_of
from service.tasks.explanations.choosing import choose_target, plan_explanation, plan_faithfulness
from service.tasks.explanations.faithfulness import Faithfulness
from service.tasks.explanations.gradient import IntegratedGradients
from service.tasks.explanations.plan import ExplainOptions, ExplainPlan, Explanation, units_of
from service.tasks.explanations.targets import InteractionTarget, LabelTarget, Reading, Target
from service.tasks.explanations.units import Units
from service.tasks.interventions import Changes
from service.tasks.prompts import choose_prompt
from service.tasks.results import Item

# Bytes of a further sequence that waits: of a token's id and segment, and of all objects around (measured).
_TOKEN_BYTES, _SEQUENCE_BYTES = 16, 1500
_MOST_SEQUENCES = 8192
"""The most further sequences of a request; putting them into the queue takes some ten milliseconds."""
_EACH = {
    "unit": "without some units",
    "head": "without one head",
    "step": "forwards and backwards (which counts as three runs)",
}
"""What is different in each further run of a text, for errors."""


async def explain(exchange: Exchange, options: ExplainOptions) -> Response:
    """Answer with an explanation of each input."""
    engine = exchange.engine
    target = choose_target(options, engine, exchange.state.engines)
    plan = plan_explanation(options, engine, target)
    faithfulness = plan_faithfulness(options, engine, target)
    encodings = await _tokenize(exchange, options, target)
    tokens = sum(map(len, chain.from_iterable(encodings)))

    def find_units() -> list[list[Units]]:
        return [units_of(options, index, some) for index, some in enumerate(encodings)]

    units = await exchange.off_loop(find_units, tokens)
    runs = _ways_out(options, units=plan.method == "occlusion")
    if isinstance(plan, IntegratedGradients) and plan.steps > 1:
        runs.append("choose fewer `steps`")
    more = _Further(plan.each, [*runs, *(["leave out `faithfulness`"] if options.faithfulness else [])])
    for index, several in enumerate(units):
        more.add(*plan.further(several))
        if faithfulness is not None:
            faithfulness.check(index, several)
            more.add(*faithfulness.further(several))
    more.check(exchange, tokens)
    exchange.reserve(_SEQUENCE_BYTES * more.sequences + _TOKEN_BYTES * more.tokens)
    before = 0
    if isinstance(plan, IntegratedGradients) and plan.predicts:
        plan, before = await _predict(exchange, plan, encodings, target), tokens
    ways = _ways_out(options, units=plan.method != "heads")
    ways += ["set Accept to application/x-npz"] if exchange.parsed.format == "json" else []

    changes = exchange.take_changes()

    def plan_all() -> _Answer:
        explanations = [plan.explain(index, several) for index, several in enumerate(units)]
        return _Answer(exchange, plan, explanations, ways, before, changes)

    answer = await exchange.off_loop(plan_all, tokens + more.tokens)
    return await (answer.deliver() if faithfulness is None else answer.deliver_with(faithfulness, units))


async def _predict(
    exchange: Exchange, plan: IntegratedGradients, encodings: Sequence[Sequence[Encoding]], target: Target
) -> IntegratedGradients:
    """Run the inputs once to find the labels whose logits are explained."""
    for index, some in enumerate(encodings):
        target.check(index, some)
    every = [*chain.from_iterable(encodings)]
    result = await exchange.run(every, [target.want(encoding) for encoding in every])
    return plan.with_predicted(encodings, result.outputs)


@dataclass
class _Further:
    """The sequences that run besides the inputs themselves; `ways` say how to have fewer."""

    each: str
    ways: Sequence[str]
    sequences: int = 0
    tokens: int = 0

    def add(self, sequences: int, tokens: int) -> None:
        """Add the sequences and the tokens of one input."""
        self.sequences += sequences
        self.tokens += tokens

    def check(self, exchange: Exchange, tokens: int) -> None:
        """Raise the 413 if this is more than a client may have waiting; `tokens` are those of the inputs."""
        limit, actual = exchange.engine.max_queue_tokens // 2, tokens + self.tokens
        what = f"{actual} tokens in all"
        if self.sequences > _MOST_SEQUENCES:
            limit, actual, what = _MOST_SEQUENCES, self.sequences, f"{self.sequences} sequences"
        if self.sequences and actual > limit:
            raise Problem(
                "explanation-too-large",
                f"The texts would run {self.sequences} more times, each time {_EACH[self.each]}, with "
                f"{what}, and the limit is {limit}: {any_of(self.ways)}.",
                members={"limit": limit, "actual": actual},
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


class _Answer:
    """Runs the sequences of all explanations together, and answers with an item for each.

    `ways` say how to have a smaller answer. `before` tokens have run already. Sequences run with `changes`.
    """

    def __init__(
        self,
        exchange: Exchange,
        plan: ExplainPlan,
        explanations: Sequence[Explanation],
        ways: Sequence[str],
        before: int,
        changes: Changes | None,
    ) -> None:
        self._exchange, self._plan, self._explanations, self._ways = exchange, plan, explanations, ways
        self._before, self._changes = before, changes
        self._encodings = [encoding for one in explanations for encoding in one.encodings]
        self._wants = self._changed([want for one in explanations for want in one.wants])
        self._groups = _Groups([len(one.encodings) for one in explanations])

    async def deliver(self) -> Response:
        """Answer; in ndjson, each item is sent as soon as it is ready."""
        exchange = self._exchange
        delivery = self._prepare()

        def make_item(index: int, _: Output) -> Item:
            return self._explanations[index].item(self._groups.take(index))

        if delivery.style.format == "ndjson":
            stream = self._groups.complete(exchange.stream(self._encodings, self._wants))
            return await delivery.deliver_lines(stream, exchange.in_time, make_item)
        await self._run()
        items = await exchange.off_loop(
            lambda: [make_item(index, Output()) for index in range(len(self._explanations))],
            delivery.work.tokens,
        )
        return await delivery.deliver(items)

    async def deliver_with(self, faithfulness: Faithfulness, units: Sequence[Sequence[Units]]) -> Response:
        """Answer with items and how faithful each is, which takes further runs with some units left out."""
        exchange = self._exchange
        delivery = self._prepare()
        await self._run()

        def explain() -> tuple[list[Item], list[Reading], list[list[Encoding]], list[Want]]:
            items, readings, runs = [], [], []
            for index, several in enumerate(units):
                outputs = self._groups.take(index)
                items.append(self._explanations[index].item(outputs))
                encodings = [one.encoding for one in several]
                readings.append(faithfulness.target.read(outputs[: len(several)], encodings))
                runs.append(faithfulness.runs(several, self._plan.effects(several, items[-1].arrays)))
            wants = [want for some in runs for want in faithfulness.wants(some)]
            return items, readings, runs, self._changed(wants)

        items, readings, runs, wants = await exchange.off_loop(explain, delivery.work.tokens)
        every = [encoding for some in runs for encoding in some]
        tokens = delivery.work.tokens + sum(map(len, every))
        delivery.work = replace(delivery.work, tokens=tokens)
        exchange.context.record.tokens = tokens
        result = await exchange.run(every, wants)

        def extend() -> list[Item]:
            outputs = iter(result.outputs)
            columns = (
                faithfulness.columns(reading, [next(outputs) for _ in some])
                for reading, some in zip(readings, runs, strict=True)
            )
            both = zip(items, columns, strict=True)
            return [replace(item, columns={**item.columns, "faithfulness": one}) for item, one in both]

        return await delivery.deliver(await exchange.off_loop(extend, delivery.work.tokens))

    def _changed(self, wants: list[Want]) -> list[Want]:
        return wants if self._changes is None else self._changes.add_heads(wants)

    def _prepare(self) -> Delivery:
        """Reserve memory for the answer; raises the 413 and the 429."""
        exchange, explanations = self._exchange, self._explanations
        style = exchange.style(method=self._plan.method)
        expected = [one.expected for one in explanations]
        size, waiting = bound(style, expected), waiting_bytes(style, expected)
        exchange.reserve_answer(style, size, *self._ways, waiting=waiting)
        cut = [(i, one.columns["covered"]) for i, one in enumerate(explanations) if one.columns["truncated"]]
        tokens = self._before + sum(map(len, self._encodings))
        work = Work(len(explanations), len(cut), tokens, say_covered(cut))
        exchange.context.record.tokens = work.tokens
        return exchange.delivery(style, work, size + waiting)

    async def _run(self) -> None:
        result = await self._exchange.run(self._encodings, self._wants)
        self._groups.fill(result.outputs)


class _Groups:
    """The outputs of sequences that belong together, numbered from the first sequence of the first group."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._starts = list(accumulate(sizes, initial=0))
        self._group = [group for group, size in enumerate(sizes) for _ in range(size)]
        self._outputs: list[dict[int, Output]] = [{} for _ in sizes]

    def add(self, number: int, output: Output) -> int | None:
        """Take the output of a sequence; returns its group once that is complete, else None."""
        group = self._group[number]
        self._outputs[group][number] = output
        return group if len(self._outputs[group]) == self._sizes[group] else None

    def fill(self, outputs: Sequence[Output]) -> None:
        """Take the outputs of all sequences, in order."""
        for group, (start, stop) in enumerate(pairwise(self._starts)):
            self._outputs[group] = dict(zip(range(start, stop), outputs[start:stop], strict=True))

    def take(self, group: int) -> list[Output]:
        """Return the outputs of a group, in order, and forget them."""
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


def _ways_out(options: ExplainOptions, *, units: bool) -> list[str]:
    """Say how to have a smaller answer: with `units`, also by larger ones, unless they are sentences."""
    larger = {"token": '"word" or "sentence"', "word": '"sentence"'}.get(options.unit or "word")
    return [
        "send fewer or shorter inputs",
        *([f"choose a larger `unit`: {larger}"] if units and larger else []),
    ]
