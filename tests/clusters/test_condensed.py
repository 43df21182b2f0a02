"""Distances that are kept once a pair, as SciPy keeps them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import squareform

from ilk.clusters import condensed


def some(count, seed=0):
    square = np.random.default_rng(seed).random((count, count)).astype(np.float32)
    square = np.triu(square, 1) + np.triu(square, 1).T
    return square, squareform(square, checks=False)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_is_scipys_order(count):
    square, pairs = some(count)
    assert (condensed.square(pairs) == square).all()
    one, other = np.triu_indices(count, 1)
    assert (pairs[condensed.positions(count, one, other)] == square[one, other]).all()
    assert (pairs[condensed.positions(count, other, one)] == square[one, other]).all()


def test_what_is_entered_is_found_again():
    square, _ = some(8)
    found = condensed.unknown(8)
    for rows, columns in ((np.arange(3), np.arange(8)), (np.array([7, 4]), np.array([3, 4, 5, 6, 7]))):
        condensed.enter(found, 8, rows, columns, square[np.ix_(rows, columns)])
    known = np.isfinite(condensed.square(found))
    expected = np.eye(8, dtype=bool)
    expected[:3], expected[:, :3] = True, True
    expected[np.ix_([7, 4], [3, 4, 5, 6, 7])] = expected[np.ix_([3, 4, 5, 6, 7], [7, 4])] = True
    assert (known == expected).all()
    assert (condensed.square(found)[known] == square[known]).all()


def test_among_some_in_any_order():
    square, pairs = some(9)
    who = np.array([4, 0, 8, 3])
    assert (condensed.square(condensed.among(pairs, 9, who)) == square[np.ix_(who, who)]).all()
    assert condensed.among(pairs, 9, np.arange(9)) is pairs, "no copy of what is large"
    assert len(condensed.among(pairs, 9, np.array([5]))) == 0


def test_held():
    square, pairs = some(6)
    cluster = np.array([0, -1, 1, 0, 1, -1])
    found = condensed.square(condensed.held(pairs, cluster, 99.0))
    for i in range(6):
        for j in range(6):
            if i != j and cluster[i] >= 0 and cluster[j] >= 0:
                assert found[i, j] == (0 if cluster[i] == cluster[j] else 99)
            else:
                assert found[i, j] == square[i, j]
    assert condensed.held(pairs, np.full(6, -1), 99.0) is pairs
