"""The largest singular value of many small matrices, against LAPACK one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilk.clusters.eigen import largest, squared_norms


def by_lapack(matrices):
    return np.linalg.svd(np.moveaxis(matrices, 2, 0), compute_uv=False)[:, 0] ** 2


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.floats(-8, 0))
def test_like_lapack_for_every_shape(seed, p, q, exponent):
    matrices = np.random.default_rng(seed).standard_normal((p, q, 50)) * 10**exponent / (p * q)
    np.testing.assert_allclose(squared_norms(matrices), by_lapack(matrices), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.floats(-15, 0))
def test_many_equal_or_nearly_equal_values(seed, p, exponent):
    """Spaces that nearly coincide: all singular values are nearly 1, and their differences are lost in rounding."""
    random = np.random.default_rng(seed)
    u = np.linalg.qr(random.standard_normal((30, 20, p)))[0]
    v = np.linalg.qr(u + 10**exponent * random.standard_normal(u.shape))[0]
    inner = np.ascontiguousarray(np.moveaxis(np.swapaxes(u, 1, 2) @ v, 0, 2))
    np.testing.assert_allclose(squared_norms(inner), by_lapack(inner), atol=1e-13, rtol=0)


@pytest.mark.parametrize("value", [0.0, 1e-17, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 3), (5, 2)])
def test_diagonal_matrices(value, shape):
    matrices = np.zeros((*shape, 3))
    for k in range(min(shape)):
        matrices[k, k] = value
    np.testing.assert_allclose(squared_norms(matrices), value**2, atol=1e-15)


def test_a_value_does_not_depend_on_the_others():
    """Others that take more steps leave it as it is."""
    random = np.random.default_rng(0)
    matrices, harder = random.standard_normal((2, 4, 5, 64))
    harder[:, :, 1:] = np.ones((4, 5, 1)) + 1e-7 * harder[:, :, 1:]
    harder[:, :, 0] = matrices[:, :, 0]
    assert squared_norms(matrices)[0] == squared_norms(harder)[0]


def test_by_hand():
    """[[2, 1], [1, 2]] has 3 and 1."""
    assert largest(np.array([[2.0], [2.0]]), np.array([[1.0]]))[0] == pytest.approx(3, rel=1e-14)
