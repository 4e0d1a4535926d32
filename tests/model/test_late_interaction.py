"""Vectors of tokens for late interaction, from folders of either form, whatever runs them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.checkpoints.checkpoint import load_checkpoint
from model.contract import Backend, HeadInfo, Role, Want
from model.errors import CheckpointError, InputTooLong
from model.heads.late_interaction import want_vectors
from model.loading import load_model
from model.tokenization.tokenizer import Side, TextTokenizer, Truncation
from tests.references.checkpoints import SUITED
from tests.references.comparing import distance
from tests.references.families import write_model
from tests.references.late_interaction import (
    SIZE,
    LateInteraction,
    Settings,
    write_json,
    write_pylate,
    write_stanford,
)
from tests.support.backends import load
from tests.support.exporting import export_silently
from tests.support.families import SIZES
from tests.support.product import run

TEXTS = ["the man beats the boy", "hello, world: [the boy].", "a", "", "hello world " * 20]
ROLES: tuple[Role, ...] = ("query", "document")
STANFORD = Settings(query_marker="[unused0]", document_marker="[unused1]")
FORMS = {
    "PyLate": (write_pylate, Settings()),
    "attends": (write_pylate, Settings(attends=True)),
    "without expansion": (write_pylate, Settings(expands=False)),
    "some words": (write_pylate, Settings(skipped=["the", "boy", "unknown"])),
    "Stanford": (write_stanford, STANFORD),
}


@pytest.fixture(scope="module", params=FORMS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LateInteraction:
    """A folder of each form."""
    write, settings = FORMS[request.param]
    return write(tmp_path_factory.mktemp("late") / "model", settings, **SUITED)


def check(written: LateInteraction, tokenizer: TextTokenizer, backend: Backend, bound: float) -> None:
    """Every text in both roles, in one batch with texts without a role, and alone."""
    assert backend.info.head == HeadInfo("late_interaction", size=SIZE)
    asked = [(role, text) for role in ROLES for text in TEXTS]
    encodings = [tokenizer.of(role).encode([text])[0] for role, text in asked]
    plain = tokenizer.encode(TEXTS)
    wants = [*map(want_vectors, encodings), *[Want(token_layers=(backend.info.layers,))] * len(plain)]
    outputs = run(backend, [*encodings, *plain], wants)
    for (role, text), encoding, output in zip(asked, encodings, outputs, strict=False):
        ids, rows, vectors = written.vectors(text, is_query=role == "query")
        assert (encoding.token_ids, list(encoding.vector_rows)) == (ids, rows)
        assert distance(output.heads["token_vectors"], vectors) <= bound
        (alone,) = run(backend, [encoding], [want_vectors(encoding)])
        assert distance(alone.heads["token_vectors"], vectors) <= bound
    for encoding, output in zip(plain, outputs[len(asked) :], strict=True):
        expected = written.hidden(encoding.token_ids, [1] * len(encoding))
        assert output.tokens is not None
        assert distance(output.tokens[0], expected) <= bound * max(1, np.abs(expected).max())


def test_vectors_are_those_of_the_definition(written: LateInteraction) -> None:
    """Markers, expansion, what attends to what, the skip list, the matrix and the norm."""
    check(written, *load(written.folder, "torch"), 1e-5)


@pytest.mark.parametrize("form", ["PyLate", "Stanford"])
@pytest.mark.thorough
def test_an_exported_folder_has_the_same_vectors(form: str, tmp_path: Path) -> None:
    """Without PyTorch: settings and matrix are exported with the graph."""
    write, settings = FORMS[form]
    written = write(tmp_path / "model", settings, **SUITED)
    place = tmp_path / "graph"
    export_silently(written.folder, place)
    check(written, *load_model(str(place), kind="onnx", device="cpu"), 1e-5)


def test_a_role_has_its_columns_and_its_limit(tmp_path: Path) -> None:
    """The marker and what fills a query up are special; a text is cut to what its role reads."""
    written = write_pylate(tmp_path, **SUITED)
    tokenizer, _ = load(tmp_path, "torch")
    (query,) = tokenizer.of("query").encode(["the man"])
    assert query.tokens == ["[CLS]", "[Q] ", "the", "man", "[SEP]", *["[MASK]"] * 7]
    assert query.special == [True, True, False, False, True, *[True] * 7]
    assert query.offsets[1:4] == [(0, 0), (0, 3), (4, 7)]
    assert query.word_ids == [None, None, 0, 1, None, *[None] * 7]
    assert (query.unattended, query.original_length, query.truncated) == (7, 5, False)
    (document,) = tokenizer.of("document").encode(["the man " * 20])
    limit = written.settings.document_length
    assert (len(document), document.truncated, document.original_length) == (limit, True, 43)
    with pytest.raises(InputTooLong) as refused:
        tokenizer.of("query").encode(["the man " * 20], Truncation(allowed=False))
    assert (refused.value.actual, refused.value.limit) == (43, written.settings.query_length)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("role", ROLES)
def test_the_marker_counts_in_a_lower_limit(role: Role, side: Side, tmp_path: Path) -> None:
    """As special tokens do; what fills a query up does not. Errors state the same limit."""
    tokenizer = load(write_pylate(tmp_path, **SUITED).folder, "torch")[0].of(role)
    text = "the man beats the boy"
    (whole,) = tokenizer.encode([text])
    length = whole.original_length
    for limit in range(3, length + 2):
        (cut,) = tokenizer.encode([text], Truncation(side=side, limit=limit))
        tokens = cut.tokens[: len(cut) - cut.unattended]
        first, marker, *words, last = whole.tokens[:length]
        room = min(limit, length) - 3
        kept = words[:room] if side == "right" else words[max(0, len(words) - room) :]
        assert tokens == [first, marker, *kept, last]
        assert (cut.truncated, cut.original_length) == (limit < length, length)
        assert len(cut) == (len(whole) if role == "query" else len(tokens))
        if limit < length:
            with pytest.raises(InputTooLong) as refused:
                tokenizer.encode([text], Truncation(allowed=False, limit=limit))
            assert (refused.value.actual, refused.value.limit) == (length, limit)


def change(folder: Path, **settings: Any) -> None:
    """Change settings of a folder in PyLate's form."""
    file = folder / "config_sentence_transformers.json"
    write_json(file, json.loads(file.read_text(encoding="utf-8")) | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"query_prefix": "[X] "}, "does not have the token '[X] ', which queries or documents of late"),
        ({"query_length": "32"}, "query_length is '32'; it must be a whole number of tokens"),
        (
            {"document_length": 3},
            "have 3 tokens, but 3 special tokens are added, which leaves no room for text",
        ),
        ({"skiplist_words": "."}, "skiplist_words is '.'; it must be a list of at most"),
        ({"do_query_expansion": 1}, "do_query_expansion is 1; it must be true or false"),
    ],
)
def test_settings_that_are_not_understood_end_the_start(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """With the file, the field and what it must be."""
    write_pylate(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "DebertaV2",
            {"relative_attention": True, "pos_att_type": ["c2p"]},
            "models of this family cannot i",
        ),
        ("Esm", {"position_embedding_type": "rotary"}, "models of this family cannot i"),
        ("ModernBert", {"local_attention": 8}, "query_length must be at most 7, unless"),
    ],
)
def test_queries_that_would_attend_to_nothing_are_refused(
    name: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """What fills them up would be computed otherwise than by the originals; with attention it is not."""
    write_model(tmp_path, name, **SIZES, **options)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    metadata = {"query_token_id": "a", "doc_token_id": "b"}
    write_json(tmp_path / "config.json", config | {"architectures": ["HF_ColBERT"]})
    write_json(tmp_path / "artifact.metadata", metadata)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(tmp_path)
    assert message in str(refused.value)
    write_json(tmp_path / "artifact.metadata", metadata | {"attend_to_mask_tokens": True})
    with pytest.raises(CheckpointError, match=r"the weights lack linear\.weight"):
        load_checkpoint(tmp_path)
