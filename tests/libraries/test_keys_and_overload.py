"""Every library with a key, another key, a wrong request, and a service whose queue is full."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.references.checkpoints import MINILM
from tests.support.libraries import AT_ONCE, CROWD, KEY, answers, needs, overloaded, refusals
from tests.support.serving import Service, serve


class Library(NamedTuple):
    """A library, and the names of its errors."""

    environment: str
    embed: str
    """Defines `embed(url, key, texts, retries)`."""
    of_key: str
    """Raised for another key than the service's."""
    of_request: str
    """Raised for an empty text, or another model where an empty text is none of the protocol's errors."""
    of_queue: str
    """Raised for a full queue."""
    wrong: str = "given['texts'], 'other'"
    """The texts, and the model, of the wrong request."""
    retries: bool = False
    """Whether it sends a refused request again."""
    tells: bool = True
    """Whether its errors have the sentence of the service."""


EMPTY = "['']"
LIBRARIES = {
    "openai": Library(
        "openai",
        """
import openai
def embed(url, key, texts, model="mini", retries=0):
    client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=retries)
    return client.embeddings.create(model=model, input=texts)
""",
        "AuthenticationError",
        "NotFoundError",
        "RateLimitError",
        retries=True,
    ),
    "LangChain": Library(
        "langchain_openai",
        """
from langchain_openai import OpenAIEmbeddings
def embed(url, key, texts, model="mini", retries=0):
    set_up = {"base_url": url + "/v1", "api_key": key, "max_retries": retries}
    return OpenAIEmbeddings(model=model, check_embedding_ctx_length=False, **set_up).embed_documents(texts)
""",
        "AuthenticationError",
        "NotFoundError",
        "RateLimitError",
        retries=True,
    ),
    "LlamaIndex": Library(
        "llama_index_openai",
        """
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
def embed(url, key, texts, model="mini", retries=0):
    set_up = {"api_base": url + "/v1", "api_key": key, "max_retries": retries}
    return OpenAILikeEmbedding(model_name=model, **set_up).get_text_embedding_batch(texts)
""",
        "AuthenticationError",
        "NotFoundError",
        "RateLimitError",
        retries=True,
    ),
    "Haystack, of OpenAI": Library(
        "haystack",
        """
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder
from haystack.utils import Secret
def embed(url, key, texts, model="mini", retries=0):
    set_up = {"api_base_url": url + "/v1", "api_key": Secret.from_token(key), "max_retries": retries}
    made = OpenAIDocumentEmbedder(model=model, progress_bar=False, raise_on_failure=True, **set_up)
    return made.run([Document(content=text) for text in texts])
""",
        "AuthenticationError",
        "NotFoundError",
        "RateLimitError",
        retries=True,
    ),
    "LiteLLM, of OpenAI": Library(
        "litellm",
        """
import litellm
def embed(url, key, texts, model="mini", retries=0):
    set_up = {"api_base": url + "/v1", "api_key": key, "max_retries": retries}
    return litellm.embedding("openai/" + model, texts, **set_up)
""",
        "AuthenticationError",
        "NotFoundError",
        "RateLimitError",
        retries=True,
    ),
    "LiteLLM, of vLLM": Library(
        "litellm",
        """
import litellm
def embed(url, key, texts, model="mini", retries=0):
    return litellm.embedding("hosted_vllm/" + model, texts, api_base=url + "/v1", api_key=key)
""",
        "AuthenticationError",
        "NotFoundError",
        "RateLimitError",
    ),
    "cohere": Library(
        "cohere",
        """
import cohere
def embed(url, key, texts, model="mini", retries=0):
    options = {"input_type": "search_document", "request_options": {"max_retries": retries}}
    return cohere.ClientV2(base_url=url, api_key=key).embed(model=model, texts=texts, **options)
""",
        "UnauthorizedError",
        "NotFoundError",
        "TooManyRequestsError",
        retries=True,
    ),
    "voyageai": Library(
        "voyageai",
        """
import voyageai
def embed(url, key, texts, model="mini", retries=0):
    return voyageai.Client(api_key=key, base_url=url + "/v1", max_retries=retries).embed(texts, model=model)
""",
        "AuthenticationError",
        "APIError",
        "RateLimitError",
        retries=True,
    ),
    "LlamaIndex, of Jina": Library(
        "llama_index_jina",
        """
from llama_index.embeddings.jinaai import JinaEmbedding
def embed(url, key, texts, model="mini", retries=0):
    made = JinaEmbedding(model=model, api_key=key)
    made._api.api_url = url + "/v1/embeddings"
    return made.get_text_embedding_batch(texts)
""",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
    ),
    "LangChain, of Jina": Library(
        "langchain_jina",
        """
from langchain_community.embeddings import jina
def embed(url, key, texts, model="mini", retries=0):
    jina.JINA_API_URL = url + "/v1/embeddings"
    return jina.JinaEmbeddings(model_name=model, jina_api_key=key).embed_documents(texts)
""",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
    ),
    "huggingface_hub": Library(
        "huggingface_hub",
        """
from huggingface_hub import InferenceClient
def embed(url, key, texts, retries=0):
    return InferenceClient(model=url, token=key).feature_extraction(texts)
""",
        "HfHubHTTPError",
        "BadRequestError",
        "HfHubHTTPError",
        EMPTY,
        tells=False,
    ),
    "LangChain, of the Hub": Library(
        "langchain_huggingface",
        """
from huggingface_hub import InferenceClient
from langchain_huggingface import HuggingFaceEndpointEmbeddings
def embed(url, key, texts, retries=0):
    made = HuggingFaceEndpointEmbeddings(model="any/name", huggingfacehub_api_token=key)
    made.client = InferenceClient(model=url, token=key)
    return made.embed_documents(texts)
""",
        "HfHubHTTPError",
        "BadRequestError",
        "HfHubHTTPError",
        EMPTY,
        tells=False,
    ),
    "Haystack": Library(
        "haystack",
        """
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import HuggingFaceAPIDocumentEmbedder
def embed(url, key, texts, retries=0):
    set_up = {"api_params": {"url": url}, "token": Secret.from_token(key), "progress_bar": False}
    made = HuggingFaceAPIDocumentEmbedder(api_type="text_embeddings_inference", **set_up)
    return made.run([Document(content=text) for text in texts])
""",
        "HfHubHTTPError",
        "BadRequestError",
        "HfHubHTTPError",
        EMPTY,
        tells=False,
    ),
    # These two do not look at the status, and fail at what the body is not.
    "LlamaIndex, of TEI": Library(
        "llama_index",
        """
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
def embed(url, key, texts, retries=0):
    made = TextEmbeddingsInference(model_name="any", base_url=url, auth_token=key)
    return made.get_text_embedding_batch(texts)
""",
        "ValidationError",
        "ValidationError",
        "ValidationError",
        EMPTY,
        tells=False,
    ),
    "Chroma": Library(
        "chroma",
        """
import warnings
from chromadb.utils.embedding_functions import HuggingFaceEmbeddingServer
def embed(url, key, texts, retries=0):
    warnings.simplefilter("ignore")
    return HuggingFaceEmbeddingServer(url=url + "/embed", api_key=key)(texts)
""",
        "ValueError",
        "ValueError",
        "ValueError",
        EMPTY,
        tells=False,
    ),
    "tritonclient": Library(
        "tritonclient",
        """
import numpy as np, tritonclient.http as http
def embed(url, key, texts, model="mini", retries=0):
    given = http.InferInput("text", [len(texts)], "BYTES")
    given.set_data_from_numpy(np.array([text.encode() for text in texts], np.object_))
    client = http.InferenceServerClient(url.removeprefix("http://"), network_timeout=60)
    return client.infer(model, [given], headers={"Authorization": "Bearer " + key})
""",
        "InferenceServerException",
        "InferenceServerException",
        "InferenceServerException",
    ),
}

