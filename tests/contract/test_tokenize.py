"""`POST /tokenize` and `POST /decode`, over a real socket."""

import json
from typing import Any

import pytest
from transformers import AutoTokenizer

from model.checkpoints.source import resolve
from tests.contract.test_encode import LONG, PAIRS, TEXTS
from tests.references.checkpoints import MINILM
from tests.support.serving import (
    JSON,
    NDJSON,
    NPZ,
    Json,
    Service,
    answered,
    assert_problem,
    post,
)

COLUMNS = ("tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special")


@pytest.fixture(scope="module")
def reference() -> Any:
    """The embedded model's tokenizer as `transformers` runs it."""
    return AutoTokenizer.from_pretrained(resolve(MINILM))


def tokenize(service: Service, inputs: object, **options: object) -> Json:
    return answered(post(service, {"inputs": inputs, **options}, "/tokenize"))


def decode(service: Service, token_ids: object, **options: object) -> list[str]:
    answer = answered(post(service, {"token_ids": token_ids, **options}, "/decode"))
    assert answer["usage"] == {"input_tokens": 0}
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    return [item["text"] for item in answer["data"]]


def ran(service: Service) -> dict[str, float]:
    """What changes when something is queued or run."""
    names = ("headlight_batch", "headlight_input_tokens", "headlight_stage")
    return {
        name: value
        for name, value in service.metrics().items()
        if name.startswith(names) and 'stage="tokenize"' not in name and 'stage="serialize"' not in name
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prompt": "the man: "},
        {"truncation_side": "left"},
    ],
)
@pytest.mark.parametrize("inputs", [[*TEXTS, LONG], [list(pair) for pair in PAIRS]])
def test_tokens_are_those_that_encode_runs(service: Service, inputs: object, options: Json) -> None:
    """Every column, for texts and pairs, with a prompt and truncated; and nothing is run or queued."""
    expected = service.encode(inputs, **options)["data"]
    before = ran(service)
    answer = tokenize(service, inputs, **options)
    assert ran(service) == before
    assert answer["data"] == [{k: v for k, v in item.items() if k != "embedding"} for item in expected]
    assert answer["usage"] == {"input_tokens": 0}
    assert answer["model"] == "all-MiniLM-L6-v2"


def test_special_tokens_can_be_left_out(service: Service) -> None:
    """Of every column; a literal "[SEP]" stays, and so does what says whether the text was cut."""
    for inputs in (["a [SEP] b", "", LONG], [["a", "b"]]):
        whole = tokenize(service, inputs)["data"]
        left = tokenize(service, inputs, special_tokens="drop")["data"]
        for before, after in zip(whole, left, strict=True):
            kept = [i for i, special in enumerate(before["special"]) if not special]
            assert after == before | {name: [before[name][i] for i in kept] for name in COLUMNS}


def test_a_line_comes_for_each_input(service: Service) -> None:
    """As ndjson, with the usage at the end, also where the response is long."""
    for inputs in (["one", "two words"], [LONG] * 40):
        response = post(service, {"inputs": inputs}, "/tokenize", Accept=NDJSON)
        *items, last = map(json.loads, response.text.splitlines())
        assert items == tokenize(service, inputs)["data"]
        assert last == {"model": "all-MiniLM-L6-v2", "usage": {"input_tokens": 0}}


@pytest.mark.parametrize("skip", [True, False])
def test_ids_become_the_text_of_the_reference(service: Service, reference: Any, skip: bool) -> None:
    """As `transformers` decodes them: texts of many scripts, pairs, an empty text and a literal [SEP]."""
    for inputs in (TEXTS, [list(pair) for pair in PAIRS]):
        ids = [item["token_ids"] for item in tokenize(service, inputs)["data"]]
        expected = [
            reference.decode(one, skip_special_tokens=skip, clean_up_tokenization_spaces=True) for one in ids
        ]
        assert decode(service, ids, skip_special_tokens=skip) == expected


ROUND = ["hello world", "Ünïcödé", "привет, мир!", "中 文", "مرحبا", "unbelievable stops.", "a 👩", ""]


def test_a_text_survives_both_ways(service: Service, reference: Any) -> None:
    """Apart from what the tokenizer does first (lower case, no accents) and characters without a token."""
    found = tokenize(service, ROUND, special_tokens="drop")["data"]
    texts = decode(service, [item["token_ids"] for item in found], skip_special_tokens=False)
    normal = [reference.backend_tokenizer.normalizer.normalize_str(text) for text in ROUND]
    assert texts == [" ".join(text.replace("👩", "[UNK]").split()) for text in normal]
    again = tokenize(service, texts, special_tokens="drop")["data"]
    assert [item["token_ids"] for item in again] == [item["token_ids"] for item in found]


