"""`POST /encode`, over a real socket, against `transformers` and plain numpy."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import PROMPTS
from tests.references.checkpoints import Reference
from tests.references.comparing import distance, relative_distance
from tests.support.backends import both_backends
from tests.support.serving import Json, Service

pytestmark = both_backends

Array = NDArray[np.float64]

LIMIT = 256
"""What the embedded model reads."""

TEXTS = [
    "hello world",
    "A sentence, with punctuation; and numbers: 3.14159!",
    "Ünïcödé naïve café",
    "🙂 an emoji, and a family 👩‍👩‍👧 of one",
    "日本語のテキスト and 中文",
    "a literal [SEP] and a literal [CLS] in the text",
    "tabs\tand\nnew lines\r\n and \u00a0 spaces",
    "unbelievable antidisestablishmentarianism",
    "x" * 300,
    "   ",
    "",
]
LONG = " ".join(f"word{i} runs" for i in range(300))
PAIRS = [("a question?", "The answer, at last."), ("", "only a pair"), ("only a text", ""), ("", "")]


def run_reference(
    reference: Reference, text: str | tuple[str, str], side: str = "right"
) -> tuple[Json, Array, Array]:
    """Token columns by the names of the contract, hidden states, attention weights."""
    reference.tokenizer.truncation_side = side
    # In lists of one: a lone empty pair is left out by `transformers`, a list of one is not.
    texts = ([text],) if isinstance(text, str) else ([text[0]], [text[1]])
    limit = min(LIMIT, reference.model.config.max_position_embeddings)
    encoded = reference.tokenizer(
        *texts,
        truncation="longest_first",
        max_length=limit,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    ids, types = encoded["input_ids"][0], encoded["token_type_ids"][0]
    added = [place is None for place in encoded.sequence_ids(0)]
    whole = len(reference.tokenizer(*texts, verbose=False)["input_ids"][0])
    hidden, maps = reference.run(ids, types)
    columns = {
        "tokens": reference.tokenizer.convert_ids_to_tokens(ids),
        "token_ids": ids,
        "offsets": [
            [0, 0] if a else list(o) for a, o in zip(added, encoded["offset_mapping"][0], strict=True)
        ],
        "word_ids": [None if a else w for a, w in zip(added, encoded.word_ids(0), strict=True)],
        "segment_ids": types,
        "special": added,
        "truncated": whole > len(ids),
        "original_length": whole,
    }
    return columns, hidden, maps


def unit(vector: Array) -> Array:
    """A vector of length 1."""
    return vector / np.linalg.norm(vector)


def assert_columns(item: Json, expected: Json) -> None:
    assert {name: item[name] for name in expected} == expected


@pytest.mark.parametrize("text", TEXTS)
def test_columns_states_and_vector_are_those_of_the_reference(
    service: Service, reference: Reference, text: str
) -> None:
    """For every kind of text, what was run and every hidden state and the vector match `transformers`."""
    columns, hidden, _ = run_reference(reference, text)
    answer = service.encode(text, outputs=["sentence", "tokens"], layers=list(range(7)))
    (item,) = answer["data"]
    assert item["index"] == 0
    assert_columns(item, columns)
    states = np.array(item["token_embeddings"])
    assert states.shape == (7, len(columns["tokens"]), 384)
    for layer in range(7):
        assert relative_distance(states[layer], hidden[layer]) <= 1e-5, layer
    assert distance(item["embedding"], unit(hidden[-1].mean(0))) <= 1e-5
    assert answer["usage"] == {"input_tokens": len(columns["tokens"])}
    assert answer["model"] == "all-MiniLM-L6-v2"
    assert set(answer) == {"model", "data", "usage"}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_is_run_as_one_sequence_of_two_segments(
    service: Service, reference: Reference, pair: tuple[str, str]
) -> None:
    """A nested list of two texts is a pair: token types, offsets and words of each text, as the reference."""
    columns, hidden, _ = run_reference(reference, pair)
    (item,) = service.encode([list(pair)], outputs=["sentence", "tokens"])["data"]
    assert_columns(item, columns)
    assert relative_distance(item["token_embeddings"], hidden[-1:]) <= 1e-5
    assert distance(item["embedding"], unit(hidden[-1].mean(0))) <= 1e-5


def test_a_list_of_two_strings_is_two_texts(service: Service) -> None:
    """A pair is always nested: two strings in a list are two inputs."""
    answer = service.encode(["a question?", "The answer."])
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert answer["usage"]["input_tokens"] == sum(len(item["tokens"]) for item in answer["data"])
    assert all(set(item["segment_ids"]) == {0} for item in answer["data"])


def test_offsets_count_code_points(service: Service) -> None:
    """Offsets point into the text as Python counts it, not into its bytes or UTF-16 units."""
    text = "🙂🙂 naïve 日本 end"
    (item,) = service.encode(text)["data"]
    cut = [text[start:end] for start, end in item["offsets"]]
    assert cut == ["", "🙂🙂", "naïve", "日", "本", "end", ""]


def test_a_literal_separator_in_a_text_is_not_special(service: Service) -> None:
    """Special says that the tokenizer added a token, whatever is written in the text."""
    (item,) = service.encode("one [SEP] two")["data"]
    assert item["tokens"] == ["[CLS]", "one", "[SEP]", "two", "[SEP]"]
    assert item["special"] == [True, False, False, False, True]
    assert item["offsets"][2] == [4, 9]


def test_an_empty_text_encodes_its_special_tokens(service: Service) -> None:
    """An empty text is legal."""
    (item,) = service.encode("")["data"]
    assert item["tokens"] == ["[CLS]", "[SEP]"]
    assert (item["special"], item["word_ids"]) == ([True, True], [None, None])
    assert np.linalg.norm(item["embedding"]) == pytest.approx(1, abs=1e-6)


# ------------------------------------------------------------------------------------ what is asked


def naive_pooling(hidden: Array) -> dict[str, Array]:
    """Each pooling by its definition, token by token."""
    count = len(hidden)
    total = sum(hidden[i] for i in range(count))
    weights = [i + 1 for i in range(count)]
    mean, top = total / count, np.array([max(column) for column in hidden.T])
    return {
        "mean": mean,
        "cls": hidden[0],
        "max": top,
        "mean_max": np.concatenate([mean, top]),
        "mean_sqrt_len": total / np.sqrt(count),
        "weighted_mean": sum(w * hidden[i] for i, w in enumerate(weights)) / sum(weights),
        "last": hidden[-1],
    }


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "max", "mean_max", "mean_sqrt_len", "weighted_mean", "last"]
)
def test_each_pooling_is_its_definition(
    service: Service, reference: Reference, pooling: str, normalize: bool
) -> None:
    """Every pooling equals a loop over the reference's last hidden states, with and without a norm."""
    _, hidden, _ = run_reference(reference, TEXTS[1])
    expected = naive_pooling(hidden[-1].astype(np.float64))[pooling]
    (item,) = service.encode(TEXTS[1], pooling=pooling, normalize=normalize)["data"]
    if normalize:
        assert distance(item["embedding"], unit(expected)) <= 1e-5
    else:
        assert relative_distance(item["embedding"], expected) <= 1e-5


