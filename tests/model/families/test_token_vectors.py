"""Vectors for late interaction from encoders of every family, against their definition on `transformers`."""

from pathlib import Path

import pytest

from tests.model.test_late_interaction import check
from tests.references.late_interaction import Settings, make_pylate
from tests.support.backends import load_checkpoint_as, torch_or_graph
from tests.support.families import ENCODERS, EXACT, SMALL, write_small

ATTENDING = ("deberta-v2", "esm")
"""Families whose queries must attend to what fills them up."""


@torch_or_graph
@pytest.mark.parametrize("family", SMALL)
def test_vectors_of_every_family_are_those_of_the_definition(
    family: str, backend: str, tmp_path: Path
) -> None:
    """Of queries, filled up with tokens that are not attended to, and of documents."""
    model = write_small(tmp_path / "checkpoint", family, ENCODERS.get(family, "Model")).model
    written = make_pylate(tmp_path / "checkpoint", model, Settings(attends=family in ATTENDING))
    check(written, *load_checkpoint_as(backend, written.folder), EXACT)
