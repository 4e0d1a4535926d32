"""A folder with an unusual setting gives the vectors of sentence-transformers, or is refused."""

import logging
from pathlib import Path

import pytest

from model.contract import SentenceWant, Want
from model.errors import CheckpointError
from model.loading import load_model
from tests.references.comparing import distance
from tests.references.settings import COMPONENTS, TEXTS, Case, recorded, write_folder
from tests.support.product import run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.in_turns
@pytest.mark.parametrize("case", recorded(), ids=lambda case: f"{case.file} {case.fields}"[:100])
def test_a_setting_counts_or_is_refused(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that a folder says is ignored, and every key here is known."""
    write_folder(tmp_path, case.file, case.fields)
    with caplog.at_level(logging.WARNING, "model"):
        try:
            tokenizer, backend = load_model(str(tmp_path), device="cpu", dtype="float32")
        except CheckpointError as refusal:
            said = str(refusal)
            assert str(tmp_path) in said
            assert any(name in said for name in case.fields)
            return
    assert not any("does not know" in record.getMessage() for record in caplog.records)
    if case.vectors is None:
        return  # sentence-transformers cannot run it
    info = backend.info
    prompt = info.prompts[info.default_prompt_name] if info.default_prompt_name else ""
    want = Want(SentenceWant(info.pooling, (info.layers,), info.normalize))
    outputs = run(backend, tokenizer.encode(TEXTS, prompt=prompt), [want] * len(TEXTS))
    assert info.sentence_size == case.size
    for output, expected in zip(outputs, case.vectors, strict=True):
        assert output.sentence is not None
        assert distance(output.sentence[:COMPONENTS], expected) < 1e-5
