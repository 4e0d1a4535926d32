"""The native kernels embed tokens as `Embeddings` does, or leave it to them."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from model.encoder.encoder import embed_packed
from model.encoder.packing import Packing
from model.pytorch.kernels.embeddings import NativeEmbeddings
from tests.model.test_kernel_steps import BASE, EMBEDDED, LENGTHS, every
from tests.references.comparing import distance
from tests.support.kernel import FLOAT32, kernels_of
from tests.support.product import random_encoder


@every({**EMBEDDED, "norm_bias": [{"norm_bias": False}]})
def test_the_kernels_embed_as_the_embeddings_do(choice: dict[str, Any]) -> None:
    """Padding rows included; what they do not support, they leave to the embeddings."""
    config = replace(BASE, **{"segments": 2, **choice})
    embeddings, kernels = random_encoder(config).embeddings, kernels_of(FLOAT32)
    other = config.scale_embeddings or not config.embedding_norm or config.positions == "sinusoidal"
    other = other or config.embedding_size > 0 or config.token_dropout is not None
    assert NativeEmbeddings.supports(embeddings) is not other
    if other:
        return
    packing, rows = Packing.of(LENGTHS), sum(LENGTHS) + 2
    generator = torch.Generator().manual_seed(3)
    mixed = torch.randint(config.vocab_size, (rows,), generator=generator)
    segments = torch.randint(max(1, config.segments), (rows,), generator=generator)
    assert {0, 1} <= {*mixed[: packing.tokens].tolist()}
    for ids in (mixed, mixed.clamp_min(2)):  # with the padding ids of the table and without them
        expected = embed_packed(embeddings, ids, segments, packing)
        assert distance(NativeEmbeddings(embeddings, kernels)(ids, segments, packing), expected) < 2e-6


def test_embeddings_with_another_norm_are_left_to_themselves() -> None:
    """The kernel's norm is the layer norm."""
    assert not NativeEmbeddings.supports(random_encoder(replace(BASE, norm_kind="rms")).embeddings)


@pytest.mark.parametrize(
    ("ids", "segments", "length", "offset"),
    [
        ([9], [0], 1, 0),
        ([-1], [0], 1, 0),
        ([0], [2], 1, 0),
        ([0], [-1], 1, 0),
        ([0] * 5, [0] * 5, 5, 0),
        ([0] * 3, [0] * 3, 3, 2),
    ],
)
def test_numbers_without_an_embedding_are_refused(
    ids: list[int], segments: list[int], length: int, offset: int
) -> None:
    """A token, a segment or a position that no table has: nothing beyond a table is read."""
    config = replace(BASE, segments=2, max_positions=4, position_offset=offset)
    native = NativeEmbeddings(random_encoder(config).embeddings, kernels_of(FLOAT32))
    with pytest.raises(ValueError, match="shapes do not match"):
        native(torch.tensor(ids), torch.tensor(segments), Packing.of([length]))
