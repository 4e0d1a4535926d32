"""The types of options: the names and shapes that the service takes, as its schemas list them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Indices = Sequence[int]
AllOrIndices = Literal["all"] | Indices
Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
Side = Literal["right", "left"]
Pooling = Literal["mean", "cls", "max", "mean_max", "mean_sqrt_len", "weighted_mean", "last"]
Output = Literal["sentence", "tokens", "sparse", "logit_lens"]
AttentionOutput = Literal["sentence", "tokens", "query", "key", "output_norm"]
Chunks = Literal["sentences"] | Mapping[str, int] | Sequence[Sequence[int]]
Edges = Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]]
"""`[query, key]` each, of a single input, or a list of such lists, one for each input."""
Role = Literal["query", "document"]
Weights = Literal["probability", "score", "value_norm"]
Aggregate = Literal["none", "mean", "max", "rollout"]
Aggregation = Literal["none", "simple", "first", "average", "max"]
SpecialTokens = Literal["keep", "drop"]
Level = Literal["token", "word"]
Intervention = Mapping[str, Any]
"""What is changed in the run of every text: `{"kind": "heads", "layer": 0, "heads": [3]}`."""
Method = Literal["parts", "occlusion", "heads", "gradient"]
Unit = Literal["token", "word", "sentence"]
Replacement = Literal["mask", "remove"]
SimilarityFunction = Literal["cosine", "dot", "euclidean", "manhattan"]
Statistic = Literal[
    "entropy",
    "confidence",
    "mean_distance",
    "self",
    "previous",
    "next",
    "special",
    "argmax_self",
    "argmax_previous",
    "argmax_next",
]
