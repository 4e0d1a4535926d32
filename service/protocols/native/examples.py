"""Complete example requests for the schema and its page: each runs with any model of its route."""

from typing import Any

_SENTENCE = "The cat sat on the mat."
_PAIR = ["Who wrote Hamlet?", "Shakespeare wrote Hamlet."]


def _example(title: str, /, **body: Any) -> dict[str, Any]:
    return {"summary": title, "value": body}


EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "/encode": {
        "sentence": _example("The vector of a sentence", inputs=_SENTENCE),
        "several": _example("The vectors of several texts", inputs=[_SENTENCE, "A dog slept."]),
        "pair": _example("The vector of a pair of texts", inputs=[_PAIR]),
        "tokens": _example(
            "Contextual token vectors of the first and the last hidden state",
            inputs=_SENTENCE,
            outputs=["tokens"],
            layers=[0, -1],
        ),
        "matryoshka": _example(
            "The first components of a vector with a chosen pooling",
            inputs=_SENTENCE,
            pooling="cls",
            normalize=True,
            dimensions=8,
        ),
        "binary": _example("A vector with one bit for each component", inputs=_SENTENCE, precision="ubinary"),
        "chunks": _example(
            "A vector for each sentence of a text, from one pass over all of it",
            inputs="The cat sat on the mat. It slept.",
            outputs=[],
            chunks="sentences",
        ),
    },
    "/attention": {
        "head": _example("One head of one layer", inputs=_SENTENCE, layers=[0], heads=[0]),
        "words": _example(
            "Attention between words: mean of all heads in the last layer, without special tokens",
            inputs=_SENTENCE,
            layers=[-1],
            aggregate="mean",
            special_tokens="drop",
            level="word",
            renormalize=True,
        ),
        "pair": _example(
            "The tokens that each token of a text pair attends to most",
            inputs=[_PAIR],
            layers=[-1],
            heads=[0],
            top_k=3,
        ),
        "edges": _example(
            "The weights of chosen edges, different ones for each text",
            inputs=[_SENTENCE, "A dog slept."],
            edges=[[[2, 1], [3, 2]], [[1, 0]]],
            layers=[0],
        ),
        "thumbnails": _example(
            "All heads at a glance: the largest weight of each of 4 × 4 cells of a map",
            inputs=_SENTENCE,
            thumbnail=4,
            decimals=2,
        ),
        "rollout": _example("Attention rollout through all layers", inputs=_SENTENCE, aggregate="rollout"),
        "statistics": _example(
            "Statistics of each head, without maps",
            inputs=[_SENTENCE, "A dog slept."],
            summary=True,
            statistics=["entropy", "previous", "argmax_previous"],
            maps=False,
        ),
    },
    "/predict": {
        "text": _example("The labels of a text", inputs=_SENTENCE),
        "pair": _example(
            "The labels of a pair, and one head's attention",
            inputs=[_PAIR],
            attention={"layers": [-1], "heads": [0]},
        ),
    },
    "/rerank": {
        "texts": _example(
            "Texts ranked by how well they match a query",
            query=_PAIR[0],
            texts=["The cat sat on the mat.", _PAIR[1]],
        ),
        "best": _example(
            "The best text",
            query=_PAIR[0],
            texts=["The cat sat on the mat.", _PAIR[1]],
            top_n=1,
            return_texts=True,
        ),
    },
    "/similarity": {
        "source": _example(
            "Which texts are similar to one text", source=_SENTENCE, texts=["A cat sat.", "A dog slept."]
        ),
        "all": _example(
            "All texts compared with each other", texts=[_SENTENCE, "A cat sat.", "A dog slept."]
        ),
        "distance": _example(
            "Negative distances of the vectors",
            texts=[_SENTENCE, "A dog slept."],
            function="euclidean",
        ),
    },
    "/explain": {
        "pair": _example(
            "Which words make two texts similar", inputs=[["The cat sat on the mat.", "A cat sat."]]
        ),
        "sentences": _example(
            "Which sentences make two texts similar",
            inputs=[["The cat sat on the mat. It slept.", "A cat slept."]],
            unit="sentence",
            pooling="mean",
        ),
    },
    "/tokenize": {
        "text": _example("The tokens of a text", inputs=_SENTENCE),
        "pair": _example("The tokens of a pair, without special ones", inputs=[_PAIR], special_tokens="drop"),
    },
    "/decode": {
        "text": _example("The text of some ids", token_ids=[0, 1, 2]),
        "several": _example(
            "Several texts, with special tokens", token_ids=[[0, 1], [2]], skip_special_tokens=False
        ),
    },
}
"""Route -> name -> example in OpenAPI's form; the page shows the first one of each route."""