PROGRAM = """
def tried(retries):
    return at_once(lambda: failure(lambda: embed(given["busy"], "any", given["crowd"], retries=retries)))
print(json.dumps({
    "right": failure(lambda: embed(given["url"], given["key"], given["texts"])),
    "wrong key": failure(lambda: embed(given["url"], "another", given["texts"])),
    "wrong": failure(lambda: embed(given["url"], given["key"], WRONG)),
    "refused": tried(0),
    "retried": tried(10) if given["retries"] else [],
}))
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Service]:
    """A service with a key."""
    with serve(model=f"mini={MINILM}", api_keys=KEY) as started:
        yield started


@pytest.fixture(scope="module")
def busy() -> Iterator[Service]:
    """A service whose queue is soon full."""
    with overloaded() as started:
        yield started


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(library.environment)) for name, library in LIBRARIES.items()]
)
def test_errors_are_the_library_s_and_a_full_queue_is_waited_for(
    guarded: Service, busy: Service, name: str
) -> None:
    """A right key opens; a library that sends refused requests again gets all its answers."""
    library = LIBRARIES[name]
    before = refusals(busy)
    found = answers(
        library.environment,
        AT_ONCE + library.embed + PROGRAM.replace("WRONG", library.wrong),
        url=guarded.url,
        busy=busy.url,
        key=KEY,
        texts=["A man is eating."],
        crowd=CROWD,
        retries=library.retries,
    )
    assert found["right"] is None
    assert found["wrong key"][0] == library.of_key, found
    assert found["wrong"][0] == library.of_request, found
    errors = [error for error in found["refused"] if error]
    assert {kind for kind, _ in errors} == {library.of_queue}, found
    assert refusals(busy) >= before + len(errors)
    assert not any(found["retried"]), found
    if library.retries:
        assert len(found["retried"]) == 6
        assert refusals(busy) > before + len(errors)
    if library.tells:
        assert "The API key is not valid" in found["wrong key"][1]
        assert "is not served here; the models are: mini" in found["wrong"][1]
        assert all("Retry after the time in Retry-After" in sentence for _, sentence in errors)
