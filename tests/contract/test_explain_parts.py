"""`POST /explain` with `parts`: exact sums, compared with `transformers` and numpy."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.references.checkpoints import SUITED, Reference
from tests.references.comparing import distance
from tests.references.explained import cosine_parts, interaction_parts, pooled_parts, write_with_layers
from tests.references.late_interaction import LateInteraction, write_pylate
from tests.support.backends import Kept, both_backends, native
from tests.support.serving import (
    NDJSON,
    NPZ,
    SAFETENSORS,
    Json,
    Service,
    answered,
    assert_problem,
    batches,
    post,
    read_npz,
    read_safetensors,
    serve,
)

pytestmark = both_backends

PAIRS = [["the man beats the boy. hello", "hello world"], ["a", "the boy: [the man]"], ["", "world"]]
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
SUMS = ("mean", "max", "mean_max", "mean_sqrt_len", "weighted_mean")


@pytest.fixture(scope="session")
def layered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any, list[Any]]]:
    """Models with linear layers after the pooling, and one whose second layer is not linear."""
    place = tmp_path_factory.mktemp("layered")
    kinds = {"linear": [IDENTITY, IDENTITY], "curved": [IDENTITY, TANH]}
    return {name: (place / name, *write_with_layers(place / name, kinds[name], **SUITED)) for name in kinds}


@pytest.fixture(scope="session")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> LateInteraction:
    return write_pylate(tmp_path_factory.mktemp("models") / "colbert", **SUITED)


@pytest.fixture(scope="session")
def served(
    kept: Kept,
    backend: str,
    prompted_folder: Path,
    layered: dict[str, tuple[Path, Any, list[Any]]],
    colbert: LateInteraction,
) -> Service:
    def start() -> AbstractContextManager[Service]:
        sources = {"prompted": prompted_folder, "colbert": colbert.folder}
        sources |= {name: folder for name, (folder, _, _) in layered.items()}
        models = [f"{name}={kept.folder(folder, backend)}" for name, folder in sources.items()]
        return serve(model=",".join(models), threads=1, **native(backend))

    return kept.service(("explained", backend), start)


def explain(service: Service, inputs: object = PAIRS, **body: object) -> list[Json]:
    answer = answered(post(service, {"inputs": inputs, **body}, "/explain"))
    assert answer["method"] == "parts"
    data: list[Json] = answer["data"]
    assert answer["usage"]["input_tokens"] == sum(len(item["tokens"]) for item in data)
    return data


def split(item: Json) -> list[list[int]]:
    """The token ids of each of the two texts."""
    columns = zip(item["token_ids"], item["segment_ids"], strict=True)
    ids: list[list[int]] = [[], []]
    for token, segment in columns:
        ids[segment].append(token)
    return ids


def hidden(reference: Reference, ids: list[int]) -> Any:
    states, _ = reference.run(ids, [0] * len(ids))
    return states[-1].astype(np.float64)


def assert_sum(item: Json) -> None:
    total = np.sum(np.array(item["parts"], np.float64))
    assert abs(total - item["score"]) <= 1e-6


@pytest.mark.parametrize("prompt", ["", "a man "])
@pytest.mark.parametrize("pooling", SUMS)
def test_the_parts_of_a_cosine_are_those_of_its_tokens(
    served: Service, prompted_reference: Reference, pooling: str, prompt: str
) -> None:
    """For every pooling to which several tokens contribute; a prompt that is not pooled adds nothing."""
    found = explain(served, unit="token", pooling=pooling, prompt=prompt, model="prompted")
    compared = answered(
        post(served, {"source": PAIRS[0][0], "texts": [PAIRS[0][1]], "model": "prompted", "prompt": prompt},
             "/similarity")
    )  # fmt: skip
    skip = 1 + len(prompt.split()) if prompt else 0
    for item in found:
        sides = [pooled_parts(hidden(prompted_reference, ids), pooling, skip) for ids in split(item)]
        assert distance(item["parts"], cosine_parts(*sides)) <= 2e-6
        assert_sum(item)
    if pooling == "mean":
        assert abs(found[0]["score"] - compared["similarities"][0]) <= 2e-7


def test_a_prompt_that_is_pooled_has_a_part(served: Service, layered: Any) -> None:
    """Each of its tokens is a unit of its own."""
    (item,) = explain(served, [["the boy", "hello"]], prompt="a man ", model="linear")
    first = ["[CLS]", "a", "man", "the", "boy", "[SEP]", "bias"]
    assert item["units"]["text"] == [*first, "[CLS]", "a", "man", "hello", "[SEP]", "bias"]
    assert item["units"]["offsets"][1:3] == [[0, 0], [0, 0]]
    assert np.abs(np.array(item["parts"])[1:3]).min() > 0
    assert_sum(item)


@pytest.mark.parametrize("dimensions", [None, 10])
def test_linear_layers_map_the_parts_and_their_bias_is_one(
    served: Service, layered: dict[str, tuple[Path, Any, list[Any]]], dimensions: int | None
) -> None:
    """Also of the first components alone (Matryoshka); the bias of the first layer passes the second."""
    folder, _, layers = layered["linear"]
    reference = Reference.load(folder)
    more = {} if dimensions is None else {"dimensions": dimensions}
    for item in explain(served, unit="token", model="linear", **more):
        sides = []
        for ids in split(item):
            parts = np.vstack([pooled_parts(hidden(reference, ids), "mean"), np.zeros(64)])
            for layer in layers:
                parts = parts @ layer[:, :-1].T
                parts[-1] += layer[:, -1]
            sides.append(parts[:, :dimensions])
        assert distance(item["parts"], cosine_parts(*sides)) <= 2e-6
        assert_sum(item)
        bias = [i for i, text in enumerate(item["units"]["text"]) if text == "bias"]
        assert [item["units"]["segment"][i] for i in bias] == [0, 1]


def test_max_sim_gives_each_token_of_the_query_one_of_the_document(
    served: Service, colbert: LateInteraction
) -> None:
    """The score is that of /rerank."""
    for (query, text), item in zip(PAIRS, explain(served, unit="token", model="colbert"), strict=True):
        _, rows, of_query = colbert.vectors(query, is_query=True)
        _, others, of_text = colbert.vectors(text, is_query=False)
        whole = np.zeros(np.shape(item["parts"]))
        whole[np.ix_(rows, others)] = interaction_parts(of_query, of_text)
        assert distance(item["parts"], whole) <= 1e-5
        assert item["function"] == "max_sim"
        assert_sum(item)
        if query:
            ranked = post(served, {"query": query, "texts": [text], "model": "colbert"}, "/rerank").json()
            assert abs(ranked["data"][0]["score"] - item["score"]) <= 2e-6


@pytest.mark.parametrize("model", ["prompted", "linear", "colbert"])
def test_words_and_sentences_sum_their_tokens(served: Service, model: str) -> None:
    """Each unit has its tokens once, and its text and offsets."""
    for unit in ("word", "sentence"):
        for tokens, item in zip(
            explain(served, unit="token", model=model), explain(served, unit=unit, model=model), strict=True
        ):
            units, first = item["units"], len(split(item)[0])
            cells, sides = np.array(tokens["parts"]), []
            for side, offset in ((0, 0), (1, first)):
                spans = [
                    s
                    for s, where in zip(units["token_spans"], units["segment"], strict=True)
                    if where == side
                ]
                size = cells.shape[side]
                rows = np.zeros((len(spans), size))
                for i, (start, after) in enumerate(spans):
                    rows[i, start - offset : max(after, start + 1) - offset] = 1  # the bias has no token
                assert (rows.sum(0) == 1).all()
                sides.append(rows)
            assert distance(item["parts"], sides[0] @ cells @ sides[1].T) <= 2e-6
            assert_sum(item)
    (item,) = explain(
        served, [["the boy. Hello world", "beating"]], unit="sentence", model="prompted", prompt=""
    )
    assert item["units"]["text"] == ["[CLS]", "the boy.", "Hello world", "[SEP]", "[CLS]", "beating", "[SEP]"]
    assert item["units"]["offsets"] == [[0, 0], [0, 8], [9, 20], [0, 0], [0, 0], [0, 7], [0, 0]]
    assert item["units"]["token_spans"] == [[0, 1], [1, 4], [4, 6], [6, 7], [7, 8], [8, 13], [13, 14]]


def test_every_format_has_the_same_parts(served: Service) -> None:
    """Files have them as arrays, and the rest in their metadata; ndjson has a line for each input."""
    body = {"inputs": PAIRS, "model": "prompted"}
    plain = answered(post(served, body, "/explain"))
    for kind, read in ((NPZ, read_npz), (SAFETENSORS, read_safetensors)):
        arrays, rest = read(post(served, body, "/explain", accept=kind).content)
        for i, item in enumerate(plain["data"]):
            assert np.array_equal(arrays[f"{i}.parts"], np.array(item["parts"], np.float32))
            assert rest["data"][i] == {name: value for name, value in item.items() if name != "parts"}
    *lines, last = map(json.loads, post(served, body, "/explain", accept=NDJSON).text.splitlines())
    assert sorted(lines, key=lambda line: int(line["index"])) == plain["data"]
    assert last == {name: plain[name] for name in ("model", "method", "usage")}


def test_the_dot_product_has_parts_too(served: Service) -> None:
    """Not divided by norms."""
    for item in explain(served, model="prompted", function="dot", prompt=""):
        assert abs(np.sum(item["parts"]) - item["score"]) <= 1e-6 * max(1, abs(item["score"]))


NO_EFFECT = "has no effect on a late-interaction model"
REFUSED: list[tuple[Json, str, str, str]] = [
    ({"inputs": ["a", "b"]}, "invalid-request", "inputs", "must be pairs"),
    ({"inputs": "a"}, "invalid-request", "inputs", "must be pairs"),
    ({"inputs": [["a"]]}, "invalid-request", "inputs.0", "a pair of two strings"),
    ({"pooling": "cls"}, "unsupported", "pooling", "choose max, mean, mean_sqrt_len,"),
    ({"pooling": "last"}, "unsupported", "pooling", '"last", which uses the vector of one token'),
    ({"function": "euclidean"}, "unsupported", "function", "choose cosine or dot"),
    ({"model": "curved"}, "unsupported", "method", "a layer with the activation Tanh after its pooling"),
    ({"dimensions": 65}, "invalid-request", "dimensions", "choose 1 to 64"),
    ({"unit": "letter"}, "invalid-request", "unit", "'token', 'word' or 'sentence'"),
    ({"model": "colbert", "function": "dot"}, "invalid-request", "function", NO_EFFECT),
    ({"model": "colbert", "prompt": "a"}, "invalid-request", "prompt", NO_EFFECT),
    ({"model": "colbert", "pooling": "mean"}, "invalid-request", "pooling", NO_EFFECT),
    ({"inputs": [["a", "the man " * 40]], "truncate": False}, "input-too-long", "inputs.0.1", "85 tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind", "field", "detail"), REFUSED)
def test_a_refusal_says_what_to_change(
    served: Service, body: Json, kind: str, field: str, detail: str
) -> None:
    """Before anything runs."""
    body = {"inputs": [["a", "b"]], "model": "prompted", "method": "parts", **body}
    before = batches(served, body["model"])
    document = assert_problem(post(served, body, "/explain"), 422, kind, field=field)
    assert detail in document["detail"]
    assert batches(served, body["model"]) == before


@pytest.mark.parametrize(
    ("body", "method"),
    [
        ({"model": "linear"}, "parts"),
        ({"model": "colbert"}, "parts"),
        ({"model": "curved"}, "occlusion"),
        ({"model": "prompted", "pooling": "cls"}, "occlusion"),
        ({"model": "prompted", "function": "manhattan"}, "occlusion"),
    ],
)
def test_parts_are_the_default_where_there_are_any(served: Service, body: Json, method: str) -> None:
    """Elsewhere it is occlusion; the answer says which."""
    answer = answered(post(served, {"inputs": PAIRS[:1], **body}, "/explain"))
    assert answer["method"] == method
    assert ("parts" in answer["data"][0]) == (method == "parts")


def test_parts_of_long_texts_are_refused_before_any_work(narrow: Service) -> None:
    """By the size that they could have, with what makes them fewer."""
    before = batches(narrow)
    document = assert_problem(
        post(narrow, {"inputs": [["word " * 60, "word " * 60]]}, "/explain"), 413, "response-too-large"
    )
    assert "choose a larger `unit`" in document["detail"]
    assert batches(narrow) == before
