"""Complete example requests for the schema and its page."""

from typing import Any

_SENTENCE = "What is Deep Learning?"


def _example(title: str, /, **body: Any) -> dict[str, Any]:
    return {"summary": title, "value": body}


EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "/embed": {
        "text": _example("The vector of a text", inputs=_SENTENCE),
        "texts": _example("The vectors of texts", inputs=[_SENTENCE, "A dog slept."], truncate=True),
    },
    "/embed_all": {"text": _example("The vectors of a text's tokens", inputs=_SENTENCE)},
    "/embed_sparse": {"text": _example("The weights of a text's words", inputs=_SENTENCE)},
    "/predict": {"text": _example("The labels of a text", inputs="I like you.", raw_scores=False)},
    "/rerank": {
        "texts": _example(
            "Texts in the order in which they match a query",
            query=_SENTENCE,
            texts=["Deep Learning is not...", "Deep learning is..."],
        )
    },
    "/similarity": {
        "sentences": _example(
            "How similar sentences are to one",
            inputs={"source_sentence": _SENTENCE, "sentences": ["What is Machine Learning?"]},
        )
    },
    "/tokenize": {"text": _example("The tokens of a text", inputs=_SENTENCE)},
    "/decode": {"ids": _example("The text of some ids", ids=[0, 1, 2], skip_special_tokens=True)},
    "": {"text": _example("The vector of a text, or its labels", inputs=_SENTENCE)},
}
"""Route without the prefix -> name -> example in OpenAPI's form."""
