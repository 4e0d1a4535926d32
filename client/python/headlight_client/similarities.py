"""The similarities of texts: compared by the service, or here if they are too many for one request."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headlight_client.answers import Answer, Encoded, FloatArray, joined
from headlight_client.calls import Call, check_count, readable, unpack
from headlight_client.frames import similarity_frame

_FUNCTIONS = ("cosine", "dot", "euclidean", "manhattan")
_TINY = np.finfo(np.float32).tiny
# Differences of this many numbers (one megabyte) stay in the cache of a core.
_BLOCK_NUMBERS = 2**18


@dataclass(frozen=True)
class Similarities:
    """Those of texts to a source, (texts,), or of all texts to each other, (texts, texts); float32."""

    model: str
    function: str
    similarities: FloatArray
    usage: Mapping[str, int]
    request_ids: tuple[str, ...]

    def to_pandas(self, names: Sequence[object] | None = None) -> Any:
        """Return a pandas DataFrame, whose rows (and columns) are called `names`, such as the texts.

        Raises ModuleNotFoundError without pandas.
        """
        return similarity_frame(self.similarities, names)


@dataclass(frozen=True, kw_only=True)
class SimilarityCall(Call[Any]):
    """A call of `/similarity`. Texts that all meet each other meet in one request, or not there at all."""

    vectors: Call[Encoded] | None = None
    """For texts without a source, the call of `/encode` for their vectors."""
    function: str | None = None
    """How they are compared; the model's own function by default."""

    def answer(self, rows: range, headers: Mapping[str, str], content: bytes) -> Any:
        """Parse the response, an archive or JSON; raises HeadlightError if it is invalid."""
        with readable(headers):
            meta, arrays = unpack(headers, content)
            found = np.asarray(arrays.get("similarities", meta.get("similarities")), np.float32)
            check_count(len(found), len(rows))
            return Similarities(
                meta["model"],
                meta["function"],
                found,
                meta["usage"],
                tuple(filter(None, [headers.get("x-request-id")])),
            )

    def in_parts(self, info: Mapping[str, Any]) -> Call[Any]:
        """Return this call, or for texts without a source one that encodes them and compares them here.

        Raises ValueError for a function that this client does not have, and if neither the call nor `info`
        names one.
        """
        if self.vectors is None:
            return self
        function = self.function or self._own(info)
        if function not in _FUNCTIONS:
            raise ValueError(f"function is {function!r}: use {', '.join(_FUNCTIONS)}.")
        merge: Any = partial(_compared, function)
        return replace(self.vectors, merge=merge)

    def _own(self, info: Mapping[str, Any]) -> str:
        """Return the function of the model; raises ValueError if the service does not say which one it is."""
        models: Sequence[Mapping[str, Any]] = info.get("models") or []
        served = [one for one in models if self.model in (None, one.get("name"))]
        if models and not served:
            return _FUNCTIONS[0]  # not used: the service refuses the request for the vectors of such a model
        own = served[0].get("similarity") if served else None
        if own is None:
            raise ValueError(
                f"{len(self.inputs)} texts are too many for one request, so they are compared here, and the "
                "service does not say in /info how: pass the model's function, one of "
                f"{', '.join(_FUNCTIONS)}."
            )
        return str(own)


def concatenated(parts: Sequence[Similarities]) -> Similarities:
    """Join the similarities of parts of the texts to the same source, in order."""
    usage: Counter[str] = Counter()
    for part in parts:
        usage.update(part.usage)
    return replace(
        parts[0],
        similarities=np.concatenate([part.similarities for part in parts]),
        usage=dict(usage),
        request_ids=tuple(name for part in parts for name in part.request_ids),
    )


def _compared(function: str, answers: Sequence[Answer[Encoded]]) -> Similarities:
    """Compare the vectors of all parts of a call with each other."""
    whole = joined(answers)
    found = compare(function, whole.embeddings)
    return Similarities(whole.model, function, found, whole.usage, whole.request_ids)


def compare(function: str, vectors: NDArray[Any]) -> FloatArray:
    """Compare all vectors (N, d) with each other, as `/similarity` does: (N, N), float32.

    The cosine of a zero vector is 0; `euclidean` and `manhattan` are negative distances.
    """
    match function:
        case "cosine":
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            units = np.asarray(vectors / np.maximum(lengths, _TINY), np.float32)
            return units @ units.T
        case "dot":
            return np.asarray(vectors @ vectors.T, np.float32)
        case _:
            return _distances(function, vectors)


def _distances(function: str, vectors: NDArray[Any]) -> FloatArray:
    """Compute negative distances from the differences: those of near vectors would be lost in |a|² - 2ab."""
    found = np.empty((len(vectors), len(vectors)), np.float32)
    rows = max(1, _BLOCK_NUMBERS // vectors.shape[1])
    for i, vector in enumerate(vectors):
        for start in range(0, len(vectors), rows):
            differences = vectors[start : start + rows] - vector
            size = np.linalg.norm(differences, ord=2 if function == "euclidean" else 1, axis=1)
            found[i, start : start + rows] = -size
    return found
