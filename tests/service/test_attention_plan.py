"""From the rows, columns and words that were asked for to the tokens that are computed, and their names."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.choices import Axis
from model.contract import STATISTICS, ModelInfo, Output, SummaryWant, Top
from model.tokenization.tokenizer import Text
from service.protocols.native.schemas import AttentionRequest
from service.tasks.attend import AttendOptions, plan_attention
from service.tasks.embed import EncodePlan, plan_encode
from service.tasks.errors import OptionError
from service.tasks.view import View
from service.tasks.words import Words
from tests.service.test_encode_plan import INFO
from tests.support.doubles import tokenizer


def planned(**options: Any) -> tuple[AttendOptions, ModelInfo, EncodePlan]:
    """What a plan is made of."""
    request = AttentionRequest.model_validate({"inputs": "a", **options})
    return request.options, INFO, plan_encode(request.embeddings, INFO)


def view(text: Text, **options: Any) -> View:
    (encoding,) = tokenizer().encode([text])
    return plan_attention(*planned(**options)).view(0, encoding, text)


def test_attention_selects_everything_unless_told() -> None:
    """All layers and heads by their number; all rows and columns without naming them."""
    (encoding,) = tokenizer().encode(["one two"])
    want = plan_attention(*planned()).view(0, encoding, "one two").want.attention
    assert want is not None
    assert (want.layers, want.heads) == (tuple(range(6)), tuple(range(12)))
    assert (want.queries, want.keys, want.aggregate) == (None, None, "none")
    chosen = {"layers": [-1, 0], "heads": [3, 3], "queries": [-1], "keys": [0, -2], "aggregate": "max"}
    want = plan_attention(*planned(**chosen)).view(0, encoding, "one two").want.attention
    assert want is not None
    assert (want.layers, want.heads) == ((5, 0), (3, 3))
    assert (want.queries, want.keys) == (Axis((3,)), Axis((0, 2)))
    assert want.aggregate == "max"


@pytest.mark.parametrize("name", ["queries", "keys"])
@pytest.mark.parametrize("position", [4, -5])
def test_a_position_beyond_an_input_names_the_input(name: str, position: int) -> None:
    """The message has the input, what was asked, and the range there is."""
    (encoding,) = tokenizer().encode(["one two"])
    with pytest.raises(OptionError) as refused:
        plan_attention(*planned(**{name: [0, position]})).view(7, encoding, "one two")
    assert refused.value.option == "inputs.7"
    assert refused.value.members["allowed"] == [-4, 3]
    assert all(part in str(refused.value) for part in (name, "inputs.7", str(position), "-4", "3"))


def test_words_are_runs_of_pieces_and_whatever_stands_alone() -> None:
    """The words of both texts are kept apart, special tokens are words, texts are as they were written."""
    text = ("Hallucinate, hallucinate", "Hallucinate now")
    (encoding,) = tokenizer().encode([text])
    words = Words.of(encoding, text)
    assert words.texts == [
        *("[CLS]", "Hallucinate", ",", "hallucinate", "[SEP]"),
        *("Hallucinate", "now", "[SEP]"),
    ]
    assert words.offsets == [(0, 0), (0, 11), (11, 12), (13, 24), (0, 0), (0, 11), (12, 15), (0, 0)]
    pieces = [[encoding.tokens[t] for t in words.pieces(w)] for w in range(len(words))]
    assert pieces[1] == pieces[3] == pieces[5] == ["hall", "##uc", "##inate"]
    assert [len(p) for p in pieces] == [1, 3, 1, 3, 1, 3, 1, 1]


def test_tokens_of_a_prompt_are_words_of_their_own() -> None:
    """They have no place in the text, so they are named as tokens."""
    (encoding,) = tokenizer().encode(["now"], prompt="hallucinate: ")
    words = Words.of(encoding, "now")
    assert words.texts == ["[CLS]", "hall", "##uc", "##inate", ":", "now", "[SEP]"]
    assert words.offsets[:5] == [(0, 0)] * 5
    assert words.offsets[5] == (0, 3)


def test_rows_and_columns_of_words_are_those_of_their_pieces() -> None:
    """In the order asked; the pieces of a word stand there once, however often it is listed."""
    planned = view("hallucinate now", level="word", queries=[1, -2, 1], keys=[2])
    assert planned.want.attention is not None
    assert planned.want.attention.queries == Axis((1, 2, 1), (1, 2, 3, 4), (0, 3))
    assert planned.want.attention.keys == Axis((2,), (4,), (0,))
    assert (planned.columns["queries"], planned.columns["keys"]) == ((1, 2, 1), (2,))


@pytest.mark.parametrize("level", ["token", "word"])
def test_dropped_tokens_are_in_no_row_and_no_column(level: str) -> None:
    """Of an empty text nothing is left; positions still count in the whole input."""
    planned = view("one two", special_tokens="drop", level=level)
    assert planned.want.attention is not None
    assert planned.want.attention.queries == planned.want.attention.keys
    assert planned.columns["queries"] == planned.columns["keys"] == (1, 2)
    assert planned.expected.arrays == {"attention": (6, 12, 2, 2)}
    empty = view("", special_tokens="drop", level=level)
    assert empty.expected.arrays == {"attention": (6, 12, 0, 0)}


@pytest.mark.parametrize("position", [0, -1])
def test_a_dropped_position_is_refused(position: int) -> None:
    """The sentence says which option, which input, and why."""
    with pytest.raises(OptionError) as refused:
        view("one two", special_tokens="drop", keys=[1, position])
    assert refused.value.option == "inputs.0"
    assert all(part in str(refused.value) for part in ("keys.1", str(position), "special token", "drop"))


def test_what_is_expected_is_known_before_it_is_computed() -> None:
    """Shapes of every array, with k cut to the columns there are, and of every statistic."""
    planned = view("one two", top_k=9, summary=True, outputs=["tokens", "sentence"], dimensions=5)
    assert planned.expected.arrays == {
        "embedding": (384,),  # what is computed before it is cut
        "token_embeddings": (1, 4, 384),
        "top_keys": (6, 12, 4, 4),
        "top_weights": (6, 12, 4, 4),
        "residual": (6, 12, 4),
        **{f"summary.{name}": (6, 12) for name in STATISTICS},
    }
    assert planned.want.summary == SummaryWant(tuple(range(6)), tuple(range(12)), (0, 3))
    assert view("a", aggregate="mean").expected.arrays == {"attention": (6, 3, 3)}
    assert view("a", aggregate="rollout", layers=[2]).expected.arrays == {"attention": (3, 3)}
    assert [*view("a", maps=False, summary=True, statistics=["self"]).expected.arrays] == ["summary.self"]
    assert view("a b", thumbnail=3, keys=[1, 2]).expected.arrays == {"thumbnails": (6, 12, 3, 2)}
    assert view("a", thumbnail=2, aggregate="mean").expected.arrays == {"thumbnails": (6, 2, 2)}


@given(
    options=st.fixed_dictionaries(
        {}, optional={"summary": st.sampled_from([True]), "aggregate": st.just("mean")}
    )
)
def test_an_axis_that_is_gone_has_no_list_unless_a_summary_has_it(options: dict[str, Any]) -> None:
    """`layers` and `heads` name what the statistics are of, whatever became of the maps."""
    heads = "heads" in view("a", **options).columns
    assert heads == ("summary" in options or "aggregate" not in options)
    assert "layers" in view("a", **options).columns


def test_numbers_are_rounded_only_where_rounding_is_of_probabilities() -> None:
    """float16 and uint8 maps come so from the backend; others may not fit and are computed in float32.

    Sums of what is the largest of several heads may be more than 1, unless rows are rescaled.
    """
    (encoding,) = tokenizer().encode(["a"])

    def kind(**options: Any) -> tuple[bool, str]:
        plan = plan_attention(*planned(**options), "uint8")
        want = plan.view(0, encoding, "a").want.attention
        assert want is not None
        return plan.unit, want.dtype

    largest: Any = {"aggregate": "max", "level": "word"}
    assert kind() == kind(aggregate="rollout") == kind(aggregate="max") == (True, "uint8")
    assert kind(**largest, renormalize=True) == (True, "uint8")
    assert kind(weights="value_norm") == kind(**largest) == (False, "float32")
    assert kind(top_k=1) == (True, "float32")
    assert kind(thumbnail=1) == (True, "uint8")
    assert kind(thumbnail=1, **largest) == kind(thumbnail=1, weights="value_norm") == (False, "float32")
    assert kind(top_k=1, aggregate="max") == (False, "float32")


def test_an_item_has_what_was_computed() -> None:
    """Each array under its name of the contract, the summary beside them, and nothing that is not there."""
    array = np.zeros((1, 2), np.float32)
    top = Top(array.astype(np.int32), array, array[0])
    item = view("a").item(Output(sentence=array, top=top, summary={"self": array}))
    assert list(item.arrays) == ["embedding", "top_keys", "top_weights", "residual", "summary.self"]
    assert item.arrays["summary.self"] is array
    assert list(view("a").item(Output(attention=array)).arrays) == ["attention"]
    assert list(view("a").item(Output(thumbnails=array)).arrays) == ["thumbnails"]
