"""Models whose folders say that they are no encoders of sentences rank nothing by the cosines of vectors."""

from collections.abc import Iterator
from contextlib import nullcontext

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


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Folders that rank nothing, and some that do."""
    place = tmp_path_factory.mktemp("models")
    for name, architecture in ARCHITECTURES.items():
        saved = architecture.replace("BertReranker", "BertModel")
        write_model(place / name, "Bert", architecture=saved, **SIZES)
        change_config(place / name, architectures=[architecture])
    write_cross_encoder(place / "renamed", "Bert", **SIZES)
    change_config(place / "renamed", architectures=["BertModel"], id2label=None)
    step = lambda _: nullcontext()  # noqa: E731
    export(str(place / "renamed"), place / "exported", dtype="float32", overwrite=False, step=step)
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
        *((name, f"config.json says '{kind}', which is no") for name, kind in ARCHITECTURES.items()),
        ("renamed", "its weights have a classifier, but architectures in config.json is ['BertModel']: set"),
        (
            "exported",
            "its weights have a classifier, but architectures in config.json is ['BertModel']: set",
        ),
        ("stripped", "config.json names one label, as that of a cross-encoder does, but says 'BertModel'"),
    ],
)
def test_what_cannot_rank_says_why(name: str, reason: str, service: Service) -> None:
    """In every protocol, with the models that can; its vectors are served all the same."""
    response = post(service, {**QUERY, "model": name}, "/rerank")
    detail = assert_problem(response, 422, "unsupported", field="model")["detail"]
    assert f'The model "{name}" does not rank texts: {reason}' in detail
    assert "choose from encoder, modules, words" in detail
    assert post(service, {**QUERY, "model": name}, "/tei/rerank").status_code == 424
    cohere = {"query": "a", "documents": ["b"], "model": name}
    assert reason in post(service, cohere, "/v2/rerank").text.replace('\\"', '"')
    assert service.encode("the boy", model=name)["data"][0]["embedding"]


@pytest.mark.parametrize("name", ["encoder", "modules", "words"])
def test_encoders_of_sentences_rank_by_cosines(name: str, service: Service) -> None:
    """Also one that was trained on words, and any transformer that modules.json makes one of."""
    answer = answered(post(service, {**QUERY, "model": name}, "/rerank"))
    assert answer["method"] == "bi-encoder"
