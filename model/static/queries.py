"""Queries of sparse models that run without the encoder: a table has a weight for each token.

Models with a Router and a SparseStaticEmbedding have them, such as OpenSearch's (Geng et al. 2025).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from model.checkpoints.dense import read_layer
from model.checkpoints.folder import ModelFolder
from model.checkpoints.sentence_config import read_sentence_config
from model.contract import Backend, Batch, ChunksWant, FloatArray, Output, Role, SparseWant, Want
from model.errors import CheckpointError
from model.families.tokenizers import find_tokenizer_class
from model.files import present, read_json, shown
from model.heads.running import only
from model.heads.sparse import largest_words
from model.progress import Progress
from model.static.tokenizer import StaticTokenizer
from model.templates.tokenizer import without_special_tokens
from model.tokenization.building import find_tokenizer

B = TypeVar("B", bound=Backend)

_TENSOR = "weight"


class QueryTable(Backend):
    """A backend with a table for queries: wants with `SparseWant.table` are looked up, the others run.

    `most` is how many words a vector keeps unless a request says otherwise (None: all above 0). `default` is
    the role of texts that name none.
    """

    def __init__(self, inner: Backend, weights: FloatArray, *, most: int | None, default: Role) -> None:
        head = inner.info.head
        if head is None:
            raise ValueError("the model predicts nothing")
        self._inner, self._weights, self._most = inner, weights, most
        self._info = replace(inner.info, head=replace(head, query_table=default))

    lanes = property(lambda self: self._inner.lanes)
    info = property(lambda self: self._info)
    budget = property(lambda self: self._inner.budget)
    prepares_short = property(lambda self: self._inner.prepares_short)

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        """Run one packed batch; see `Backend.run`."""
        tables = [table_want(want) for want in batch.wants]
        if not any(tables):
            return self._inner.run(batch, lanes=lanes, progress=progress)
        bounds = batch.cu_seqlens
        others = [i for i, table in enumerate(tables) if table is None]
        outputs = {
            i: self._look_up(batch.input_ids[bounds[i] : bounds[i + 1]], table)
            for i, table in enumerate(tables)
            if table is not None
        }
        if others:
            found = self._inner.run(only(batch, others), lanes=lanes, progress=progress)
            outputs |= zip(others, found, strict=True)
        return [outputs[i] for i in range(len(batch))]

    def _look_up(self, ids: NDArray[np.int64], want: SparseWant) -> Output:
        """Return the weights of the words of a query, each once."""
        words = np.unique(ids)
        found = largest_words(self._weights[words], want.top_k or self._most)
        return Output(heads={**found, "sparse_ids": words[found["sparse_ids"]].astype(np.int32)})

    def use_threads(self, threads: int) -> None:
        """Run the encoder on this many cores from now on."""
        self._inner.use_threads(threads)  # type: ignore[attr-defined]

    def cost(self, lengths: Sequence[int]) -> int:
        """Return the cost of the encoder's sequences; see `Backend.cost`."""
        return self._inner.cost(lengths)

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        """Make the vectors of chunks; see `Backend.finish`."""
        return self._inner.finish(means, want)

    def trim_memory(self) -> None:
        """Return the memory kept for later batches."""
        self._inner.trim_memory()

    def end_helpers(self) -> None:
        """End the threads that passes of the calling thread have started."""
        self._inner.end_helpers()


def with_query_table(folder: ModelFolder, backend: B) -> B | QueryTable:
    """Return the backend, with the table for queries if the folder has one; raises CheckpointError.

    The folder's tokenizer gets the role of queries.
    """
    layout = folder.layout
    if layout.queries is None:
        return backend
    head = backend.info.head
    size = 0 if head is None else head.size or 0
    weights = _read_weights(layout.queries, size)
    tokenizer = _read_tokenizer(layout.queries, folder.tokenizer.max_length)
    if tokenizer.vocab_size > size:
        raise CheckpointError(
            f"{layout.queries}: the tokenizer has {tokenizer.vocab_size} tokens, but there are weights for "
            f"only {size}: use the tokenizer and the weights of the same model."
        )
    folder.tokenizer.roles["query"] = tokenizer
    most = None if layout.splade is None else layout.splade.most
    return QueryTable(backend, weights, most=most, default="query" if layout.plain_queries else "document")


def _read_weights(folder: Path, size: int) -> FloatArray:
    """Read the weights of all words, `size` as in vectors of documents; raises CheckpointError."""
    config, file = folder / "config.json", folder / "model.safetensors"
    if (path := read_json(config, optional=True).get("path")) is not None:
        raise CheckpointError(
            f"{config}: path is {shown(path)}, but weights are read only from model.safetensors: load the "
            "model with sentence-transformers, and save it again."
        )
    if not present(file):
        raise CheckpointError(
            f"{folder} has no model.safetensors with the token weights for queries: fetch the model again, "
            "with all its files."
        )
    tensors = read_layer(file, size)
    weights = tensors.get(_TENSOR)
    if weights is None or len(tensors) > 1 or weights.shape != (size,):
        shapes = {name: array.shape for name, array in tensors.items()}
        raise CheckpointError(
            f"{file} has the tensors {shown(shapes)}; it must have only {_TENSOR}, with a weight for each "
            f"of the {size} words in the vectors of documents: use files from the same model."
        )
    if weights.min() < 0:
        raise CheckpointError(
            f"{file}: {_TENSOR} has the weight {weights.min():.4g}; every weight must be at least 0: use a "
            "model that was trained without negative weights."
        )
    return weights


def _read_tokenizer(folder: Path, limit: int) -> StaticTokenizer:
    """Read the tokenizer of queries, which adds no special tokens; `limit` is that of documents.

    Raises CheckpointError.
    """
    sentence = read_sentence_config(folder, plain=True)
    settings = sentence.tokenizer_settings
    found = find_tokenizer(folder, find_tokenizer_class(folder, {}, settings, None), settings, keeps=False)
    if found is None:
        raise CheckpointError(f"{folder} has no tokenizer.json: fetch the model again, with all its files.")
    source, whole = found
    return StaticTokenizer.limited(
        without_special_tokens(whole),
        source,
        max_length=sentence.max_length or limit,
        side=sentence.truncation_side,
        segments=False,
    )


def table_want(want: Want) -> SparseWant | None:
    """Return the want of a sequence that only looks up a table's weights, which needs no pass; else None."""
    head = want.heads[0] if len(want.heads) == 1 else None
    return head if isinstance(head, SparseWant) and head.table else None
