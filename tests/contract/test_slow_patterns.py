"""A model whose tokenizer has a slow expression is served, but for the texts that would take it minutes."""

import time
from pathlib import Path

from tests.references.checkpoints import write_bert
from tests.support.hostile_folders import normalizer, replaced
from tests.support.serving import answered, assert_problem, post, serve

HARD = " " * 200_000 + "a"
"""A text that would take five minutes."""


def test_texts_that_would_take_minutes_are_refused_and_the_start_warns_of_them(tmp_path: Path) -> None:
    """At once, with the field as the route calls it; other texts are answered."""
    write_bert(tmp_path)
    normalizer(replaced({"Regex": r"\s+$"}, ""))(tmp_path)
    with serve("--model", str(tmp_path), device="cpu", dtype="float32") as service:
        assert r"the expression `\s+$` may take " in service.log
        start = time.monotonic()
        native = post(service, {"inputs": ["a", HARD]})
        openai = post(service, {"input": ["a", HARD], "model": tmp_path.name}, "/v1/embeddings")
        tei = post(service, {"inputs": ["a", HARD]}, "/embed")
        assert time.monotonic() - start < 20
        problem = assert_problem(native, 422, "input-too-long", field="inputs.1", actual=200_000)
        assert 500 < problem["limit"] < 20_000
        assert problem["detail"].startswith(
            "An input has 200000 spaces in long runs, in which the tokenizer "
        )
        assert tei.status_code == 422
        assert tei.json()["error"] == problem["detail"]
        assert (openai.status_code, openai.json()["error"]["param"]) == (400, "input.1")
        assert len(answered(post(service, {"inputs": ["a b " * 3000, " " * 400 + "a"]}))["data"]) == 2
