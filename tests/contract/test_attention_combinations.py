"""Options of `POST /attention` together, as generated, against loops over the definitions."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.references.attention import STATISTICS, Text, groups_and_kept
from tests.support.attention_answers import Subject
from tests.support.backends import both_backends
from tests.support.serving import Json

pytestmark = both_backends

WORDS = ["the", "man", "manbeats", "boying", "hello", "worldly", "日本", "🙂", "naïve", "[SEP]", ".", "a1:b2"]

texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
"""From nothing to some twenty tokens, words of several pieces among them."""
singles = st.lists(texts, min_size=1, max_size=3)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=2)

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


statistics = st.fixed_dictionaries(
    {}, optional={"statistics": st.lists(st.sampled_from(STATISTICS), min_size=1, max_size=4)}
)


def indices(count: int) -> st.SearchStrategy[Any]:
    return st.one_of(st.just("all"), st.lists(st.integers(-count, count - 1), min_size=1, max_size=4))


@st.composite
def options_of_maps(draw: st.DrawFn, layers: int, heads: int) -> Json:
    """Any legal options but the positions, which depend on the input."""
    options = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "layers": indices(layers),
                "heads": indices(heads),
                "weights": st.sampled_from(["probability", "score", "value_norm"]),
                "aggregate": st.sampled_from(["none", "mean", "max", "rollout"]),
                "special_tokens": st.sampled_from(["keep", "drop"]),
                "level": st.sampled_from(["token", "word"]),
                "renormalize": st.just(value=True),
                "top_k": st.integers(1, 9),
                "thumbnail": st.integers(1, 9),
                "summary": st.just(value=True),
            },
        )
    )
    if "summary" in options:
        options |= draw(statistics)
    if "thumbnail" in options:
        options.pop("top_k", None)
    if options.get("aggregate") == "rollout":
        options.pop("weights", None)
    if options.get("weights") == "score":
        options.pop("renormalize", None)
    return options


def draw_positions(data: st.DataObject, subject: Subject, inputs: list[Text], options: Json) -> Json:
    """Rows and columns that every input of the request has, and has not dropped."""
    found = [groups_and_kept(subject.trace(text, options), options) for text in inputs]
    most = max(len(groups) for groups, _ in found)
    there = [
        i
        for i in range(-most, most)
        if all(-len(groups) <= i < len(groups) and i % len(groups) in kept for groups, kept in found)
    ]
    if not there:
        return {}
    chosen = st.lists(st.sampled_from(there), min_size=1, max_size=5)
    drawn: Json = data.draw(st.fixed_dictionaries({}, optional={"queries": chosen, "keys": chosen}))
    return drawn


@settings(SHARED, max_examples=120)
@given(data=st.data(), inputs=st.one_of(singles, pairs), options=options_of_maps(layers=2, heads=4))
def test_options_apply_one_after_the_other(
    prompted: Subject, data: st.DataObject, inputs: list[Text], options: Json
) -> None:
    """Any options together, of texts and pairs, with and without prompts: each applies to what is left."""
    prompt = data.draw(st.sampled_from([{}, {"prompt": ""}, {"prompt": "man"}, {"prompt_name": "passage"}]))
    options = options | prompt
    prompted.check(*inputs, **options, **draw_positions(data, prompted, inputs, options))


@settings(SHARED, max_examples=40)
@given(data=st.data(), inputs=st.one_of(singles, pairs), options=options_of_maps(layers=6, heads=12))
def test_options_apply_to_the_embedded_model(
    mini: Subject, data: st.DataObject, inputs: list[Text], options: Json
) -> None:
    """The same for a model of real weights."""
    mini.check(*inputs, **options, **draw_positions(data, mini, inputs, options))


@settings(SHARED, max_examples=25)
@given(
    data=st.data(),
    inputs=st.one_of(singles, pairs),
    options=options_of_maps(layers=2, heads=4),
    side=st.sampled_from(["left", "right"]),
)
def test_options_apply_to_what_is_left_of_long_inputs(
    prompted: Subject, data: st.DataObject, inputs: list[Text], options: Json, side: str
) -> None:
    """Cut on either side: positions and words are those of what was run."""
    filler = " boying beating worldly" * 9
    inputs = [text + filler if isinstance(text, str) else (text[0] + filler, text[1]) for text in inputs]
    options = {"layers": [0], "heads": [1, 3], **options, "truncation_side": side}
    prompted.check(*inputs, **options, **draw_positions(data, prompted, inputs, options))


@settings(SHARED, max_examples=25)
@given(
    inputs=st.one_of(singles, pairs),
    layers=indices(2),
    heads=indices(4),
    chosen=statistics,
    options=st.fixed_dictionaries(
        {},
        optional={
            "special_tokens": st.sampled_from(["keep", "drop"]),
            "level": st.sampled_from(["token", "word"]),
            "renormalize": st.booleans(),
        },
    ),
)
def test_statistics_alone_are_those_of_the_definitions(
    prompted: Subject, inputs: list[Text], layers: Any, heads: Any, chosen: Json, options: Json
) -> None:
    """Without maps too, of any layers and heads, and of whatever remains."""
    prompted.check(*inputs, summary=True, maps=False, layers=layers, heads=heads, **chosen, **options)
