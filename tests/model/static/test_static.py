"""A text's vector is the mean of its tokens' vectors, as in the library that has saved the table."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from model.choices import Kind
from model.contract import Backend, ChunksWant, SentenceWant, Want
from model.errors import CheckpointError, InputTooLong, OutOfMemory, Unsupported
from model.loading import load_model
from model.tokenization.tokenizer import TextTokenizer, Truncation
from tests.references.checkpoints import write_bert
from tests.references.comparing import distance
from tests.references.static import (
    SIZE,
    Static,
    write_model2vec,
    write_modules,
    write_sentence_transformers,
)
from tests.support.exporting import export_silently
from tests.support.product import run

TEXTS = [
    "the man beats the boy",
    "hello world, the 日 本",
    "",
    " \n",
    "🙃",
    "🙃 the 🙃 man",
    "hello [SEP] world [CLS]",
    "the man " * 300,
    "🙃 " * 500 + "the man",
    "hello" * 300,
    "x",
]
WRITERS: dict[str, Callable[[Path], Static]] = {
    "model2vec": write_model2vec,
    "mapping and weights": lambda folder: write_model2vec(folder, quantized=True, normalize=False),
    "float16": lambda folder: write_model2vec(folder, dtype="float16"),
    "int8": lambda folder: write_model2vec(folder, dtype="int8"),
    "a limit of 7": lambda folder: write_model2vec(folder, max_length=7),
    "no limit": lambda folder: write_model2vec(folder, max_length=None, normalize=False),
    "no modules.json": lambda folder: write_model2vec(folder, listed=False),
    "sentence-transformers": write_sentence_transformers,
    "in a folder": lambda folder: write_sentence_transformers(folder, place="0_StaticEmbedding"),
    "truncated": lambda folder: write_sentence_transformers(folder, truncate_dim=5),
}


def own(backend: Backend) -> Want:
    info = backend.info
    return Want(SentenceWant(info.pooling, (info.layers,), info.normalize))


def loaded(folder: Path) -> tuple[TextTokenizer, Backend]:
    return load_model(str(folder), strict=True)


@pytest.mark.parametrize("kind", WRITERS)
def test_vectors_are_those_of_the_library(tmp_path: Path, kind: str) -> None:
    """Of texts without tokens or known ones, and long ones too; alone and in one batch."""
    written = WRITERS[kind](tmp_path)
    tokenizer, backend = loaded(tmp_path)
    encodings = tokenizer.encode(TEXTS)
    assert [one.token_ids for one in encodings] == [written.ids(text) for text in TEXTS]
    together = run(backend, encodings, [own(backend)] * len(TEXTS))
    for text, output in zip(TEXTS, together, strict=True):
        (alone,) = run(backend, tokenizer.encode([text]), [own(backend)])
        expected = written.vector(text)
        assert len(expected) == backend.info.sentence_size
        assert distance(output.sentence, expected) <= 1e-5
        assert distance(alone.sentence, expected) <= 1e-5


def test_it_has_no_layers_and_its_only_hidden_state_is_the_table(tmp_path: Path) -> None:
    """Vectors of tokens, other poolings and chunks are made of it; PyTorch and a graph are not needed."""
    written = write_model2vec(tmp_path, quantized=True)
    tokenizer, backend = loaded(tmp_path)
    info = backend.info
    assert (info.layers, info.heads, info.attention_layers, info.backend) == (0, 0, (), "static")
    assert (info.family, info.dtype, info.max_length, info.hidden_size) == ("model2vec", "float32", 512, SIZE)
    rows = written.vectors[written.ids(TEXTS[0])]
    (encoding,) = tokenizer.encode(TEXTS[:1])
    want = Want(
        SentenceWant(("mean", "max"), (0,), skip=1),
        token_layers=(0, 0),
        heads=(ChunksWant(((0, 2), (1, 5))),),
    )
    (output,) = run(backend, [encoding], [want])
    assert distance(output.tokens, np.stack([rows, rows])) <= 1e-6
    assert distance(output.sentence, np.concatenate([rows[1:].mean(0), rows[1:].max(0)])) <= 1e-6
    assert distance(output.heads["chunks"], np.stack([rows[:2].mean(0), rows[1:].mean(0)])) <= 1e-6


def test_a_text_that_may_not_be_cut_is_refused_by_its_tokens(tmp_path: Path) -> None:
    """model2vec cuts by characters first, too, which says how many tokens are left out all the same."""
    write_model2vec(tmp_path, max_length=7)
    tokenizer, _ = loaded(tmp_path)
    (cut,) = tokenizer.encode(["the man " * 10])
    assert (cut.truncated, cut.original_length) == (True, 20)
    with pytest.raises(InputTooLong, match="20 tokens long, but the model reads at most 7"):
        tokenizer.encode(["the man " * 10], Truncation(allowed=False))


def test_whatever_the_settings_say_it_runs_on_the_cpu(tmp_path: Path) -> None:
    """With a backend for others, too; only in another precision it would have other vectors."""
    write_model2vec(tmp_path)
    for kind in get_args(Kind):
        assert load_model(str(tmp_path), kind=kind)[1].info.device == "cpu"
    with pytest.raises(Unsupported, match=r"dtype is bfloat16, but .* computed in float32: choose"):
        load_model(str(tmp_path), dtype="bfloat16")


def test_it_is_not_exported(tmp_path: Path) -> None:
    """It runs without PyTorch as it is."""
    write_model2vec(tmp_path / "table")
    with pytest.raises(CheckpointError, match="serve it as it is"):
        export_silently(tmp_path / "table", tmp_path / "new")


def change_tensors(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        tensors = {**load_file(file), **changes}
        save_file({name: one for name, one in tensors.items() if one is not None}, file)

    return change


def change_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), encoding="utf-8")

    return change


def cut_file(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def write_tokenizer_of_another(folder: Path) -> None:
    write_bert(folder / "other", words=["further", "words"])
    (folder / "other" / "tokenizer.json").rename(folder / "tokenizer.json")


DAMAGED: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
    (cut_file, "cannot be read: .*; fetch it again"),
    (
        change_tensors(embeddings=None),
        r"has the tensors .*'mapping', 'weights'.*; a table of token vectors has",
    ),
    (change_tensors(other=np.zeros(3)), "has the tensors .*'other'"),
    (
        change_tensors(embeddings=np.zeros((3, 4), np.float32)),
        "mapping names the rows 0 to .*, but embeddings has 3 rows",
    ),
    (
        change_tensors(embeddings=np.zeros(4, np.float32)),
        r"embeddings is float32 \(4,\); it must have 2 axes",
    ),
    (change_tensors(mapping=np.zeros(4, np.int64)), "vectors or weights for .* tokens, but the tokenizer"),
    (change_tensors(mapping=np.zeros(4, np.float32)), "mapping is float32 .* whole numbers"),
    (change_tensors(weights=np.zeros(4)), "vectors or weights for 4 and .* tokens"),
    (change_tensors(weights=np.full(92, np.nan)), "weights has a NaN or an infinity"),
    (change_config(normalize=False), "normalize is false, but .*modules.json lists a Normalize"),
    (change_config(normalize="yes"), "normalize"),
    (change_config(max_length=0), "max_length is 0; it must be a whole number of tokens"),
    (change_config(head_config={"a": 1}), "head_config is .*; classifiers above a table are not served"),
    (
        lambda folder: write_modules(folder, [("StaticEmbedding", "."), ("Pooling", "1_Pooling")]),
        "lists StaticEmbedding, Pooling: headlight serves",
    ),
    (
        lambda folder: write_modules(folder, [("StaticEmbedding", "."), ("StaticEmbedding", ".")]),
        "lists StaticEmbedding, StaticEmbedding: headlight serves",
    ),
    (
        lambda folder: (folder / "config_sentence_transformers.json").write_text('{"model_type": "ColBERT"}'),
        "late-interaction model, but modules.json lists StaticEmbedding",
    ),
    (
        lambda folder: (folder / "config_sentence_transformers.json").write_text(
            '{"model_type": "SparseEncoder"}'
        ),
        "the model has sparse vectors",
    ),
    (write_tokenizer_of_another, "tokens, but the tokenizer"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_and_mixed_folders_are_refused_in_a_sentence(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """Which names the file and what is wrong with it."""
    write_model2vec(tmp_path, quantized=True)
    damage(tmp_path)
    with pytest.raises(CheckpointError, match=message) as refused:
        loaded(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_long_texts_are_added_up_in_pieces(tmp_path: Path) -> None:
    """So that a text of megabytes takes no gigabytes; what is not a mean of that much is refused."""
    written = write_sentence_transformers(tmp_path)
    tokenizer, backend = loaded(tmp_path)
    (encoding,) = tokenizer.encode(["the man beats a boy " * 5000])
    assert len(encoding) > 20_000
    (output,) = run(backend, [encoding], [own(backend)])
    assert distance(output.sentence, written.vector("the man beats a boy " * 5000)) <= 1e-5
    many = replace(encoding, token_ids=encoding.token_ids * (2**26 // SIZE // len(encoding) + 1))
    with pytest.raises(OutOfMemory, match=r"pooling .* tokens of .* numbers at once"):
        run(backend, [many], [Want(SentenceWant(("max",), (0,)))])


def test_the_end_of_a_text_is_kept_where_its_start_is_cut(tmp_path: Path) -> None:
    """model2vec cuts by characters first, and at the end alone."""
    write_model2vec(tmp_path, max_length=7)
    tokenizer, _ = loaded(tmp_path)
    (cut,) = tokenizer.encode(["the man " * 300 + "world world"], Truncation(side="left"))
    assert cut.tokens[-2:] == ["world", "world"]
    assert len(cut) == 7


@pytest.mark.parametrize("write", [write_model2vec, write_sentence_transformers])
def test_a_tokenizer_with_more_ids_than_vectors_is_refused(
    write: Callable[[Path], Static], tmp_path: Path
) -> None:
    """However few tokens it has: their ids are rows."""
    write(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["world"] = 500 + len(vocabulary)
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"the tokenizer has ids up to 5\d\d, but the table has"):
        loaded(tmp_path)


def test_a_limit_that_no_request_reaches_is_refused(tmp_path: Path) -> None:
    """It would end the whole service when it starts."""
    write_model2vec(tmp_path)
    change_config(max_length=10**30)(tmp_path)
    with pytest.raises(CheckpointError, match=r"max_length is 1000.*; it must be a whole number of tok"):
        loaded(tmp_path)
