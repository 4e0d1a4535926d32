"""Every family over HTTP, side by side in one service: numbers are those of the model that was saved."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.references.comparing import distance, relative_distance
from tests.references.families import Written
from tests.support.families import ALIKE, ENCODERS, SMALL, write_small
from tests.support.serving import Service, serve

NAMES = [name for name in SMALL if name not in ALIKE]
TEXTS = ["hello world", "the man beats the boy", "a", "the boy, the man. hello [ ] world", "hello " * 30]
TIMES = 4
EXACT = 1e-5


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """A small model of each family that is no other's under another name; they compute in float64."""
    folder, models = tmp_path_factory.mktemp("families"), {}
    for name in NAMES:
        models[name] = write_small(folder / name, name, ENCODERS.get(name, "Model"))
        models[name].model.double()
    return models


@pytest.fixture(scope="module")
def served(written: dict[str, Written]) -> Iterator[Service]:
    """All of them."""
    with serve(model=",".join(str(one.folder) for one in written.values())) as started:
        yield started


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NAMES)
def test_states_and_maps_are_those_of_the_saved_model(
    name: str, written: dict[str, Written], served: Service
) -> None:
    """Of texts in one request."""
    encoded = served.encode(TEXTS, model=name, outputs=["tokens"])["data"]
    observed = served.attention(TEXTS, model=name, decimals=9)["data"]
    for item, seen in zip(encoded, observed, strict=True):
        states, maps = written[name].run(item["token_ids"], item["segment_ids"])
        assert relative_distance(item["token_embeddings"][0], states[-1]) <= EXACT
        assert distance(seen["attention"], maps) <= EXACT


def test_requests_of_all_families_at_once(written: dict[str, Written], served: Service) -> None:
    """Each gets the vector of its own model, in batches beside those of others."""
    alone = {name: served.encode(TEXTS, model=name)["data"] for name in written}
    with ThreadPoolExecutor(24) as pool:
        asked = [*written] * TIMES
        answers = list(pool.map(lambda name: served.encode(TEXTS, model=name)["data"], asked))
    for name, answer in zip(asked, answers, strict=True):
        for item, same in zip(answer, alone[name], strict=True):
            assert relative_distance(item["embedding"], np.array(same["embedding"])) <= EXACT
