"""Batches for passes in process: texts of random tokens, packed as the service packs them."""

from collections.abc import Sequence

import numpy as np

from model.contract import Batch, Encoding, ModelInfo, SentenceWant, Want


def random_ids(
    lengths: Sequence[int], vocab_size: int, cls_id: int, sep_id: int, seed: int = 0
) -> list[list[int]]:
    """Make texts of random tokens, [CLS] and [SEP] around them. Speed does not depend on which tokens."""
    draw = np.random.default_rng(seed)
    return [[cls_id, *draw.integers(1000, vocab_size, n - 2).tolist(), sep_id] for n in lengths]


def pack_ids(texts: Sequence[Sequence[int]], info: ModelInfo) -> Batch:
    """Pack token ids into a batch whose every text wants the model's own sentence vector."""
    ids = np.concatenate([np.asarray(text, dtype=np.int64) for text in texts])
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return Batch(ids, np.zeros_like(ids), np.concatenate(([0], ends)), (own_sentence(info),) * len(texts))


def pack_encodings(encodings: Sequence[Encoding], info: ModelInfo) -> Batch:
    """Pack tokenized texts into a batch whose every text wants the model's own sentence vector."""
    return Batch.pack(encodings, [own_sentence(info)] * len(encodings))


def own_sentence(info: ModelInfo) -> Want:
    """Ask for the sentence vector as the model itself makes it."""
    return Want(sentence=SentenceWant(modes=info.pooling, layers=(info.layers,), normalize=info.normalize))
