"""What the texts of `/v1/embeddings` are for, which chooses a prompt of the model."""

import pytest

from tests.contract.test_openai import PATH, assert_error, vectors
from tests.references.comparing import distance
from tests.support.serving import Json, Service, post
from tests.support.tei import QUERY, TEXT


def test_purposes_choose_prompts(tei: Service) -> None:
    """Under the names of Voyage, Jina and Cohere; one that is none is refused."""
    prompted = {"model": "prompted", "normalize": True}
    expected = tei.encode([QUERY], prompt_name="passage", **prompted)["data"][0]["embedding"]
    for name, purpose in (
        ("input_type", "document"),
        ("input_type", "search_document"),
        ("task", "retrieval.passage"),
        ("prompt_name", "passage"),
    ):
        body = {"model": "prompted", "input": QUERY, name: purpose}
        assert distance(vectors(tei, **body), [expected]) <= 2e-6
    assert distance(vectors(tei, input=TEXT, input_type="query"), vectors(tei, input=TEXT)) == 0
    wrong = post(tei, {"input": TEXT, "input_type": "poem"}, PATH)
    assert_error(wrong, 400, "input_type", "search_query")
    agreeing = {"input_type": "document", "task": "retrieval.passage", "prompt_name": "passage"}
    assert distance(vectors(tei, model="prompted", input=QUERY, **agreeing), [expected]) <= 2e-6
    no_prompt = {"input_type": "clustering", "task": "retrieval.passage"}
    assert distance(vectors(tei, model="prompted", input=QUERY, **no_prompt), [expected]) <= 2e-6


@pytest.mark.parametrize(
    ("options", "param", "part"),
    [
        (
            {"input_type": "query", "task": "retrieval.passage"},
            "task",
            'task is "retrieval.passage" and input_type is "query", which choose different prompts',
        ),
        ({"input_type": "document", "prompt_name": "query"}, "prompt_name", 'input_type is "document"'),
        ({"input_type": "query", "task": "poem"}, "task", "not a known purpose"),
        ({"prompt_name": "query", "task": "poem"}, "task", "not a known purpose"),
    ],
)
def test_purposes_that_contradict_each_other_are_refused(
    tei: Service, options: Json, param: str, part: str
) -> None:
    """None of them is ignored: neither one that names another prompt, nor one that names nothing."""
    assert_error(post(tei, {"model": "prompted", "input": QUERY, **options}, PATH), 400, param, part)
