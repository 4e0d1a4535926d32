"""Compares the vectors of a model with those of sentence-transformers, where that is installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from export.texts import TEXTS
from model.contract import Backend, Batch, SentenceWant, Want
from model.files import reason
from model.tokenization.tokenizer import TextTokenizer

_PACKAGE = "sentence_transformers"
_TEXTS = TEXTS[::2][:20]
"""Short and long ones, in several scripts."""


class CannotCompare(Exception):
    """There is nothing to compare; the message says why."""


def compare(folder: Path, tokenizer: TextTokenizer, backend: Backend) -> tuple[float, int]:
    """Return the lowest cosine between our vector of a text and the library's, and the number of texts.

    No prompt is put before the texts. Raises CannotCompare.
    """
    info = backend.info
    if find_spec(_PACKAGE) is None:
        raise CannotCompare("it is not installed")
    predicts = info.head is not None and info.head.kind != "hybrid"
    if info.family == "model2vec":
        raise CannotCompare(
            "headlight reads this table as model2vec does: it truncates texts and leaves out unknown tokens"
        )
    if info.backend == "onnx" or predicts:
        raise CannotCompare("only checkpoints that make vectors and predict nothing are compared")
    try:
        from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

        disable_progress_bars()  # also those of transformers, if it is imported only now
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - takes seconds

        # With an empty prompt, the default one is left out.
        expected = np.asarray(SentenceTransformer(str(folder), device="cpu").encode(list(_TEXTS), prompt=""))
    except Exception as error:  # whatever its libraries raise
        raise CannotCompare(f"it cannot load the model: {reason(error)}") from error
    want = Want(SentenceWant(info.pooling, (info.layers,), info.normalize), task=info.default_task)
    encodings = tokenizer.encode(_TEXTS)
    outputs = backend.run(Batch.pack(encodings, [want] * len(encodings)))
    found = np.stack([output.sentence for output in outputs if output.sentence is not None])
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((found * expected).sum(axis=1) / norms).min()), len(_TEXTS)
