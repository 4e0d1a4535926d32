"""Ollama's routes for embeddings, by plain HTTP over a real socket."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest

from model.checkpoints.source import resolve
from service.lifecycle import VERSION
from tests.references.checkpoints import MINILM, Reference
from tests.references.comparing import distance
from tests.support.refusals import filled
from tests.support.serving import JSON, KEY, LONG, NDJSON, Json, Service, post, serve
from tests.support.tei import TEXT, TEXTS, ask

EMBED, EMBEDDINGS = "/api/embed", "/api/embeddings"
ALL = [TEXT, *TEXTS, "Zürich 東京 🌍", ""]


@pytest.fixture(scope="module")
def tagged() -> Iterator[Service]:
    """Two models, one of which has a name with a tag; and few inputs."""
    with serve(model=f"mini={resolve(MINILM)},org/mini:v1={resolve(MINILM)}", max_inputs=4) as started:
        yield started


def embed(service: Service, texts: object, **body: object) -> Any:
    """The vectors of a request."""
    return ask(service, EMBED, **{"model": "mini", "input": texts, **body})["embeddings"]


def assert_error(response: httpx.Response, status: int, sentence: str) -> None:
    """Check that an answer is an error of Ollama's form, with this sentence or one that begins with it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == JSON
    error = response.json()
    assert list(error) == ["error"]
    assert error["error"].startswith(sentence)


def mean(reference: Reference, text: str, length: int = 256) -> Any:
    """The mean of a text's last hidden states: the vector of the embedded model without its unit length."""
    columns = reference.tokenize(text, length)
    states, _ = reference.run(columns["input_ids"], columns["token_type_ids"])
    return states[-1].mean(0)


def unit(vectors: Any) -> Any:
    """These vectors, scaled to length 1."""
    array = np.asarray(vectors, np.float64)
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def test_vectors_have_unit_length(tei: Service, reference: Reference) -> None:
    """As transformers computes them; of a text, of several, and of an empty one among them."""
    expected = unit([mean(reference, text) for text in ALL])
    answer = ask(tei, EMBED, model="mini", input=ALL)
    assert list(answer) == ["model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"]
    assert distance(answer["embeddings"], expected) <= 1e-5
    assert distance(embed(tei, TEXT), expected[:1]) <= 1e-5
    native = tei.encode(ALL, normalize=True)
    assert distance(answer["embeddings"], [one["embedding"] for one in native["data"]]) <= 2e-6
    assert answer["prompt_eval_count"] == native["usage"]["input_tokens"]
    assert answer["model"] == "mini"
    assert 0 < answer["total_duration"] < 60 * 10**9
    assert answer["load_duration"] == 0


def test_a_long_response_has_its_time_too(tei: Service) -> None:
    """A thread writes it: what stands around the vectors is made there as well."""
    answer = ask(tei, EMBED, model="mini", input=["a"] * 100)
    assert len(answer["embeddings"]) == 100
    assert 0 < answer["total_duration"] < 60e9


def test_the_older_route_does_not_normalize(tei: Service, reference: Reference) -> None:
    """And cuts what is too long; there is no vector of an empty text, or of none."""
    for text in (TEXT, LONG):
        found = ask(tei, EMBEDDINGS, model="mini", prompt=text)
        assert list(found) == ["embedding"]
        assert distance(found["embedding"], mean(reference, text)) <= 1e-5
        (native,) = tei.encode([text], normalize=False)["data"]
        assert distance(found["embedding"], native["embedding"]) <= 2e-6
    for body in ({"prompt": ""}, {"prompt": None}, {}):
        assert ask(tei, EMBEDDINGS, model="mini", **body) == {"embedding": []}


def test_a_prompt_of_the_model_is_put_before_each_text(tei: Service) -> None:
    """The default one, as natively."""
    native = tei.encode(TEXTS, model="prompted", normalize=True)["data"]
    plain = tei.encode(TEXTS, model="prompted", prompt="", normalize=True)["data"]
    found = embed(tei, TEXTS, model="prompted")
    assert distance(found, [one["embedding"] for one in native]) <= 2e-6
    assert distance(found, [one["embedding"] for one in plain]) > 1e-3


