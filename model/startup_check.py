"""Runs a model once before it is served, so that a broken one fails at startup and not in a request."""

from collections.abc import Iterator

import numpy as np

from model.contract import (
    Backend,
    Batch,
    FloatArray,
    HeadKind,
    HeadWant,
    LogitsWant,
    Output,
    SentenceWant,
    SparseWant,
    Want,
)
from model.errors import CheckpointError, ModelError
from model.files import reason
from model.heads.late_interaction import want_vectors
from model.tokenization.tokenizer import TextTokenizer

_TEXTS = ("What cannot work shows at once.", ("The first text", "and its pair"), "")
_HEADS: dict[HeadKind, HeadWant] = {
    "classification": LogitsWant(),
    "token_classification": LogitsWant(),
    "masked_words": SparseWant(top_k=1),
    "autoencoder": SparseWant(top_k=1),
    "hybrid": SparseWant(top_k=1),
}
_LOOKED_UP = Want(heads=(SparseWant(table=True),))


def check_model(source: str, tokenizer: TextTokenizer, backend: Backend) -> None:
    """Run a few texts; raises CheckpointError if that fails, or gives a NaN or an infinity."""
    info = backend.info
    # An empty text may have no tokens; a request with one gets an error that says so.
    encodings = [one for one in tokenizer.encode(_TEXTS) if len(one)]
    sentence = SentenceWant(info.pooling, (info.layers,), info.normalize)
    heads = () if info.head is None or info.head.kind not in _HEADS else (_HEADS[info.head.kind],)
    layers = (info.layers,) if info.exposes_tokens else ()
    wants = [Want(sentence, layers, task=task, heads=heads) for task in (None, *info.tasks)]
    batches = [(encodings, [want] * len(encodings)) for want in wants]
    for role in tokenizer.roles:
        texts = tokenizer.of(role).encode(_TEXTS[:1])
        table = info.head is not None and info.head.query_table is not None
        batches.append((texts, [_LOOKED_UP if table else want_vectors(text) for text in texts]))
    try:
        outputs = [output for batch in batches for output in backend.run(Batch.pack(*batch))]
    except ModelError:
        raise
    except Exception as error:  # each runtime has its own errors
        raise CheckpointError(
            f"{source} was loaded but cannot run a text, {type(error).__name__}: {reason(error)}; its files "
            "do not belong together, or are damaged: fetch the model again."
        ) from error
    arrays = [array for output in outputs for array in _arrays(output)]
    if not all(np.isfinite(array).all() for array in arrays):
        raise CheckpointError(
            f"{source} was loaded but gives a NaN or an infinity for a plain text: its weights are damaged, "
            f"or too large for {info.dtype}; fetch the model again, or try HEADLIGHT_DTYPE=float32."
        )


def _arrays(output: Output) -> Iterator[FloatArray]:
    """Yield the arrays of an output in which a NaN or an infinity may be."""
    yield from (array for array in (output.sentence, output.tokens) if array is not None)
    yield from (array for array in output.heads.values() if array.dtype == np.float32)
