"""The examples that documents have for other people's libraries print what they show."""

import re

import pytest

from tests.support.libraries import NODE, needs, run
from tests.support.serving import ROOT, Service

ENVIRONMENTS = {
    "cohere": "cohere",
    "haystack.components": "haystack",
    "haystack_integrations.components.embedders.huggingface_api": "haystack",
    "haystack_integrations.components.embedders.ollama": "haystack_ollama",
    "langchain_huggingface": "langchain_huggingface",
    "langchain_ollama": "langchain_ollama",
    "langchain_openai": "langchain_openai",
    "llama_index.embeddings.ollama": "llama_index_ollama",
    "llama_index.embeddings.openai_like": "llama_index_openai",
    "llama_index.embeddings.text_embeddings_inference": "llama_index",
    "ollama": "ollama",
    "openai": "openai",
    "tritonclient.http": "tritonclient",
    "voyageai": "voyageai",
    "huggingface_hub": "huggingface_hub",
}
"""The environment for an example, by a module that it imports: the first that is found here counts."""
JAVASCRIPT = {
    "openai": "openai",
    "@langchain/openai": "langchain_openai",
    "@ai-sdk/openai-compatible": "ai",
    "cohere-ai": "cohere",
    "voyageai": "voyageai",
    "@huggingface/inference": "huggingface_inference",
}
"""The same for examples in JavaScript, among the environments of Node."""
PAGES = ("README.md", "docs/protocols.md", "docs/moving.md")


def environment(code: str) -> str | None:
    """Where an example runs; None for those of our own client."""
    modules = re.findall(r'^import .+ from "(.+)";$', code, flags=re.MULTILINE)
    if modules:
        return next((NODE + name for module, name in JAVASCRIPT.items() if module in modules), None)
    imported = re.findall(r"^(?:from|import) ([\w.]+)", code, flags=re.MULTILINE)
    fitting = (name for module, name in ENVIRONMENTS.items() if any(m.startswith(module) for m in imported))
    return next(fitting, None)


def examples() -> list[object]:
    """Each block of Python or JavaScript with what it prints, marked by what it needs."""
    found: list[object] = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"```(?:python|js)\n([^`]+?)```\n(?:```text\n(.+?)```)?", text, flags=re.DOTALL)
        for number, (code, printed) in enumerate(blocks):
            name = environment(code)
            if name is not None:
                case = f"{page} {number} {name}"
                found.append(pytest.param(name, code, printed, marks=needs(name), id=case))
    return found


@pytest.mark.parametrize(("name", "code", "printed"), examples())
def test_an_example_prints_what_the_page_shows(service: Service, name: str, code: str, printed: str) -> None:
    """Pasted as it is, with the address of the service under test."""
    code = code.replace("http://127.0.0.1:8000", service.url)
    assert run(name, code.replace("127.0.0.1:8000", service.url.removeprefix("http://"))) == printed


def test_every_library_has_an_example_in_the_protocols() -> None:
    """Five lines to paste for each library, and for LangChain, LlamaIndex and Haystack."""
    page = (ROOT / "docs/protocols.md").read_text(encoding="utf-8")
    shown = {environment(code) for code in re.findall(r"```(?:python|js)\n([^`]+?)```", page)}
    assert shown == {*ENVIRONMENTS.values(), *(NODE + name for name in JAVASCRIPT.values())}