def test_dimensions_are_the_first_components(tei: Service, reference: Reference) -> None:
    """Of unit length again; 0, fewer than 0, and as many as there are or more have no effect."""
    whole = unit(mean(reference, TEXT))
    assert distance(embed(tei, TEXT, dimensions=8), [unit(whole[:8])]) <= 1e-5
    for dimensions in (0, -1, 384, 385, 10**6, None):
        assert distance(embed(tei, TEXT, dimensions=dimensions), [whole]) <= 1e-5
    assert_error(
        post(tei, {"model": "mini", "input": TEXT, "dimensions": "8"}, EMBED), 400, "dimensions must"
    )


@pytest.mark.parametrize("given", [{"input": ""}, {"input": []}, {"input": None}, {}])
def test_no_text_has_no_vector(tei: Service, given: dict[str, object]) -> None:
    """A lone empty text is none, and neither is an empty list; but the model must be there."""
    answer = ask(tei, EMBED, model="mini:latest", **given)
    assert (answer["model"], answer["embeddings"], answer["prompt_eval_count"]) == ("mini:latest", [], 0)
    assert_error(post(tei, {"model": "other", **given}, EMBED), 404, "model 'other' not found")


@pytest.mark.parametrize("given", [1, {"text": "a"}, [1], ["a", None], ["a", ["b"]], [101, 102], True, False])
def test_only_strings_are_texts(tei: Service, given: object) -> None:
    """Anything else is refused before the model is looked for."""
    for name in ("mini", "other"):
        assert_error(post(tei, {"model": name, "input": given}, EMBED), 400, "invalid input type")


def test_long_texts_lose_their_end(tei: Service, reference: Reference) -> None:
    """Or are refused, also one of several."""
    text = f"begin {LONG} end"
    assert distance(embed(tei, text), unit([mean(reference, text)])) <= 1e-5
    sentence = "the input length exceeds the context length"
    for given in (text, [TEXT, text]):
        body = {"model": "mini", "input": given, "truncate": False}
        refused = post(tei, body, EMBED)
        assert_error(refused, 400, sentence)
        assert refused.json()["error"] == sentence


@pytest.mark.parametrize("limit", [5, 17, 100])
def test_num_ctx_lowers_the_limit(tei: Service, reference: Reference, limit: int) -> None:
    """As if the model had that limit: what is cut runs as transformers cuts it, and is not counted."""
    text = f"{' '.join(TEXTS)} {LONG}"
    body = {"model": "mini", "input": [text, "a"], "options": {"num_ctx": limit, "temperature": 1}}
    answer = ask(tei, EMBED, **body)
    assert distance(answer["embeddings"], unit([mean(reference, text, limit), mean(reference, "a")])) <= 1e-5
    assert answer["prompt_eval_count"] == limit + 3
    older = {"model": "mini", "prompt": text, "options": body["options"]}
    assert distance(ask(tei, EMBEDDINGS, **older)["embedding"], mean(reference, text, limit)) <= 1e-5
    refused = post(tei, {**body, "truncate": False}, EMBED)
    assert_error(refused, 400, "the input length exceeds the context length")
    ask(tei, EMBED, **{**body, "input": "a", "truncate": False})


def test_num_ctx_never_raises_the_limit(tei: Service, reference: Reference) -> None:
    """The model's limit holds; and a limit that leaves no room for a text is raised to one that does."""
    expected = unit([mean(reference, LONG)])
    assert distance(embed(tei, LONG, options={"num_ctx": 8192}), expected) <= 1e-5
    for limit in (-1, 0, 1, 4):
        found = embed(tei, LONG, options={"num_ctx": limit})
        assert distance(found, unit([mean(reference, LONG, 4)])) <= 1e-5
    body = {"model": "mini", "input": "a", "options": {"num_ctx": "many"}}
    assert_error(post(tei, body, EMBED), 400, "options.num_ctx must be an integer")


def test_a_prompt_counts_as_tokens(tei: Service) -> None:
    """Of six, a prompt of three and the special ones leave one to the text; of fewer they leave none."""
    (native,) = tei.encode(["the"], model="prompted", normalize=True)["data"]
    assert len(native["tokens"]) == 6
    texts, options = ["the boy beats the man"], {"num_ctx": 6}
    assert distance(embed(tei, texts, model="prompted", options=options), [native["embedding"]]) <= 2e-6
    (found,) = embed(tei, texts, model="prompted", options={"num_ctx": 4})
    assert distance(found, native["embedding"]) > 1e-3
    assert distance(np.linalg.norm(found), 1) <= 1e-5