def test_pooling_layers_are_concatenated_in_their_order(service: Service, reference: Reference) -> None:
    """The pooled hidden states stand one after the other, as asked, duplicates included."""
    _, hidden, _ = run_reference(reference, TEXTS[0])
    (item,) = service.encode(TEXTS[0], pooling_layers=[3, 0, -1, 3], normalize=False)["data"]
    assert (
        relative_distance(item["embedding"], np.concatenate([hidden[i].mean(0) for i in (3, 0, 6, 3)]))
        <= 1e-5
    )


def test_dimensions_keep_the_first_components_and_renormalise(service: Service) -> None:
    """A vector is cut first and gets its unit norm afterwards; without the norm it is only cut."""
    (whole,) = service.encode(TEXTS[0], normalize=False)["data"]
    (cut,) = service.encode(TEXTS[0], dimensions=64)["data"]
    (raw,) = service.encode(TEXTS[0], dimensions=64.0, normalize=False)["data"]
    assert raw["embedding"] == whole["embedding"][:64]
    assert distance(cut["embedding"], unit(np.array(whole["embedding"][:64]))) <= 1e-6


def test_layers_keep_their_order_and_duplicates(service: Service, reference: Reference) -> None:
    """`layers` names what each index of the first axis is; negative ones count from the end."""
    _, hidden, _ = run_reference(reference, TEXTS[0])
    (item,) = service.encode(TEXTS[0], outputs=["tokens"], layers=[-1, 0, 5, 0, -7])["data"]
    assert relative_distance(item["token_embeddings"], hidden[[6, 0, 5, 0, 0]]) <= 1e-5
    assert "embedding" not in item


def test_the_answer_carries_only_what_was_asked(service: Service) -> None:
    """The sentence vector is the default; token vectors come on request and have a layer axis then."""
    (item,) = service.encode("hello")["data"]
    assert "token_embeddings" not in item
    assert len(item["embedding"]) == 384
    (both,) = service.encode("hello", outputs=["tokens", "sentence"])["data"]
    assert np.array(both["token_embeddings"]).shape == (1, 3, 384)
    assert both["embedding"] == item["embedding"]


