"""The thirteen kinds of folders that docs/models.md names: served whole, refused damaged or mixed."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model.errors import ModelError
from model.loading import load_model
from tests.references.autoencoder import write_csr
from tests.references.checkpoints import write_bert
from tests.references.classifiers import write_classifier
from tests.references.cross_encoder import write_cross_encoder
from tests.references.hybrid import write_hybrid
from tests.references.labelled_tokens import write_tagger
from tests.references.late_interaction import write_pylate
from tests.references.logit_score import write_reranker
from tests.references.multi_vector import write_multi_vector
from tests.references.router import write_router
from tests.references.splade import write_sparse_encoder
from tests.references.static import write_model2vec
from tests.support.backends import ROOT
from tests.support.families import SIZES
from tests.support.hostile_folders import write_whole

KINDS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "an encoder of transformers": (write_bert, None),
    "a classifier": (lambda folder: write_classifier(folder, ["a", "b"]), "classification"),
    "a classifier of tokens": (write_tagger, "token_classification"),
    "`SentenceTransformer`": (write_whole, None),
    "`CrossEncoder`": (
        lambda folder: write_cross_encoder(folder, "Bert", "with modules", **SIZES),
        "classification",
    ),
    "`CrossEncoder` with `LogitScore`": (write_reranker, "classification"),
    "`SparseEncoder`": (write_sparse_encoder, "masked_words"),
    "`SparseEncoder` with a `SparseAutoEncoder`": (write_csr, "autoencoder"),
    "`SparseEncoder` with a `Router`": (write_router, "masked_words"),
    "late interaction of PyLate": (write_pylate, "late_interaction"),
    "`MultiVectorEncoder`": (write_multi_vector, "late_interaction"),
    "bge-m3": (write_hybrid, "hybrid"),
    "a table of model2vec": (write_model2vec, None),
}
"""How each is written, and the kind of its head."""

OPTIONAL = {
    *("tokenizer_config.json", "sentence_bert_config.json", "generation_config.json"),
    # What it says has the same default; of bge-m3 the pooling is known.
    *("`CrossEncoder`: config_sentence_transformers.json", "bge-m3: modules.json"),
    "`SentenceTransformer`: config_sentence_transformers.json",
    "`SparseEncoder`: config_sentence_transformers.json",
    "`SparseEncoder` with a `SparseAutoEncoder`: config_sentence_transformers.json",
    "`SparseEncoder` with a `SparseAutoEncoder`: 2_Normalize/config.json",
    "`SparseEncoder` with a `Router`: config_sentence_transformers.json",
    "`SparseEncoder` with a `Router`: query_0_SparseStaticEmbedding/config.json",
    "a table of model2vec: modules.json",
}
"""Files without which a folder is served."""
NEEDED = "`CrossEncoder` with `LogitScore`: sentence_bert_config.json"
UNREAD = ("generation_config.json",)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind."""
    made = {}
    for number, (kind, (write, _)) in enumerate(KINDS.items()):
        made[kind] = tmp_path_factory.mktemp(f"kind{number}")
        write(made[kind])
    return made


def refusal(folder: Path) -> str:
    """The sentence in which a folder is refused; empty if it is served."""
    try:
        load_model(str(folder), device="cpu", dtype="float32")
    except ModelError as error:
        sentence = str(error)
        assert str(folder) in sentence
        assert sentence.endswith(".")
        assert sentence.isprintable()
        return sentence
    return ""


def damaged(kind: str, folders: dict[str, Path], tmp_path: Path) -> Iterator[tuple[str, Path, Path]]:
    """A copy of a folder for each of its files: the file's name in it, the copy, and the file there."""
    for file in sorted(one for one in folders[kind].rglob("*") if one.is_file()):
        name = str(file.relative_to(folders[kind]))
        copy = shutil.copytree(folders[kind], tmp_path / name.replace("/", "-"))
        yield name, copy, copy / name


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_served_whole(kind: str, folders: dict[str, Path]) -> None:
    """As what it is."""
    _, backend = load_model(str(folders[kind]), device="cpu", dtype="float32")
    head = backend.info.head
    assert (None if head is None else head.kind) == KINDS[kind][1]


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_missing_is_missed(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """Unless the folder means the same without it."""
    for name, copy, file in damaged(kind, folders, tmp_path):
        file.unlink()
        told = f"{kind}: {name}"
        optional = (file.name in OPTIONAL or told in OPTIONAL) and told != NEEDED
        assert bool(refusal(copy)) != optional, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_ends_early_is_refused(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """Half of each."""
    for name, copy, file in damaged(kind, folders, tmp_path):
        if name not in UNREAD and file.suffix != ".jinja":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            assert refusal(copy), name


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_another_kind_are_refused(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    """Each of its weight files in turn."""
    table, encoder = "a table of model2vec", "an encoder of transformers"
    foreign = folders[encoder if kind == table else table] / "model.safetensors"
    for name, copy, file in damaged(kind, folders, tmp_path):
        if file.suffix == ".safetensors":
            shutil.copy(foreign, file)
            assert refusal(copy), name


def test_the_kinds_are_those_of_the_documentation() -> None:
    """In its order."""
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = text.split("| kind of folder |", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| (.+?) \|", table, re.MULTILINE) == [*KINDS]
