import numpy as np
import pytest

from ilk.clusters import signatures
from ilk.clusters.signatures import (
    class_signature,
    directions,
    gram_of,
    half_grams,
    plain_signature,
    weighted_signature,
)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (12, 12)])
def test_directions_are_the_leading_left_singular_vectors(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    found, weights = directions(x, 3)
    np.testing.assert_allclose(np.abs(np.sum(found * left[:, :3], axis=0)), 1, atol=1e-9)
    expected = np.sqrt(sizes[:3] ** 2 - sizes[3] ** 2)
    np.testing.assert_allclose(weights, expected / np.linalg.norm(expected), atol=1e-9)


def test_fewer_samples_than_directions():
    x = np.random.default_rng(0).standard_normal((6, 2))
    assert plain_signature(x, 4).shape == (6, 2)
    signature = weighted_signature(x, 4)
    assert signature.shape == (6, 4)
    assert (signature[:, 2:] == 0).all()


@pytest.mark.parametrize("samples", [1, 2, 50])
def test_a_weighted_signature_overlaps_fully_with_itself(samples):
    b = weighted_signature(np.random.default_rng(0).standard_normal((9, samples)), 4)
    assert np.sum((b.T @ b) ** 2) == pytest.approx(1)


def test_equal_singular_values_have_equal_weights():
    _, weights = directions(np.eye(5), 3)
    np.testing.assert_allclose(weights, 3**-0.5)


def test_no_data_has_no_direction():
    assert weighted_signature(np.zeros((5, 3)), 2).tolist() == np.zeros((5, 2)).tolist()


def test_class_signature_stacks_the_classes_in_label_order():
    x = np.array([[3.0, 0, 0, 1], [0, 2, 0, 0], [0, 0, 5, 0]])
    stacked = class_signature(x, np.array([7, 2, 2, 7]), 1)
    np.testing.assert_allclose(np.abs(stacked), [[0, 1], [0, 0], [1, 0]], atol=1e-12)


@pytest.mark.parametrize("shape", [(300, 250), (250, 900), (700, 400), (60, 60)])
@pytest.mark.parametrize("decay", [0.0, 0.01, 0.2])
def test_large_and_small_like_a_full_decomposition(shape, decay):
    """To the tolerance that is promised, whatever falls off in the singular values, by Lanczos or not."""
    random, count = np.random.default_rng(0), 6
    left = np.linalg.qr(random.standard_normal((shape[0], min(shape))))[0]
    right = np.linalg.qr(random.standard_normal((shape[1], min(shape))))[0]
    sizes = 5 * np.exp(-decay * np.arange(min(shape))) * (1 + 0.5 * np.linspace(1, 0, min(shape)))
    x = (left * sizes) @ right.T
    found, weights = directions(x, count)
    full, s, _ = np.linalg.svd(x, full_matrices=False)
    u = full[:, :count]
    expected = np.sqrt(s[:count] ** 2 - s[count] ** 2)
    np.testing.assert_allclose(weights, expected / np.linalg.norm(expected), atol=1e-7)
    np.testing.assert_allclose(found @ found.T, u @ u.T, atol=1e-10 if decay == 0.2 else 1e-7)
    np.testing.assert_allclose(found.T @ found, np.eye(count), atol=1e-10)


@pytest.mark.parametrize("copies", [2, 5, 8])
def test_equal_eigenvalues_are_not_missed(copies):
    """One starting vector sees one of several equal eigenvalues; with many samples, too, all of them count."""
    x = np.zeros((260, 400))
    np.fill_diagonal(x, [*[9.0] * copies, *[4.0] * 40, *[1.0] * 218])
    found, weights = directions(x, 5)
    assert np.allclose(np.linalg.norm(found.T @ x, axis=1), [9.0] * min(copies, 5) + [4.0] * (5 - min(copies, 5)))
    assert len(weights) == 5


def test_many_samples_without_any_content_have_no_direction():
    assert (weighted_signature(np.zeros((300, 400)), 2) == 0).all()


def test_lanczos_is_what_large_ones_take(monkeypatch):
    taken = []
    lanczos = signatures._lanczos
    monkeypatch.setattr(signatures, "_lanczos", lambda gram, count: taken.append(len(gram)) or lanczos(gram, count))
    random = np.random.default_rng(0)
    for shape in ((300, 50), (50, 300), (300, 400)):
        directions(random.standard_normal(shape), 4)
    assert taken == [300]


@pytest.mark.parametrize("shape", [(30, 20), (30, 21), (10, 60), (10, 61), (10, 15)])
def test_halves_know_their_gram_from_that_of_the_whole(shape):
    random = np.random.default_rng(0)
    x, order = random.standard_normal(shape), random.permutation(shape[1])
    middle = shape[1] // 2
    one, other = order[:middle], order[middle : 2 * middle]
    for part, gram in zip((one, other), half_grams(x, gram_of(x), one, other), strict=True):
        np.testing.assert_allclose(gram, gram_of(x[:, part]), atol=1e-12)
        known, anew = (weighted_signature(x[:, part], 3, g) for g in (gram, None))
        np.testing.assert_allclose(known @ known.T, anew @ anew.T, atol=1e-9)
