import numpy as np
import pytest

from ilk.clusters.signatures import class_signature, directions, plain_signature, weighted_signature


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
