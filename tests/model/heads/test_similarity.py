"""The functions that compare sentence vectors."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from model.contract import SIMILARITIES, Similarity
from model.heads.similarity import STEP_PRODUCTS, similarities, similarity_blocks

# As `sentence_transformers.util` defines cos_sim, dot_score, euclidean_sim and manhattan_sim.
REFERENCES: dict[Similarity, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda a, b: torch.nn.functional.normalize(a) @ torch.nn.functional.normalize(b).T,
    "dot": lambda a, b: a @ b.T,
    "euclidean": lambda a, b: -torch.cdist(a, b, p=2, compute_mode="donot_use_mm_for_euclid_dist"),
    "manhattan": lambda a, b: -torch.cdist(a, b, p=1),
}


@pytest.mark.parametrize("shape", [(1, 1, 3), (5, 40, 384), (3, 700, 1024), (130, 130, 512)])
@pytest.mark.parametrize("function", SIMILARITIES)
def test_vectors_are_compared_as_sentence_transformers_does(
    function: Similarity, shape: tuple[int, int, int]
) -> None:
    """Each function matches torch in float64, whichever blocks the vectors are cut into."""
    rows, others, size = shape
    random = np.random.default_rng(0)
    first, second = (random.standard_normal((n, size)).astype(np.float32) for n in (rows, others))
    second[0] = first[0]
    found = similarities(function, first, second)
    expected = REFERENCES[function](torch.from_numpy(first).double(), torch.from_numpy(second).double())
    assert found.dtype == np.float32
    assert found.shape == (rows, others)
    assert np.abs(found - expected.numpy()).max() <= 1e-6 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("function", ["euclidean", "manhattan"])
def test_a_vector_is_at_no_distance_of_itself(function: Similarity) -> None:
    """Differences are computed, not found by subtracting large products; and they are symmetric."""
    vectors = 100 * np.random.default_rng(1).standard_normal((60, 384)).astype(np.float32)
    found = similarities(function, vectors, vectors)
    assert not found.diagonal().any()
    assert np.array_equal(found, found.T)


def test_no_cosine_is_beyond_one() -> None:
    """Rounding alone makes 1.0000002 of the product of unit vectors."""
    vectors = np.random.default_rng(3).standard_normal((300, 384)).astype(np.float32)
    products = REFERENCES["cosine"](torch.from_numpy(vectors), torch.from_numpy(vectors))
    assert products.max() > 1, "nothing is rounded beyond 1 here"
    found = similarities("cosine", np.concatenate([vectors, -vectors]), vectors)
    assert (float(found.min()), float(found.max())) == (-1.0, 1.0)


def test_a_vector_of_zeros_is_similar_to_nothing() -> None:
    """Its cosine is 0, not NaN."""
    assert not similarities("cosine", np.zeros((2, 8), np.float32), np.ones((3, 8), np.float32)).any()


@pytest.mark.parametrize("function", SIMILARITIES)
def test_a_large_matrix_comes_in_steps(function: Similarity) -> None:
    """Each block is a bounded part of the work, so that it can be abandoned between them."""
    vectors = np.random.default_rng(2).standard_normal((500, 256)).astype(np.float32)
    blocks = list(similarity_blocks(function, vectors, vectors))
    assert len(blocks) > 1
    assert all(len(block) * vectors.size <= STEP_PRODUCTS for block in blocks)
    assert sum(map(len, blocks)) == len(vectors)