def test_the_model_may_be_named(service: Service, several: Service, prompted_reference: Reference) -> None:
    """`model` chooses among the served ones, the first by default; the answer says which."""
    assert service.encode("hello", model="all-MiniLM-L6-v2")["data"] == service.encode("hello")["data"]
    assert several.encode("hello")["model"] == "mini"
    answer = several.encode("hello world", model="prompted", prompt="", outputs=["tokens"])
    assert answer["model"] == "prompted"
    _, hidden, _ = run_reference(prompted_reference, "hello world")
    assert relative_distance(answer["data"][0]["token_embeddings"], hidden[-1:]) <= 1e-5


# --------------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("text", [LONG, (LONG, "a short pair"), ("a short text", LONG), (LONG, LONG[::-1])])
def test_what_is_too_long_is_cut_as_the_reference_cuts_it(
    service: Service, reference: Reference, text: str | tuple[str, str], side: str
) -> None:
    """Inputs are cut at the asked side, pairs longest first, and the answer says so and how long it was."""
    columns, hidden, _ = run_reference(reference, text, side)
    inputs = [text] if isinstance(text, str) else [list(text)]
    (item,) = service.encode(inputs, truncation_side=side, outputs=["sentence", "tokens"])["data"]
    assert item["truncated"] is True
    assert item["original_length"] > LIMIT == len(item["tokens"])
    assert_columns(item, columns)
    assert relative_distance(item["token_embeddings"], hidden[-1:]) <= 1e-5


def test_ten_thousand_words_are_one_input(service: Service, reference: Reference) -> None:
    """A text far beyond the limit is cut, and its whole length is told."""
    text = " ".join(["alpha", "beta"] * 5000)
    columns, hidden, _ = run_reference(reference, text)
    answer = service.encode(text)
    (item,) = answer["data"]
    assert item["original_length"] == 10_002
    assert answer["usage"] == {"input_tokens": LIMIT}
    assert_columns(item, columns)
    assert distance(item["embedding"], unit(hidden[-1].mean(0))) <= 1e-5


def test_a_text_of_exactly_the_limit_is_whole(service: Service) -> None:
    """The limit itself is not too long, with `truncate` false neither."""
    (item,) = service.encode(" ".join(["word"] * (LIMIT - 2)), truncate=False)["data"]
    assert (item["truncated"], item["original_length"], len(item["tokens"])) == (False, LIMIT, LIMIT)


# ------------------------------------------------------------------------------------------ prompts


def test_a_literal_prompt_stands_before_the_text_and_is_not_counted(
    service: Service, reference: Reference
) -> None:
    """The prompt is run with the text; offsets and words are those of the text alone."""
    prompt, text = "Represent this: ", "unbelievable 🙂 weather, today"
    columns, hidden, _ = run_reference(reference, prompt + text)
    alone, _, _ = run_reference(reference, text)
    (item,) = service.encode(text, prompt=prompt, outputs=["sentence", "tokens"])["data"]
    count = len(item["tokens"]) - len(alone["tokens"])  # "represent", "this", ":"
    assert count == 3
    for name in ("tokens", "token_ids", "special"):
        assert item[name] == columns[name]
    assert item["offsets"] == [[0, 0]] * count + alone["offsets"]
    assert item["word_ids"] == [None] * count + alone["word_ids"]
    assert relative_distance(item["token_embeddings"], hidden[-1:]) <= 1e-5
    assert distance(item["embedding"], unit(hidden[-1].mean(0))) <= 1e-5, "this model pools its prompts"


def test_a_prompt_stands_before_the_first_text_of_a_pair(service: Service, reference: Reference) -> None:
    """The pair's second text is left as it is."""
    columns, hidden, _ = run_reference(reference, ("Query: first", "second"))
    (item,) = service.encode([["first", "second"]], prompt="Query: ", outputs=["tokens"])["data"]
    assert item["token_ids"] == columns["token_ids"]
    assert item["offsets"] == [[0, 0], [0, 0], [0, 0], [0, 5], [0, 0], [0, 6], [0, 0]]
    assert item["word_ids"] == [None, None, None, 0, None, 0, None]
    assert relative_distance(item["token_embeddings"], hidden[-1:]) <= 1e-5


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({}, PROMPTS["query"]),
        ({"prompt_name": "query"}, PROMPTS["query"]),
        ({"prompt_name": "passage"}, PROMPTS["passage"]),
        ({"prompt": "boy. "}, "boy. "),
        ({"prompt": ""}, ""),
    ],
)
def test_prompts_of_the_model(
    several: Service, prompted_reference: Reference, options: Json, prompt: str
) -> None:
    """The default holds unless another is named or written, "" is none; this model pools without it."""
    text = "hello man. beats boy"
    columns, hidden, _ = run_reference(prompted_reference, prompt + text)
    (item,) = several.encode(text, model="prompted", outputs=["sentence", "tokens"], **options)["data"]
    assert item["token_ids"] == columns["token_ids"]
    assert relative_distance(item["token_embeddings"], hidden[-1:]) <= 1e-5
    alone, _, _ = run_reference(prompted_reference, text)
    skip = len(columns["token_ids"]) - len(alone["token_ids"])
    pooled = hidden[-1][1 + skip if skip else 0 :]
    assert relative_distance(item["embedding"], pooled.mean(0)) <= 1e-5


