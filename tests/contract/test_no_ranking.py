"""Models whose folders say that they are no encoders of sentences rank nothing by the cosines of vectors."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from export.pipeline import export
from tests.model.checkpoints.test_layout import BEFORE, write_modules
from tests.references.cross_encoder import write_cross_encoder
from tests.references.families import change_config, write_model
from tests.support.families import SIZES
from tests.support.serving import Service, answered, assert_problem, post, serve

QUERY = {"query": "the man", "texts": ["the boy", "hello world"]}
ARCHITECTURES = {
    "answers": "BertForQuestionAnswering",
    "unknown": "BertReranker",
    "tokens": "BertForTokenClassification",
}


RENAMED = "its weights have a classifier, but architectures in config.json is ['BertModel']: set"


def write_renamed(folder: Path) -> None:
    """A cross-encoder whose folder calls it an encoder."""
    write_cross_encoder(folder, "Bert", **SIZES)
    change_config(folder, architectures=["BertModel"], id2label=None)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Folders that rank nothing, and some that do."""
    place = tmp_path_factory.mktemp("models")
    for name, architecture in ARCHITECTURES.items():
        saved = architecture.replace("BertReranker", "BertModel")
        write_model(place / name, "Bert", architecture=saved, **SIZES)
        change_config(place / name, architectures=[architecture])
    write_renamed(place / "renamed")
    write_model(place / "stripped", "Bert", **SIZES)
    change_config(place / "stripped", id2label={"0": "LABEL_0"})
    write_model(place / "encoder", "Bert", **SIZES)
    write_model(place / "words", "Bert", architecture="BertForMaskedLM", **SIZES)
    write_model(place / "modules", "Bert", architecture="BertForQuestionAnswering", **SIZES)
    write_modules(place / "modules", f"{BEFORE}.Transformer")
    models = ",".join(f"{one.name}={one}" for one in sorted(place.iterdir()))
    with serve(model=models) as started:
        yield started


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *(
            (name, f"its architecture in config.json, '{kind}', is no")
            for name, kind in ARCHITECTURES.items()
        ),
        ("renamed", RENAMED),
        (
            "stripped",
            "config.json names one label, as for a cross-encoder, but its architecture is 'BertModel'",
        ),
    ],
)
def test_what_cannot_rank_says_why(name: str, reason: str, service: Service) -> None:
    """In every protocol, with the models that can; its vectors are served all the same."""
    detail = refusal(service, name, reason)
    assert "choose from encoder, modules, words" in detail
    assert post(service, {**QUERY, "model": name}, "/tei/rerank").status_code == 424
    cohere = {"query": "a", "documents": ["b"], "model": name}
    assert reason in post(service, cohere, "/v2/rerank").text.replace('\\"', '"')
    assert service.encode("the boy", model=name)["data"][0]["embedding"]


def refusal(service: Service, name: str, reason: str) -> str:
    """The sentence in which a model refuses to rank, which has this reason."""
    response = post(service, {**QUERY, "model": name}, "/rerank")
    detail: str = assert_problem(response, 422, "unsupported", field="model")["detail"]
    assert f'The model "{name}" does not rank texts: {reason}' in detail
    return detail


@pytest.mark.thorough
def test_a_graph_says_it_too(tmp_path: Path) -> None:
    """In the same words as the folder that it was exported from."""
    write_renamed(tmp_path / "renamed")
    step = lambda _: nullcontext()  # noqa: E731
    export(str(tmp_path / "renamed"), tmp_path / "exported", dtype="float32", overwrite=False, step=step)
    with serve(model=tmp_path / "exported") as started:
        refusal(started, "renamed", RENAMED)


@pytest.mark.parametrize("name", ["encoder", "modules", "words"])
def test_encoders_of_sentences_rank_by_cosines(name: str, service: Service) -> None:
    """Also one that was trained on words, and any transformer that modules.json makes one of."""
    answer = answered(post(service, {**QUERY, "model": name}, "/rerank"))
    assert answer["method"] == "bi-encoder"
