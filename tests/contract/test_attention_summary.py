"""Statistics, embeddings and rounding of `POST /attention`, against the definitions."""

from typing import Any

import numpy as np
import pytest

from tests.contract.test_encode import PAIRS, TEXTS, naive_pooling, unit
from tests.references.attention import Text
from tests.references.comparing import distance, relative_distance
from tests.support.attention_answers import PAIR, ROUNDING, SHORT, TEXT, Subject
from tests.support.backends import both_backends
from tests.support.serving import LONG, NPZ, SAFETENSORS, Service, answered, post, read_npz, read_safetensors

pytestmark = both_backends

# ------------------------------------------------------------------------------------------- summary


@pytest.mark.parametrize("text", [*TEXTS[:5], "", PAIR, PAIRS[2]])
def test_the_summary_is_of_every_map(mini: Subject, text: Text) -> None:
    """Each statistic of each layer and head equals a loop over the reference's map."""
    mini.check(text, summary=True)


def test_the_summary_of_a_text_at_the_limit(mini: Subject) -> None:
    """Sums over 256 × 256 numbers keep their digits."""
    mini.check(LONG, summary=True, maps=False, layers=[0, 5], heads=[1, 6])


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "score"},
        {"weights": "value_norm"},
        {"aggregate": "mean"},
        {"aggregate": "max", "heads": [3, 3, -1]},
        {"aggregate": "rollout", "layers": [2, 0], "heads": [1, 1]},
        {"special_tokens": "drop"},
        {"level": "word"},
        {"queries": [1], "keys": [0, 0]},
        {"special_tokens": "drop", "renormalize": True},
        {"top_k": 2},
        {"layers": [-1, 0, 0], "heads": [11, 3, 3]},
    ],
)
def test_the_summary_is_of_what_level_and_special_tokens_leave(mini: Subject, options: Any) -> None:
    """It is of the probabilities over the rows that remain, and `layers` and `heads` say of which."""
    (item,) = mini.check(TEXT, summary=True, **options)
    assert "layers" in item
    assert "heads" in item


def test_statistics_without_maps(mini: Subject) -> None:
    """With `maps` false the statistics are all there is, and they are the same."""
    chosen: Any = {"layers": [4, 1, 1], "heads": [-1, 0]}
    (with_maps,) = mini.check(PAIR, summary=True, **chosen)
    (without,) = mini.check(PAIR, summary=True, maps=False, **chosen)
    assert not {"attention", "queries", "keys"} & set(without)
    for name, values in with_maps["summary"].items():
        assert relative_distance(without["summary"][name], values) <= 1e-5 + ROUNDING


REMAINING: list[Any] = [
    {"special_tokens": "drop"},
    {"special_tokens": "drop", "renormalize": True},
    {"level": "word"},
    {"level": "word", "renormalize": True},
    {"special_tokens": "drop", "level": "word"},
    {"special_tokens": "drop", "level": "word", "renormalize": True},
]


@pytest.mark.parametrize("text", ["", "the man", PAIR, "unbelievably " * 20])
@pytest.mark.parametrize("options", REMAINING)
def test_statistics_alone_of_what_remains(prompted: Subject, options: Any, text: Text) -> None:
    """Without maps, each equals a loop over the map that the same options make; 0 where nothing remains."""
    (item,) = prompted.check(text, summary=True, maps=False, **options)
    assert ("words" in item) == (options.get("level") == "word")


@pytest.mark.parametrize("options", [{}, *REMAINING])
def test_only_the_statistics_that_are_asked_for(mini: Subject, options: Any) -> None:
    """In the contract's order, whatever the order of the list and however often one is named."""
    names = ["argmax_next", "mean_distance", "entropy", "entropy"]
    (item,) = mini.check(TEXT, summary=True, maps=False, layers=[0], statistics=names, **options)
    assert list(item["summary"]) == ["entropy", "mean_distance", "argmax_next"]


@pytest.mark.parametrize("format_name", [NPZ, SAFETENSORS])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_statistics_are_arrays_in_binary_formats(mini: Subject, format_name: str, dtype: str) -> None:
    """float32 whatever else is smaller, under names of their own, and not in the rest of the answer too."""
    body = {"inputs": ["a", "b c"], "summary": True, "maps": False, "level": "word", "decimals": 6}
    response = mini.service.http.post(f"/attention?dtype={dtype}", json=body, headers={"Accept": format_name})
    assert response.status_code == 200, response.text
    arrays, rest = (read_npz if format_name == NPZ else read_safetensors)(response.content)
    exact = answered(post(mini.service, body | {"decimals": 9}, "/attention"))["data"]
    assert set(arrays) == {f"{i}.summary.{name}" for i in range(2) for name in exact[0]["summary"]}
    for i, item in enumerate(exact):
        assert "summary" not in rest["data"][i]
        for name, values in item["summary"].items():
            array = arrays[f"{i}.summary.{name}"]
            assert array.dtype == np.float32
            assert relative_distance(array, values) <= 1e-6


