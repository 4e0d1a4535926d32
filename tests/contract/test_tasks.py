"""The field `task` over HTTP: each text runs with the adapter of its request's task, in shared batches."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from headlight_client import Headlight
from tests.references.comparing import distance, relative_distance
from tests.references.jina_v3 import TASKS, JinaV3, write_jina_v3
from tests.support.serving import ROUTES, Json, Service, assert_problem, post, serve

TEXTS = ["hello world", "the man beats the boy", "a", "the boy, the man. hello [ ] 日本"]


@pytest.fixture(scope="module")
def jina(tmp_path_factory: pytest.TempPathFactory) -> JinaV3:
    """A model with five tasks."""
    return write_jina_v3(tmp_path_factory.mktemp("models") / "jina")


@pytest.fixture(scope="module")
def served(jina: JinaV3) -> Iterator[Service]:
    """It and the embedded model, which has no adapters."""
    with serve(model=f"{jina.folder},all-MiniLM-L6-v2") as started:
        yield started


def item_of(reference: JinaV3, item: Json, task: str | None) -> tuple[np.ndarray, np.ndarray]:
    """The reference's vector of an item's tokens, the mean of the last hidden states, and its maps."""
    states, maps = reference.run(item["token_ids"], item["segment_ids"], task)
    return states[-1].mean(0), maps


def test_every_task_has_its_vectors_and_maps(served: Service, jina: JinaV3) -> None:
    """On both routes; without a task there is no adapter."""
    for task in (None, *TASKS):
        encoded = served.encode(TEXTS, task=task)["data"]
        observed = served.attention(TEXTS, task=task, decimals=9)["data"]
        for item, seen in zip(encoded, observed, strict=True):
            vector, maps = item_of(jina, item, task)
            assert relative_distance(item["embedding"], vector) <= 1e-5
            assert distance(seen["attention"], maps) <= 1e-5


def test_requests_of_several_tasks_share_batches(served: Service, jina: JinaV3) -> None:
    """Many at a time, of every task and of none: each gets the vectors that it gets alone."""
    tasks = [None, *TASKS] * 8
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda task: served.encode(TEXTS, task=task)["data"], tasks))
    for task, answer in zip(tasks, answers, strict=True):
        for item in answer:
            assert relative_distance(item["embedding"], item_of(jina, item, task)[0]) <= 1e-5
    alone = [served.encode(text, task="separation")["data"][0]["embedding"] for text in TEXTS]
    for answer in answers[TASKS.index("separation") + 1 :: 6]:
        assert distance([item["embedding"] for item in answer], alone) <= 2e-6


@pytest.mark.parametrize("path", ROUTES)
def test_another_task_is_refused_with_the_list_of_tasks(path: str, served: Service) -> None:
    """The tasks are those of this model."""
    response = post(served, {"inputs": "a", "task": "retrieval"}, path)
    document = assert_problem(
        response, 422, "invalid-request", field="task", actual="retrieval", allowed=[*TASKS]
    )
    assert document["detail"].endswith(f"one of the model's tasks: choose from {', '.join(TASKS)}.")


@pytest.mark.parametrize("path", ROUTES)
def test_a_model_without_adapters_has_no_tasks(path: str, served: Service) -> None:
    """It says so, instead of leaving the field without effect."""
    body = {"inputs": "a", "task": "separation", "model": "all-MiniLM-L6-v2"}
    document = assert_problem(post(served, body, path), 422, "unsupported", field="task")
    assert "this model has no adapters for tasks: leave it out" in document["detail"]


def test_a_task_chooses_no_prompt(served: Service, jina: JinaV3) -> None:
    """As in sentence-transformers, a prompt is a field of its own: the tokens are those of the text alone."""
    plain, tasked = (served.encode("hello", task=task)["data"][0] for task in (None, "retrieval.query"))
    assert plain["tokens"] == tasked["tokens"]


def test_info_and_the_client_know_the_tasks(served: Service) -> None:
    """Each model lists its own; the client passes one on."""
    with Headlight(served.url) as client:
        ours, embedded = client.info().models
        assert (ours.tasks, ours.default_task) == ([*TASKS], None)
        assert (embedded.tasks, embedded.default_task) == ([], None)
        answer = client.encode(TEXTS, task="classification")
        (maps,) = client.attention(TEXTS[0], task="classification")
    expected = [item["embedding"] for item in served.encode(TEXTS, task="classification")["data"]]
    assert distance(answer.embeddings, expected) <= 2e-6
    plain = served.attention(TEXTS[0], task="classification", decimals=9)["data"][0]["attention"]
    assert distance(maps.attention, plain) <= 2e-6