def test_a_literal_separator_is_kept_with_special_tokens(service: Service) -> None:
    """Its id is that of the special token, so both are left out or neither."""
    (item,) = tokenize(service, "one [SEP] two")["data"]
    assert decode(service, item["token_ids"]) == ["one two"]
    assert decode(service, item["token_ids"], skip_special_tokens=False) == ["[CLS] one [SEP] two [SEP]"]


def test_lists_of_any_length_are_decoded(service: Service) -> None:
    """Up to the limit of ids, on the event loop or in a thread; a list without ids is an empty text."""
    assert decode(service, [[], [7592], []]) == ["", "hello", ""]
    assert decode(service, [7592.0, 2088]) == ["hello world"]
    (long,) = decode(service, [7592] * 32768)
    assert long == " ".join(["hello"] * 32768)
    assert decode(service, [[7592] * 128] * 256) == [" ".join(["hello"] * 128)] * 256


REFUSED: list[tuple[Json, str, Json]] = [
    ({}, "token_ids", {}),
    ({"token_ids": []}, "token_ids", {}),
    ({"token_ids": "a"}, "token_ids", {}),
    ({"token_ids": ["a"]}, "token_ids.0", {}),
    ({"token_ids": [1, True]}, "token_ids.1", {}),
    ({"token_ids": [[1], 2]}, "token_ids.1", {}),
    ({"token_ids": [[1], [[2]]]}, "token_ids.1.0", {}),
    ({"token_ids": [1, 30522]}, "token_ids.1", {"actual": 30522, "allowed": [0, 30521]}),
    ({"token_ids": [[1], [1, -1]]}, "token_ids.1.1", {"actual": -1, "allowed": [0, 30521]}),
    ({"token_ids": [1e30]}, "token_ids.0", {"actual": 1e30, "allowed": [0, 30521]}),
    ({"token_ids": [1] * 32769}, "token_ids", {"limit": 32768, "actual": 32769}),
    ({"token_ids": [1] * 200_000}, "token_ids", {"limit": 32768, "actual": 200_000}),
    ({"token_ids": [[1] * 16385] * 2}, "token_ids", {}),
    ({"token_ids": [1], "truncate": True}, "truncate", {}),
    ({"token_ids": [1], "skip_special_tokens": 1}, "skip_special_tokens", {}),
]


@pytest.mark.parametrize(("body", "field", "members"), REFUSED)
def test_ids_that_are_none_are_refused(service: Service, body: Json, field: str, members: Json) -> None:
    """The place is named, and the range of ids there are."""
    assert_problem(post(service, body, "/decode"), 422, "invalid-request", field=field, **members)


def test_the_number_of_lists_is_limited(service: Service) -> None:
    """As that of inputs, but not the number of ids in the only list."""
    for count in (257, 3000):
        response = post(service, {"token_ids": [[1]] * count}, "/decode")
        assert_problem(response, 413, "too-many-inputs", field="token_ids", limit=256, actual=count)
    assert_problem(post(service, {"inputs": ["a"] * 257}, "/tokenize"), 413, "too-many-inputs")


@pytest.mark.parametrize(
    ("path", "body", "formats"),
    [("/tokenize", {"inputs": "a"}, [JSON, NDJSON]), ("/decode", {"token_ids": [1]}, [JSON])],
)
def test_formats_are_those_of_text(service: Service, path: str, body: Json, formats: list[str]) -> None:
    """There is no array to be put into a file, nor a type of arrays to choose."""
    document = assert_problem(post(service, body, path, Accept=NPZ), 406, "not-acceptable")
    assert document["allowed"] == formats
    response = service.http.post(f"{path}?dtype=float16", json=body)
    document = assert_problem(response, 422, "invalid-request", field="query.dtype")
    assert document["detail"].endswith("leave it out.")


def test_they_are_counted(plain: Service) -> None:
    """Inputs, the truncated ones, and the tokenizer's time, which is that of the header."""
    model = 'model="all-MiniLM-L6-v2"'
    for path, body, inputs in (
        ("/tokenize", {"inputs": ["a", LONG]}, 2),
        ("/decode", {"token_ids": [[1], [2], []]}, 3),
    ):
        before = plain.metrics()
        response = post(plain, body, path)
        after = plain.metrics()
        name = f'headlight_inputs_total{{{model},route="{path}"}}'
        assert after[name] - before[name] == inputs
        stages = [part.split(";")[0] for part in response.headers["server-timing"].split(", ")]
        assert stages == ["tokenize", "serialize"]
        for stage in stages:
            name = f'headlight_stage_duration_seconds_count{{{model},stage="{stage}"}}'
            assert after[name] - before[name] == 1
