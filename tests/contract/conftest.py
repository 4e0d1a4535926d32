"""Small random models of each kind, and a service of them, that files of tests share."""

from collections.abc import Iterator

import pytest

from tests.references.cross_encoder import CrossEncoder, write_cross_encoder
from tests.references.families import Written, write_model
from tests.support.families import SIZES
from tests.support.serving import Service, serve


@pytest.fixture(scope="session")
def small_encoder(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_model(tmp_path_factory.mktemp("models") / "encoder", "Bert", **SIZES)


@pytest.fixture(scope="session")
def small_ranker(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    return write_cross_encoder(tmp_path_factory.mktemp("models") / "ranker", "Bert", **SIZES)


@pytest.fixture(scope="session")
def small_classifier(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """A classifier of three labels, named `moods`."""
    return write_cross_encoder(tmp_path_factory.mktemp("models") / "moods", "Bert", num_labels=3, **SIZES)


@pytest.fixture(scope="session")
def small_models(
    small_encoder: Written, small_ranker: CrossEncoder, small_classifier: CrossEncoder
) -> Iterator[Service]:
    """All of them; the encoder is the default."""
    folders = (small_encoder.folder, small_ranker.folder, small_classifier.folder)
    with serve(model=",".join(map(str, folders)), threads=1) as started:
        yield started
