"""Cosine, Euclidean and Manhattan distances of updates, their Gram matrix, and OCFL's temperature."""

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from ilk.clusters.updates import (
    cosine_distance,
    cosine_similarity,
    euclidean_distance,
    manhattan_distance,
    temperature,
)
from ilk.params import gram

RIGHT, UP, BACK = [1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]


def products(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows @ rows.T


@pytest.fixture(scope="module")
def models():
    return np.random.default_rng(0).normal(size=(7, 1000)).astype(np.float32)


@pytest.fixture(scope="module")
def base():
    return np.random.default_rng(1).normal(size=1000).astype(np.float32)


def test_by_hand():
    inner = products([RIGHT, UP, BACK])
    assert inner.tolist() == [[1, 0, -3], [0, 4, 0], [-3, 0, 9]]
    assert cosine_similarity(inner).tolist() == [[1, 0, -1], [0, 1, 0], [-1, 0, 1]]
    assert cosine_distance(inner).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    root5, root13 = 5**0.5, 13**0.5
    np.testing.assert_allclose(euclidean_distance(inner), [[0, root5, 4], [root5, 0, root13], [4, root13, 0]])
    vectors = [np.array(v, np.float32) for v in (RIGHT, UP, BACK)]
    assert manhattan_distance(vectors).tolist() == [[0, 3, 4], [3, 0, 5], [4, 5, 0]]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(cosine_distance, "cosine"), (euclidean_distance, "euclidean"), (manhattan_distance, "cityblock")],
)
def test_against_scipy(models, base, ours, theirs):
    updates = models.astype(np.float64) - base
    found = ours(list(models)) if ours is manhattan_distance else ours(gram(models, base))
    np.testing.assert_allclose(found, cdist(updates, updates, theirs), rtol=1e-6, atol=1e-12)
    assert (found == found.T).all()
    assert (np.diag(found) == 0).all()


def test_unit_vectors_tie_cosine_and_euclidean_together(models):
    """Of vectors of length 1:  |a - b|^2 = 2 (1 - cos)."""
    unit = models / np.linalg.norm(models, axis=1, keepdims=True)
    inner = products(unit)
    np.testing.assert_allclose(euclidean_distance(inner) ** 2, 2 * cosine_distance(inner), rtol=1e-6, atol=1e-12)


def test_cosines_do_not_depend_on_lengths(models):
    lengths = np.logspace(-2, 2, 7)[:, None]
    np.testing.assert_allclose(
        cosine_distance(products(models * lengths)), cosine_distance(products(models)), atol=1e-9
    )


def test_cosines_of_very_short_updates_are_cosines():
    assert cosine_distance(products(np.array([RIGHT, RIGHT, UP]) * 1e-8))[0].tolist() == pytest.approx([0, 0, 1])


def test_a_client_that_did_not_move_is_like_nobody_and_like_itself():
    similarity = cosine_similarity(products([[0, 0], RIGHT, UP]))
    assert similarity[0].tolist() == [1, 0, 0]
    assert np.isfinite(cosine_distance(products(np.zeros((3, 2))))).all()


def test_rounding_leaves_no_negative_distance():
    one = np.random.default_rng(2).normal(size=5000) * 1e3
    inner = products([one, one * (1 + 1e-9), one])
    for distance in (cosine_distance(inner), euclidean_distance(inner)):
        assert (distance >= 0).all()


class TestGram:
    @pytest.mark.parametrize("block", [1, 7, 250, 999, 1000, 1001, 1 << 18])
    def test_over_blocks_is_the_full_product(self, models, base, block):
        updates = models.astype(np.float64) - base
        np.testing.assert_allclose(gram(models, base, block), updates @ updates.T, rtol=1e-12)

    def test_by_hand(self):
        models = [np.array([2, 1, 5], np.float32), np.array([1, 3, 5], np.float32)]
        assert gram(models, np.array([1, 1, 5], np.float32), 2).tolist() == [[1, 0], [0, 4]]

    def test_is_summed_in_double_precision(self):
        base = np.full(3, 4096, np.float32)
        models = [base + np.float32(2**-11), base + np.float32(2**-10)]
        assert gram(models, base)[0, 1] == 3 * 2**-21

    def test_makes_nothing_large(self):
        """Its working memory is that of a few blocks in double precision, however long the updates are."""
        models, base = np.ones((4, 1_000_000), np.float32), np.zeros(1_000_000, np.float32)
        tracemalloc.start()
        gram(models, base, 10_000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * 4 * 10_000 * 8


class TestTemperature:
    def test_formula(self):
        distance = np.array([[0, 0.5, 1.2], [0.5, 0, 2], [1.2, 2, 0]])
        squares = 2 * (0.25 + 1.44 + 4)
        assert temperature(distance) == pytest.approx((squares / (4 * 3 * 2)) ** 0.5)

    @pytest.mark.parametrize("n", [1, 2, 5])
    def test_all_alike_is_0(self, n):
        assert temperature(cosine_distance(products([UP] * n))) == 0

    def test_two_opposite_is_1(self):
        """The bound of the formula is all distances 2: with vectors only two can be so."""
        assert temperature(cosine_distance(products([RIGHT, BACK]))) == 1
        assert temperature(2 * (1 - np.eye(6))) == pytest.approx(1)

    @pytest.mark.parametrize("n", [4, 10])
    def test_two_opposite_halves(self, n):
        """n^2/2 entries are 2:  sqrt(2 n^2 / (4 n (n - 1)))."""
        halves = [RIGHT] * (n // 2) + [BACK] * (n // 2)
        assert temperature(cosine_distance(products(halves))) == pytest.approx((n / (2 * (n - 1))) ** 0.5)

    def test_all_orthogonal_is_a_half(self):
        assert temperature(cosine_distance(np.eye(9))) == pytest.approx(0.5)

    def test_stays_within_its_bounds(self):
        for seed in range(50):
            n = 2 + seed % 9
            vectors = np.random.default_rng(seed).normal(size=(n, 1 + seed % 3))
            assert 0 <= temperature(cosine_distance(products(vectors))) <= 1
