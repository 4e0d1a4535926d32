"""Vectors for late interaction from encoders of every family, against their definition on `transformers`."""

from pathlib import Path

import pytest

from tests.model.test_late_interaction import check
from tests.references.late_interaction import Settings, make_pylate
from tests.support.backends import load_checkpoint_as, torch_or_graph
from tests.support.families import ATTENDING as FAMILIES
from tests.support.families import ENCODERS, EXACT, every_family, write_small

ATTENDING = ("deberta-v2", "esm", "gemma3_text", "mistral", "ultrabert")
"""Families whose queries must attend to what fills them up."""


@pytest.mark.thorough
@torch_or_graph
@every_family("family", FAMILIES)
def test_vectors_of_every_family_are_those_of_the_definition(
    family: str, backend: str, tmp_path: Path
) -> None:
    """Of queries, filled up with tokens that are not attended to, and of documents."""
    model = write_small(tmp_path / "checkpoint", family, ENCODERS.get(family, "Model")).model
    written = make_pylate(tmp_path / "checkpoint", model, Settings(attends=family in ATTENDING))
    check(written, *load_checkpoint_as(backend, written.folder), EXACT)
