"""The agreement of models, by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ilk.clusters.agreement import inference_agreement


def test_agreement_by_hand():
    predictions = np.array([[0, 1, 2, 2], [0, 1, 0, 0], [1, 0, 2, 2], [0, 1, 2, 2]])
    expected = [[1, 0.5, 0.5, 1], [0.5, 1, 0, 0.5], [0.5, 0, 1, 0.5], [1, 0.5, 0.5, 1]]
    assert inference_agreement(predictions).tolist() == expected


def test_it_is_the_normalised_product_of_one_hot_matrices():
    predictions = np.random.default_rng(0).integers(0, 4, (5, 30))
    one_hot = np.eye(4)[predictions].reshape(5, -1)
    norms = np.linalg.norm(one_hot, axis=1)
    np.testing.assert_allclose(inference_agreement(predictions), one_hot @ one_hot.T / np.outer(norms, norms))


@settings(max_examples=50, deadline=None, database=None)
@given(arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 40)), elements=st.integers(0, 12)))
def test_it_is_the_rate_of_equal_answers(predictions):
    agreement = inference_agreement(predictions)
    assert np.array_equal(agreement, (predictions[:, None] == predictions[None]).mean(axis=2))
    assert (np.diag(agreement) == 1).all()