def test_the_summary_of_uniform_attention(uniform: Subject) -> None:
    """Five tokens alike: ln 5, 1/5, (n² − 1)/3n, and the shares by counting."""
    (item,) = uniform.check(SHORT, summary=True, maps=False)
    expected = [np.log(5), 0.2, 24 / 15, 0.2, 4 / 25, 4 / 25, 0.4, 0.2, 0.2, 0]
    for values, number in zip(item["summary"].values(), expected, strict=True):
        assert distance(values, np.full((2, 4), number)) <= 1e-6


# ------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize("text", [TEXT, "", PAIR])
@pytest.mark.parametrize("maps", [{}, {"summary": True, "maps": False}, {"top_k": 2, "decimals": 2}])
def test_embeddings_come_from_the_same_pass(mini: Subject, text: Text, maps: Any) -> None:
    """Pooled and contextual vectors as `/encode` gives them, exact whatever `decimals` is."""
    (item,) = mini.ask(text, outputs=["sentence", "tokens"], **maps)["data"]
    hidden = mini.trace(text).hidden[-1]
    assert distance(item["embedding"], unit(naive_pooling(hidden)["mean"])) <= 1e-5
    assert relative_distance(item["token_embeddings"], hidden[None]) <= 1e-5
    inputs: Any = [text] if isinstance(text, str) else [list(text)]
    (encoded,) = mini.service.encode(inputs, outputs=["sentence", "tokens"])["data"]
    for name in ("embedding", "token_embeddings"):
        assert relative_distance(item[name], encoded[name]) <= 2e-6, name


@pytest.mark.parametrize("outputs", [["sentence"], ["tokens"], ["tokens", "sentence"]])
def test_only_the_outputs_that_were_asked_come(mini: Subject, outputs: list[str]) -> None:
    """Each name adds its member, none is there without, and the maps stay as they are."""
    mini.check(TEXT, PAIRS[0][0], outputs=outputs, layers=[0], heads=[0])


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "cls"},
        {"pooling": "mean_max", "normalize": False},
        {"pooling": "weighted_mean", "dimensions": 32},
        {"normalize": False, "dimensions": 7.0},
    ],
)
def test_options_of_the_sentence_vector_are_those_of_encode(
    mini: Subject, prompted: Subject, options: Any
) -> None:
    """Pooling, norm and dimensions mean what they mean there, prompts left out of the pooling too."""
    for subject, text in ((mini, TEXT), (prompted, "worldly man")):
        (item,) = subject.ask(text, outputs=["sentence"], layers=[0], **options)["data"]
        named: Any = {} if subject.model is None else {"model": subject.model}
        (encoded,) = subject.service.encode(text, **named, **options)["data"]
        assert relative_distance(item["embedding"], encoded["embedding"]) <= 2e-6


# ------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("decimals", [1, 3, 6])
def test_all_numbers_of_maps_and_statistics_are_rounded(mini: Subject, decimals: int) -> None:
    """The same answer as with nine decimals, each number to its nearest."""
    options: Any = {"summary": True, "layers": [0, 5], "heads": [4]}
    for more in ({}, {"top_k": 3}, {"weights": "score"}, {"aggregate": "rollout"}):
        (exact,), (found,) = (
            mini.ask(TEXT, **options, **more, decimals=places)["data"] for places in (9, decimals)
        )
        pairs = [
            (exact[name], found[name]) for name in ("top_weights", "residual", "attention") if name in exact
        ]
        pairs += [(exact["summary"][name], found["summary"][name]) for name in exact["summary"]]
        for one, other in pairs:
            array = np.array(other)
            # Numbers are written as float32, which has eight digits.
            assert distance(array, np.round(array, decimals)) <= 1e-6
            assert distance(array, one) <= 0.5 * 10.0**-decimals + 3e-6


def test_defaults_that_are_written_out_change_nothing(service: Service) -> None:
    """Saying what holds anyway gives the same bytes."""
    plain = post(service, {"inputs": TEXT}, "/attention")
    said = {
        "weights": "probability",
        "aggregate": "none",
        "special_tokens": "keep",
        "level": "token",
        "renormalize": False,
        "summary": False,
        "maps": True,
    }
    assert post(service, {"inputs": TEXT, **said}, "/attention").content == plain.content