def test_what_has_no_effect_is_ignored(tei: Service) -> None:
    """Other options, how long to keep the model, unknown fields and null."""
    expected = embed(tei, TEXT)
    others: tuple[Json, ...] = (
        {"keep_alive": "5m"},
        {"keep_alive": -1},
        {"options": {}},
        {"options": None, "truncate": None},
        {"options": {"num_gpu": 1, "num_ctx": None}},
        {"colour": "red"},
    )
    for further in others:
        assert distance(embed(tei, TEXT, **further), expected) <= 2e-6


def test_the_content_type_does_not_matter(tei: Service) -> None:
    """As curl sends JSON without being told to; but a body of an unknown coding is refused."""
    body = json.dumps({"model": "mini", "input": TEXT}).encode()
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        response = tei.http.post(EMBED, content=body, headers={"Content-Type": kind})
        assert distance(response.json()["embeddings"], embed(tei, TEXT)) <= 2e-6
    refused = tei.http.post(EMBED, content=body, headers={"Content-Encoding": "br"})
    assert_error(refused, 415, "The Content-Encoding is br")


@pytest.mark.parametrize("path", [EMBED, EMBEDDINGS, "/api/show", "/api/pull", "/api/generate", "/api/chat"])
def test_bodies_that_are_wrong(tei: Service, path: str) -> None:
    """None, no JSON, no object, no model, and another model."""
    assert_error(tei.http.post(path), 400, "missing request body")
    assert_error(tei.http.post(path, content=b"{"), 400, "The body is not valid JSON")
    assert_error(post(tei, [1], path), 400, "body must be a JSON object")
    for body in ({"input": "a", "prompt": "a"}, {"model": ""}):
        assert_error(post(tei, body, path), 400, "model is ")
    for name in ("other", "other:latest", "mini:v2", "mini:latest:latest"):
        refused = post(tei, {"model": name, "input": "a", "prompt": "a"}, path)
        assert_error(refused, 404, f"model '{name}' not found")


def test_names_may_have_a_tag(tagged: Service) -> None:
    """`:latest` means nothing; another tag is a part of the name."""
    expected = [one["embedding"] for one in tagged.encode([TEXT], normalize=True)["data"]]
    for name in ("mini", "mini:latest", "org/mini:v1"):
        answer = ask(tagged, EMBED, model=name, input=TEXT)
        assert answer["model"] == name
        assert distance(answer["embeddings"], expected) <= 2e-6
    found = tagged.http.get("/api/tags").json()["models"]
    assert [one["name"] for one in found] == ["mini:latest", "org/mini:v1"]
    assert len({one["digest"] for one in found}) == 2


def test_responses_have_the_form_that_is_asked_for(tei: Service) -> None:
    """Or are refused: there is JSON alone."""
    body = {"model": "mini", "input": TEXT}
    assert_error(post(tei, body, EMBED, Accept="image/png"), 406, "Accept: image/png includes no available")
    assert_error(post(tei, body, f"{EMBED}?dtype=float16"), 400, "The query parameter dtype has no effect")
    assert post(tei, body, EMBED, Accept="text/html, */*;q=0.1").status_code == 200


def test_limits_are_those_of_the_native_route(tagged: Service) -> None:
    """Of inputs, and of the time that a request may take."""
    refused = post(tagged, {"model": "mini", "input": ["a"] * 5}, EMBED)
    assert_error(refused, 400, "input has 5 items and the limit is 4")
    late = post(tagged, {"model": "mini", "input": "a"}, EMBED, **{"X-Request-Timeout-Ms": "soon"})
    assert_error(late, 400, "The header X-Request-Timeout-Ms")
    assert_error(tagged.http.put(EMBED), 405, "/api/embed supports POST, not PUT.")


def test_models_are_listed(tei: Service) -> None:
    """With the size of their files, and what they are."""
    response = tei.http.get("/api/tags")
    found = response.json()["models"]
    assert [one["name"] for one in found][:2] == ["mini:latest", "ranker:latest"]
    mini = found[0]
    assert mini["model"] == mini["name"]
    assert mini["size"] == (resolve(MINILM) / "model.safetensors").stat().st_size
    assert mini["details"] == {
        "parent_model": "",
        "format": "safetensors",
        "family": "bert",
        "families": ["bert"],
        "parameter_size": "22.6M",
        "quantization_level": "F32",
    }
    assert mini["capabilities"] == ["embedding"]
    assert abs(datetime.now(UTC) - datetime.fromisoformat(mini["modified_at"])) < timedelta(hours=2)
    assert {len(one["digest"]) for one in found} == {64}
    (loaded,) = [one for one in tei.http.get("/api/ps").json()["models"] if one["name"] == "mini:latest"]
    assert loaded.items() >= {k: mini[k] for k in ("name", "model", "size", "digest", "details")}.items()
    assert datetime.fromisoformat(loaded["expires_at"]).year == 9000
    assert (loaded["size_vram"], loaded["context_length"]) == (0, 256)


