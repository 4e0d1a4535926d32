"""Vectors of tokens of a MultiVectorEncoder of sentence-transformers 6, with each of its options."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from model.choices import Interaction
from model.contract import Backend, HeadInfo, Role
from model.errors import CheckpointError
from model.heads.late_interaction import want_vectors
from model.loading import load_model
from model.tokenization.tokenizer import TextTokenizer
from tests.references.checkpoints import SUITED
from tests.references.comparing import distance
from tests.references.late_interaction import write_json
from tests.references.multi_vector import (
    CASES,
    COMPONENTS,
    FIXED,
    POOLED,
    TEXTS,
    MultiSettings,
    MultiVector,
    recorded,
    write_listing,
    write_multi_vector,
)
from tests.support.backends import PLAIN, load
from tests.support.exporting import export_silently
from tests.support.product import run

SETTINGS = {
    "plain": MultiSettings(),
    "two layers": MultiSettings(sizes=(24, 8)),
    "no layer": MultiSettings(sizes=()),
    "lengths": MultiSettings(query_length=8, document_length=20),
    "words": MultiSettings(skipped=[".", ",", "boy", "unknown"]),
    "words of both": MultiSettings(skipped=[".", "the"], tasks=["query", "document"]),
    "prompts": MultiSettings(prompts={"query": "the man: ", "document": "hello "}),
    "fixed": MultiSettings(expansion=FIXED, document_length=20, skipped=[","]),
    "attended": MultiSettings(expansion=FIXED | {"attend": True}, prompts={"query": "a ", "document": ""}),
    "min": MultiSettings(expansion=FIXED | {"strategy": "min"}),
    "min with a limit": MultiSettings(expansion=FIXED | {"strategy": "min"}, query_length=15),
    "a token": MultiSettings(expansion=FIXED | {"token": "boy"}),
    **CASES,
}
BACKENDS = (*(("torch", name) for name in SETTINGS), *((PLAIN, name) for name in CASES))


def check(written: MultiVector, tokenizer: TextTokenizer, backend: Backend, bound: float = 1e-5) -> None:
    """Every text in both roles, in one batch and alone."""
    size = written.matrices[-1].shape[0] if written.matrices else SUITED["hidden_size"]
    settings = written.settings
    pools = settings.pooling is not None and settings.pooling["pool_factor"] > 1
    mean = settings.similarity == "meanmaxsim"
    interaction = Interaction(mean=mean, empty=-1e9, pools=pools)
    assert backend.info.head == HeadInfo("late_interaction", size=size, interaction=interaction)
    roles: tuple[Role, ...] = get_args(Role)
    asked = [(role, text) for role in roles for text in TEXTS]
    encodings = [tokenizer.of(role).encode([text])[0] for role, text in asked]
    outputs = run(backend, encodings, [*map(want_vectors, encodings)])
    for (role, text), encoding, output in zip(asked, encodings, outputs, strict=True):
        ids, rows, _ = written.vectors(text, role)
        vectors, clusters = written.pooled(text, role)
        assert (encoding.token_ids, list(encoding.vector_rows)) == (ids, rows)
        (alone,) = run(backend, [encoding], [want_vectors(encoding)])
        for found in (output.heads, alone.heads):
            assert found["token_vectors"].shape == vectors.shape
            assert distance(found["token_vectors"], vectors) <= bound
            if pools and settings.pooling is not None and role in settings.pooling["tasks"]:
                assert found["token_clusters"].tolist() == clusters
            else:
                assert list(found) == ["token_vectors"]


@pytest.mark.in_turns
@pytest.mark.parametrize(("backend", "name"), BACKENDS)
def test_vectors_are_those_of_the_modules(backend: str, name: str, tmp_path: Path) -> None:
    """Prompts, lengths, expansion, what attends to what, the words left out, the layers, norm and pooling."""
    check(write_multi_vector(tmp_path, SETTINGS[name], **SUITED), *load(tmp_path, backend))


@pytest.mark.parametrize("name", CASES)
def test_the_definitions_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    """Which are what the tests here compare with."""
    written, made = write_multi_vector(tmp_path, CASES[name], **SUITED), recorded()[name]
    for role in get_args(Role):
        for text, expected in zip(TEXTS, made[role], strict=True):
            vectors, _ = written.pooled(text, role)
            assert len(vectors) == len(expected)
            assert distance(vectors[:, :COMPONENTS], np.reshape(expected, (-1, COMPONENTS))) <= 2e-6
    for query, scores in zip(TEXTS, made["scores"], strict=True):
        for document, expected in zip(TEXTS, scores, strict=True):
            assert written.score(query, document) == pytest.approx(expected, rel=1e-6, abs=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fixed", "pooled queries", "kept and pooled"])
def test_an_exported_folder_has_the_same_vectors(name: str, tmp_path: Path) -> None:
    """Without PyTorch: settings and matrices are exported with the graph."""
    written = write_multi_vector(tmp_path / "model", SETTINGS[name], **SUITED)
    export_silently(written.folder, tmp_path / "graph")
    check(written, *load_model(str(tmp_path / "graph"), kind="onnx", device="cpu"))


def test_texts_that_are_pooled_have_a_limit(tmp_path: Path) -> None:
    """The distances of all pairs of tokens are in memory; a shorter length of documents is the way out."""
    options = SUITED | {"max_position_embeddings": 4097}
    longer = change("tokenizer_config.json", model_max_length=4097)
    longer(write_multi_vector(tmp_path / "long", MultiSettings(pooling=POOLED), **options).folder)
    message = "have 4097 tokens, but HierarchicalTokenPooling is served for at most 4096: set document_length"
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "long", "torch")
    cut = MultiSettings(pooling=POOLED, document_length=4096)
    written = write_multi_vector(tmp_path / "cut", cut, **options)
    longer(written.folder)
    tokenizer, backend = load(written.folder, "torch")
    (encoding,) = tokenizer.of("document").encode(["hello the world " * 500])
    (output,) = run(backend, [encoding], [want_vectors(encoding)])
    assert len(encoding) == 1502
    assert len(output.heads["token_vectors"]) == 1 + 1501 // 2


def test_token_pooling_may_be_listed_where_it_pools_nothing(tmp_path: Path) -> None:
    """A factor of 1 leaves each token its vector."""
    written = write_multi_vector(tmp_path, **SUITED)
    add_pooling(1.0)(tmp_path)
    check(written, *load(tmp_path, "torch"))


def add_pooling(factor: Any, before: str | None = None, **changes: Any) -> Callable[[Path], None]:
    def add(folder: Path) -> None:
        (folder / "4_Pooling").mkdir()
        write_json(folder / "4_Pooling" / "config.json", {**POOLED, "pool_factor": factor, **changes})
        after = [one for one in LISTED if one[0] == before]
        kept = [one for one in LISTED if one not in after]
        write_listing(folder, [*kept, ("HierarchicalTokenPooling", "4_Pooling"), *after])

    return add


def change(name: str, **changes: Any) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        file = folder / name
        write_json(file, json.loads(file.read_text("utf-8")) | changes)

    return changed


LISTED = [
    ("Transformer", ""),
    ("Dense", "1_Dense"),
    ("MultiVectorMask", "2_MultiVectorMask"),
    ("Normalize", "3_Normalize"),
]
GENERAL, SENTENCE, MASK = (
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "2_MultiVectorMask/config.json",
)
LENGTH = {"strategy": "fixed", "length": 12}
REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (add_pooling(0.5), "pool_factor is 0.5; it must be a number of at least 1"),
    (add_pooling("2"), "pool_factor is '2'; it must be a number of at least 1"),
    (add_pooling(2.0, num_protected_tokens=-1), "num_protected_tokens is -1; it must be a whole number"),
    (add_pooling(2.0, normalize_embeddings=1), "normalize_embeddings is 1; it must be true or false"),
    (add_pooling(2.0, tasks=[1]), r"tasks is \[1\]; it must be a list"),
    (add_pooling(2.0, before="MultiVectorMask"), "lists Transformer, Dense, Normalize, Hierarchical.*Mask:"),
    (
        change(GENERAL, similarity_fn_name="cosine"),
        "similarity_fn_name is 'cosine'; it must be one of maxsim, meanmaxsim, or null",
    ),
    (change(GENERAL, truncate_dim=8), "truncate_dim is 8; sentence-transformers does not truncate"),
    (
        change(GENERAL, model_type="SentenceTransformer"),
        "model_type is 'SentenceTransformer', with the",
    ),
    (
        change(MASK, keep_only_token_ids=["the"]),
        r"keep_only_token_ids is \['the'\]; it must be a list",
    ),
    (change(MASK, skiplist_words=[1]), r"skiplist_words is \[1\]; it must be a list"),
    (
        change(SENTENCE, query_expansion={"strategy": "max"}),
        r"it must have strategy \(fixed or min\)",
    ),
    (change(SENTENCE, query_expansion={"strategy": "min"}), "length is 0; it must be a whole number"),
    (
        change(SENTENCE, query_expansion=LENGTH | {"x": 1}),
        r"it must have strategy \(fixed or min\)",
    ),
    (
        change(SENTENCE, query_expansion=LENGTH, query_length=8),
        "query_length is 8, but query_expansion",
    ),
    (change(SENTENCE, query_expansion=LENGTH | {"token": "[no]"}), r"does not have the token '\[no\]'"),
    (change(SENTENCE, document_length="long"), "document_length is 'long'; it must be a whole number"),
    (change("3_Normalize/config.json", module_input_name="sentence_embedding"), "module_(in|out)put_name"),
    (
        change("1_Dense/config.json", module_output_name="x"),
        "a Dense layer from token_embeddings to x",
    ),
    (
        lambda folder: write_listing(folder, [LISTED[0], LISTED[3], *LISTED[1:3]]),
        "lists Transformer, Normalize, Dense, MultiVectorMask: headlight serves",
    ),
    (
        lambda folder: write_listing(folder, LISTED[:3]),
        "lists Transformer, Dense, MultiVectorMask:",
    ),
    (
        lambda folder: write_listing(folder, [LISTED[0]]),
        "model_type is 'MultiVectorEncoder', without the module MultiVectorMask",
    ),
]


@pytest.mark.parametrize(("damage", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_served_is_refused_in_a_sentence(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    """Which names the file, the field, its value and what is served."""
    write_multi_vector(tmp_path, **SUITED)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_model(str(tmp_path), dtype="float32")
    assert str(tmp_path) in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)