def test_words_keep_their_number_when_the_prompt_is_cut_away(service: Service) -> None:
    """After a cut on the left, offsets and words are those of the text, with or without a prompt."""
    (plain,) = service.encode(LONG, truncation_side="left")["data"]
    (prompted,) = service.encode(LONG, truncation_side="left", prompt="Represent this: ")["data"]
    assert prompted["token_ids"] == plain["token_ids"]
    assert prompted["offsets"] == plain["offsets"]
    assert prompted["word_ids"] == plain["word_ids"]


# -------------------------------------------------------------------------------------- the numbers


def number_texts(response_text: str, name: str) -> list[str]:
    """The numbers of a field as they are written."""
    (found,) = re.findall(rf'"{name}":(\[[^a-z"]*(?:e[-+]?\d+[^a-z"]*)*\])', response_text)
    return re.findall(r"[-+0-9.e]+", found)


def test_numbers_are_the_shortest_text_of_their_float32(service: Service) -> None:
    """Every number read as float32 is the number computed, and no shorter text would give it back."""
    body = {"inputs": TEXTS[1], "outputs": ["sentence", "tokens"], "layers": [0, -1]}
    response = service.http.post("/encode", json=body)
    texts = number_texts(response.text, "embedding") + number_texts(response.text, "token_embeddings")
    assert len(texts) == 384 + 2 * len(response.json()["data"][0]["tokens"]) * 384
    for text in texts:
        shortest = np.format_float_scientific(np.float32(text), unique=True, trim="-")
        assert float(text) == float(shortest), (text, shortest)


def test_an_answer_is_compact_json_that_says_its_length(service: Service) -> None:
    """No blanks are sent, and Content-Length is the body's."""
    body = {"inputs": ["a", "b"], "outputs": ["tokens"]}
    response = service.http.post("/encode", json=body, headers={"Accept-Encoding": "identity"})
    assert response.headers["content-length"] == str(len(response.content))
    assert json.dumps(response.json(), separators=(",", ":"), ensure_ascii=False).count(" ") == 0
    assert b" " not in response.content


# ------------------------------------------------------------------------------ alone and in batches


def test_a_text_alone_equals_the_same_text_in_any_batch(service: Service) -> None:
    """Alone, or among 64 others while maps are computed for somebody else: the same numbers."""
    texts = [TEXTS[0], TEXTS[1], "", TEXTS[7], LONG, LONG[:500], "日本語 🙂"]
    crowd = ([text for text in texts if text != LONG] * 10)[: 64 - len(texts)]
    states = {"outputs": ["sentence", "tokens"], "layers": [1, 4, 6]}
    maps = {"layers": [0, 5], "decimals": 9}
    alone = [service.encode(text, **states)["data"][0] for text in texts]
    maps_alone = [service.attention(text, **maps)["data"][0]["attention"] for text in texts[:4]]

    with ThreadPoolExecutor(8) as pool:
        tasks: list[Callable[[], Json]] = []
        for _ in range(2):
            tasks += [
                lambda: service.encode(crowd[:20] + texts + crowd[20:], **states),
                lambda: service.attention([*texts[:4], "somebody else"], **maps),
                lambda: service.encode(crowd),
                lambda: service.attention(texts[:4], **maps),
            ]
        answers: list[Any] = list(pool.map(lambda task: task(), tasks))
    for answer in (answers[0], answers[4]):
        together = answer["data"][20 : 20 + len(texts)]
        for one, other in zip(alone, together, strict=True):
            assert one["token_ids"] == other["token_ids"]
            assert distance(one["embedding"], other["embedding"]) <= 2e-6
            for h, g in zip(one["token_embeddings"], other["token_embeddings"], strict=True):
                assert relative_distance(g, h) <= 2e-6
    for answer in (answers[1], answers[3], answers[5], answers[7]):
        for expected, item in zip(maps_alone, answer["data"], strict=False):
            assert distance(expected, item["attention"]) <= 2e-6 + 1e-9
