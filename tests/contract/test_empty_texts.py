"""A text of which the tokenizer makes no token is refused, and is no failure of inference."""

import json
from collections.abc import Iterator

import pytest

from tests.references.checkpoints import write_bert
from tests.support.serving import Json, Service, post, serve


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A model whose tokenizer puts no special tokens around a text."""
    folder = tmp_path_factory.mktemp("bare")
    write_bert(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "post_processor": None}), encoding="utf-8")
    with serve(model=folder) as started:
        yield started


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/encode", {"inputs": ["a", ""]}, "inputs.1"),
        ("/attention", {"inputs": ["a", "b", " "]}, "inputs.2"),
        ("/similarity", {"source": "a", "texts": ["b", ""]}, "texts.1"),
        ("/rerank", {"query": " ", "texts": ["b"]}, "query"),
        ("/v1/embeddings", {"input": ["", "a"]}, "input.0"),
        ("/embed", {"inputs": ["a", "\n"]}, "inputs.1"),
    ],
)
def test_a_text_without_tokens_is_refused(bare: Service, path: str, body: Json, field: str) -> None:
    """By its place in the request, in the form of the route."""
    answer = post(bare, body, path)
    assert answer.status_code in (400, 413, 422)
    assert f"{field} has no tokens" in answer.text
    failed = {name: value for name, value in bare.metrics().items() if "inference-failed" in name}
    assert not any(failed.values())


def test_the_tokenizer_alone_still_says_that_there_is_none(bare: Service) -> None:
    """Nothing is run for /tokenize."""
    answer = post(bare, {"inputs": ["a", ""]}, "/tokenize")
    assert [item["original_length"] for item in answer.json()["data"]] == [1, 0]
