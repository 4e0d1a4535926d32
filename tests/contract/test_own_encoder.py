"""docs/training.md trains an encoder, which is then served and does what the page says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.references.comparing import distance, relative_distance
from tests.support.backends import export_folder
from tests.support.serving import ROOT, Json, Service, serve

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
(TRAIN, TRAINED), (LOOK, SEEN) = re.findall(r"```python\n(.+?)```\n```text\n(.+?)```", PAGE, flags=re.DOTALL)
((BODY, ANSWER),) = re.findall(r"-d '(\{.+?\})'\n```\n```text\n(.+?)\n```", PAGE, flags=re.DOTALL)
WORDS = ["mirror.", "attend.", "abcd.", "abcdefgh.", "zzzz.", "service."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page's program saves."""
    place = tmp_path_factory.mktemp("training")
    assert run(TRAIN, cwd=place) == TRAINED
    return place / "my-model"


@pytest.fixture(scope="module")
def own(trained: Path) -> Iterator[Service]:
    """The service of the page."""
    with serve(model=trained) as service:
        yield service


def run(program: str, cwd: Path = ROOT) -> str:
    """Run a program of the page; returns what it prints."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "client" / "python")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mirrored(item: Json) -> np.ndarray:
    """The weight from each letter to its mirror image, for each layer and head."""
    maps = np.array(item["attention"])[:, :, :-1, :-1]  # without the full stop
    return np.asarray(maps[..., ::-1].diagonal(axis1=-2, axis2=-1))


def test_both_heads_of_the_last_layer_learn_the_mirror_image(own: Service) -> None:
    """Each letter gives its mirror image most of its weight, in every word; no head before does that."""
    weights = np.concatenate([mirrored(item) for item in own.attention(WORDS)["data"]], axis=-1)
    first, last = weights.mean(-1)
    assert last.min() > 0.8
    assert first.max() < 0.5
    assert (weights[1].max(0) > 0.5).all()


def test_the_page_shows_what_the_service_answers(own: Service) -> None:
    """Weights of another run of the training may differ by a tenth; what is looked at most does not."""
    shown = json.loads(re.sub(r", …(?=[}\]])", "", ANSWER))["data"][0]
    answer = own.attention(**json.loads(BODY))["data"][0]
    assert answer["tokens"] == shown["tokens"]
    assert distance(answer["attention"], shown["attention"]) <= 0.15
    assert run(LOOK.replace("http://127.0.0.1:8000", own.url)) == SEEN


@pytest.mark.thorough
def test_a_graph_of_it_gives_the_same_maps(own: Service, trained: Path, tmp_path: Path) -> None:
    """Exported and served by ONNX Runtime, states and maps are those of PyTorch."""
    with serve(model=export_folder(trained, tmp_path / "my-model")) as service:
        assert service.http.get("/info").json()["models"][0]["backend"] == "onnx"
        for options in ({}, {"weights": "score"}, {"weights": "value_norm"}):
            ours, theirs = (each.attention(WORDS, **options)["data"] for each in (service, own))
            for one, other in zip(ours, theirs, strict=True):
                assert relative_distance(one["attention"], other["attention"]) <= 1e-4
        outputs = {"outputs": ["sentence", "tokens"]}
        ours, theirs = (each.encode(WORDS, **outputs)["data"] for each in (service, own))
        for one, other in zip(ours, theirs, strict=True):
            assert relative_distance(one["embedding"], other["embedding"]) <= 1e-4
