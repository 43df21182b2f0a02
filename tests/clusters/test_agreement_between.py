import numpy as np
import pytest

from ilk.clusters import agreement
from ilk.clusters.agreement import agreement_between, inference_agreement

A, B, C = [0, 1, 2, 2], [0, 1, 2, 1], [1, 2, 0, 0]


def test_by_hand():
    assert inference_agreement(np.array([A, B, C])).tolist() == [[1, 0.75, 0], [0.75, 1, 0], [0, 0, 1]]
    assert agreement_between(np.array([A]), np.array([B, C, A])).tolist() == [[0.75, 0, 1]]


def test_is_the_released_formula():
    """<B_i, B_j> / (|B_i| |B_j|) of one-hot labels B; not the paper's, which gives 1/sqrt(M) for i = j (F3)."""
    said = np.random.default_rng(0).integers(0, 5, size=(6, 40))
    hot = np.eye(5)[said].reshape(6, -1)
    norms = np.linalg.norm(hot, axis=1)
    np.testing.assert_allclose(inference_agreement(said), hot @ hot.T / np.outer(norms, norms), rtol=1e-6)


def test_is_the_fraction_of_equal_answers():
    random = np.random.default_rng(1)
    rows, columns = random.integers(0, 10, size=(4, 2500)), random.integers(0, 7, size=(3, 2500))
    expected = (rows[:, None] == columns[None]).mean(axis=2)
    np.testing.assert_allclose(agreement_between(rows, columns), expected, rtol=1e-12)
    np.testing.assert_allclose(agreement_between(columns, rows), expected.T, rtol=1e-12)


def test_a_class_that_only_one_side_names():
    assert agreement_between(np.array([[0, 0]]), np.array([[9, 0]])).tolist() == [[0.5]]
    assert agreement_between(np.array([[9, 0]]), np.array([[0, 0]])).tolist() == [[0.5]]


@pytest.mark.parametrize("said", [[A], [A, A], [[3]]])
def test_agrees_with_itself(said):
    assert (inference_agreement(np.array(said)) == 1).all()


@pytest.mark.parametrize("block", [1, 1000, 1 << 25])
def test_blocks_of_samples_change_no_bit_and_bound_the_memory(block, monkeypatch):
    said = np.random.default_rng(2).integers(0, 9, size=(6, 501))
    expected = (said[:, None] == said[None]).sum(axis=2) / 501
    sizes = []
    one_hot = agreement._one_hot
    monkeypatch.setattr(agreement, "BLOCK", block)
    monkeypatch.setattr(agreement, "_one_hot", lambda *given: sizes.append(one_hot(*given).nbytes) or one_hot(*given))
    assert (inference_agreement(said) == expected).all()
    assert max(sizes) <= max(block, 4 * 6 * 9)
    assert len(sizes) == -(-501 // max(block // (4 * 6 * 9), 1)), "a model's answers are not made one-hot twice"
