import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from ilk.clusters.angles import MEASURES, distances, orthonormal, principal_angles


def basis(*columns):
    return np.array(columns, dtype=float).T


def turned(phi):
    """A plane in four dimensions, and one that is turned away from it by phi in one direction."""
    return basis([1, 0, 0, 0], [0, 1, 0, 0]), basis([1, 0, 0, 0], [0, np.cos(phi), np.sin(phi), 0])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.data())
def test_principal_angles_agree_with_scipy_for_every_width(seed, d, data):
    p, q = data.draw(st.integers(1, d)), data.draw(st.integers(1, d))
    random = np.random.default_rng(seed)
    u, v = random.standard_normal((d, p)), random.standard_normal((d, q))
    np.testing.assert_allclose(principal_angles(u, v), np.sort(subspace_angles(u, v)), atol=1e-6, rtol=0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(-9, 0))
def test_small_angles_agree_with_scipy_too(seed, exponent):
    random = np.random.default_rng(seed)
    u = random.standard_normal((20, 4))
    v = u + 10**exponent * random.standard_normal((20, 4))
    expected = np.sort(subspace_angles(u, v))
    np.testing.assert_allclose(principal_angles(u, v), expected, atol=1e-6, rtol=0)
    assert MEASURES["principal"]([u], [v])[0, 0] == pytest.approx(np.degrees(expected[0]), abs=6e-5)


@pytest.mark.parametrize("phi", [0, 1e-9, 1e-3, 0.5, np.pi / 2])
def test_a_plane_turned_by_phi(phi):
    u, v = turned(phi)
    np.testing.assert_allclose(principal_angles(u, v), [0, phi], atol=1e-12)
    assert MEASURES["principal"]([u], [v])[0, 0] == pytest.approx(0, abs=1e-12)
    assert MEASURES["summed"]([u], [v])[0, 0] == pytest.approx(np.degrees(phi), abs=1e-5)
    assert MEASURES["released"]([u], [v])[0, 0] == pytest.approx(0, abs=1e-12)


def test_orthogonal_spaces_are_ninety_degrees_apart():
    u, v = basis([1, 0, 0, 0], [0, 1, 0, 0]), basis([0, 0, 1, 0], [0, 0, 0, 1])
    assert MEASURES["principal"]([u], [v])[0, 0] == pytest.approx(90)
    assert MEASURES["summed"]([u], [v])[0, 0] == pytest.approx(180)
    assert MEASURES["released"]([u], [v])[0, 0] == pytest.approx(90)


def test_released_is_not_the_principal_angle():
    """Two planes that are equal, given by vectors that lie 45 degrees apart: only the principal angle sees it."""
    u = basis([1, 0, 0], [0, 1, 0])
    v = basis([np.sqrt(0.5), np.sqrt(0.5), 0], [-np.sqrt(0.5), np.sqrt(0.5), 0])
    assert MEASURES["principal"]([u], [v])[0, 0] == pytest.approx(0, abs=1e-6)
    assert MEASURES["released"]([u], [v])[0, 0] == pytest.approx(45)
    assert MEASURES["summed"]([u], [v])[0, 0] == pytest.approx(90)


def test_the_sign_of_a_singular_vector_means_nothing():
    random = np.random.default_rng(0)
    u, v = (np.linalg.qr(random.standard_normal((9, 3)))[0] for _ in range(2))
    for measure in MEASURES.values():
        np.testing.assert_allclose(measure([u], [v]), measure([u * [1, -1, 1]], [v * [-1, 1, -1]]), atol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_vector_and_its_negative_are_the_same_signature(measure):
    u = basis([0.6, 0.8, 0])
    assert MEASURES[measure]([u], [-u])[0, 0] == pytest.approx(0, abs=1e-5)


def test_overlap_by_hand():
    """B B' has norm 1; with weights (w, sqrt(1-w^2)) on one shared and one private direction the overlap is w^2."""
    w = np.array([0.8, 0.6])
    a = basis([1, 0, 0, 0], [0, 1, 0, 0]) * np.sqrt(w)
    b = basis([1, 0, 0, 0], [0, 0, 1, 0]) * np.sqrt(w)
    assert MEASURES["overlap"]([a], [a])[0, 0] == pytest.approx(0)
    assert MEASURES["overlap"]([a], [b])[0, 0] == pytest.approx(1 - 0.64)


def test_overlap_sees_all_angles():
    """Equal leading directions and different further ones: the smallest angle is 0, the overlap distance is not."""
    u, v = turned(1.0)
    assert MEASURES["principal"]([u], [v])[0, 0] == pytest.approx(0, abs=1e-6)
    scale = 2**-0.25
    assert MEASURES["overlap"]([u * scale], [v * scale])[0, 0] == pytest.approx(1 - (1 + np.cos(1.0) ** 2) / 2)


def test_distance_matrices_are_symmetric_with_a_zero_diagonal():
    random = np.random.default_rng(1)
    signatures = [random.standard_normal((8, width)) for width in (1, 3, 5)]
    for measure in ("principal", "summed", "released"):
        matrix = distances(measure, signatures)
        assert (matrix == matrix.T).all()
        assert (np.diag(matrix) == 0).all()
        assert (matrix[~np.eye(3, dtype=bool)] > 0).all()


def test_dependent_columns_count_once():
    u = basis([1, 0, 0], [2, 0, 0], [0, 1, 0])
    assert orthonormal(u).shape == (3, 2)
    np.testing.assert_allclose(principal_angles(u, basis([0, 0, 1])), [np.pi / 2])
