"""The field `task` over HTTP: each text runs with the adapter of its request's task, in shared batches."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from headlight_client import Headlight
from tests.references.comparing import distance, relative_distance
from tests.references.jina_v3 import TASKS, JinaV3, write_jina_v3
from tests.references.peft import Adapted, Task, write_adapters
from tests.support.families import write_small
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


V5 = ("retrieval", "text-matching", "classification")


@pytest.fixture(scope="module")
def version_5(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """A Qwen3 with adapters of peft, as in jina-embeddings-v5."""
    written = write_small(tmp_path_factory.mktemp("models") / "v5", "jina_embeddings_v5", "Model")
    modules = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return write_adapters(written, {task: Task(4, 8, modules) for task in V5})


@pytest.fixture(scope="module")
def with_peft(version_5: Adapted) -> Iterator[Service]:
    """It alone."""
    with serve(model=f"v5={version_5.folder}") as started:
        yield started


def test_tasks_of_adapters_in_files_are_those_of_merged_weights(
    with_peft: Service, version_5: Adapted
) -> None:
    """Many requests of all tasks at a time; one without a task runs with the model's default."""
    tasks = [None, *V5] * 4
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda task: with_peft.encode(TEXTS, task=task)["data"], tasks))
    for task, answer in zip(tasks, answers, strict=True):
        for item in answer:
            vector, _ = version_5.run(item["token_ids"], item["segment_ids"], task or "retrieval")
            assert relative_distance(item["embedding"], vector[-1].mean(0)) <= 1e-5


@pytest.mark.parametrize(
    ("path", "body", "task"),
    [
        ("/v1/embeddings", {"input": TEXTS[:1], "task": "text-matching"}, "text-matching"),
        ("/v1/embeddings", {"input": TEXTS[:1]}, "retrieval"),
        ("/api/embed", {"model": "v5", "input": TEXTS[0]}, "retrieval"),
        ("/tei/embed", {"inputs": TEXTS[0]}, "retrieval"),
    ],
)
def test_other_clients_choose_among_them(
    path: str, body: Json, task: str, with_peft: Service, version_5: Adapted
) -> None:
    """Jina's by the field `task`; those that have no such field get the default."""
    answer = post(with_peft, body, path).json()
    found = answer if isinstance(answer, list) else answer.get("embeddings") or answer["data"]
    vector = np.array(found[0]["embedding"] if isinstance(found[0], dict) else found[0])
    (item,) = with_peft.encode(TEXTS[:1])["data"]
    exact = version_5.run(item["token_ids"], item["segment_ids"], task)[0][-1].mean(0)
    assert vector @ exact / np.linalg.norm(vector) / np.linalg.norm(exact) >= 1 - 1e-6


def test_a_task_that_it_lacks_is_refused_with_those_that_it_has(with_peft: Service) -> None:
    """On the native routes, as of adapters among the weights."""
    response = post(with_peft, {"inputs": "a", "task": "separation"}, "/encode")
    problem = assert_problem(response, 422, "invalid-request", field="task")
    assert all(task in problem["detail"] for task in V5)