@pytest.mark.thorough
def test_a_graph_is_listed(kept: Any) -> None:
    """With the size of its files; how many parameters it has is not known."""
    folder = kept.folder(resolve(MINILM), "onnx")
    with serve(model=f"mini={folder}", backend="onnx") as started:
        (found,) = started.http.get("/api/tags").json()["models"]
        assert found["size"] == sum(one.stat().st_size for one in folder.glob("model.onnx*"))
        assert (found["details"]["format"], found["details"]["parameter_size"]) == ("onnx", "")


def test_a_model_is_shown(tei: Service, reference: Reference) -> None:
    """Its architecture and sizes, under the names of GGUF files."""
    for body in ({"model": "mini"}, {"model": "mini:latest", "verbose": True}, {"name": "mini"}):
        shown = ask(tei, "/api/show", **body)
        assert list(shown) == ["details", "model_info", "capabilities", "modified_at"]
        assert shown["capabilities"] == ["embedding"]
    weights = {name: one for name, one in reference.model.named_parameters() if "pooler" not in name}
    assert shown["model_info"] == {
        "general.architecture": "bert",
        "general.parameter_count": sum(one.numel() for one in weights.values()),
        "bert.block_count": 6,
        "bert.attention.head_count": 12,
        "bert.context_length": 256,
        "bert.embedding_length": 384,
    }


def test_a_served_model_needs_no_pull(tei: Service) -> None:
    """A line, or with `stream` false an object, that says so."""
    response = post(tei, {"model": "mini"}, "/api/pull")
    assert (response.status_code, response.headers["content-type"]) == (200, NDJSON)
    assert [json.loads(line) for line in response.text.splitlines()] == [{"status": "success"}]
    assert ask(tei, "/api/pull", name="mini:latest", stream=False) == {"status": "success"}


@pytest.mark.parametrize("what", ["generate", "chat"])
def test_encoders_write_no_text(tei: Service, what: str) -> None:
    """With the original's sentence for models that only embed."""
    messages = [{"role": "user", "content": "Why is the sky blue?"}]
    body = {"model": "mini:latest", "prompt": "Why is the sky blue?", "messages": messages}
    refused = post(tei, body, f"/api/{what}")
    assert_error(refused, 400, f'"mini:latest" does not support {what}')


def test_the_version_is_that_of_the_service(tei: Service) -> None:
    """And HEAD is answered as GET, without a body."""
    assert tei.http.get("/api/version").json() == {"version": VERSION}
    for path in ("/api/version", "/api/tags"):
        response = tei.http.head(path)
        assert (response.status_code, response.headers["content-type"], response.content) == (200, JSON, b"")


def test_a_key_is_needed(guarded: Service) -> None:
    """For every route, and without one nothing is read."""
    for path in ("tags", "ps", "version"):
        assert_error(guarded.http.get(f"/api/{path}"), 401, "This service requires an API key")
    for path in ("embed", "embeddings", "show", "pull", "generate", "chat"):
        assert_error(guarded.http.post(f"/api/{path}"), 401, "This service requires an API key")
    response = post(guarded, {"model": MINILM, "input": "a"}, EMBED, Authorization=f"Bearer {KEY}")
    assert len(response.json()["embeddings"]) == 1


@pytest.mark.thorough
def test_a_full_queue_is_a_503() -> None:
    """As the original's, but with the time to come back; before and after the body is read alike."""
    settings: Json = {"max_queue_tokens": 1, "drain_timeout_s": 0.5}
    with (
        serve("--hanging", module="tests.support.timed", exit_code=None, **settings) as full,
        filled(full),
    ):
        for text in ("a", "a" * 10_000):
            refused = post(full, {"model": "all-MiniLM-L6-v2", "input": text}, EMBED)
            assert_error(refused, 503, "")
            assert "Retry after the time in Retry-After" in refused.json()["error"]
            assert int(refused.headers["retry-after"]) >= 1
        name = 'headlight_requests_total{kind="inference",route="/api/embed",status="503"}'
        assert full.metrics()[name] == 2
