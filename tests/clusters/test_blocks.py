"""In blocks or pair by pair: the distances are the same, whatever the widths and wherever a block ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from ilk.clusters import angles, blocks
from ilk.clusters.bases import unit


def overlap(a, b):
    return max(1 - np.sum((a.T @ b) ** 2), 0)


def principal(a, b):
    return np.degrees(subspace_angles(a, b).min(initial=np.pi / 2))


def summed(a, b):
    width = min(a.shape[1], b.shape[1])
    cosines = np.abs(np.sum(unit(a)[:, :width] * unit(b)[:, :width], axis=0))
    return np.degrees(np.arccos(np.clip(cosines, 0, 1))).sum()


def released(a, b):
    return np.degrees(np.arccos(np.clip(np.abs(unit(a).T @ unit(b)).max(), 0, 1)))


BY_PAIRS = {"overlap": overlap, "principal": principal, "summed": summed, "released": released}
every_measure = pytest.mark.parametrize("measure", BY_PAIRS)


def ragged(seed, count, d=12, widest=5, alike=0.3):
    random = np.random.default_rng(seed)
    common = random.standard_normal((d, widest))
    made = (common + alike * random.standard_normal((d, widest)) for _ in range(count))
    return [a[:, : random.integers(1, widest + 1)] / 6 for a in made]


def double_loop(measure, rows, columns):
    return np.array([[BY_PAIRS[measure](a, b) for b in columns] for a in rows])


@every_measure
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9), side=st.sampled_from([1, 7, 13, 1024]))
def test_blocks_are_the_double_loop(measure, seed, count, side):
    signatures = ragged(seed, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SIDE", side)  # blocks of one client, of two, of all
        found = angles.MEASURES[measure](signatures[:3], signatures)
        square = angles.distances(measure, signatures)
    np.testing.assert_allclose(found, double_loop(measure, signatures[:3], signatures), atol=1e-5)
    off = ~np.eye(count, dtype=bool)
    np.testing.assert_allclose(square[off], double_loop(measure, signatures, signatures)[off], atol=1e-5)
    assert (square == square.T).all(), "bit for bit"
    assert (np.diag(square) == 0).all()


@every_measure
def test_newcomers_rows_are_those_of_the_whole_matrix(measure, monkeypatch):
    monkeypatch.setattr(blocks, "SIDE", 20)
    signatures = ragged(0, 30)
    whole = angles.distances(measure, signatures)
    np.testing.assert_allclose(angles.MEASURES[measure](signatures[23:], signatures[:23]), whole[23:, :23], atol=1e-9)


@every_measure
def test_among_themselves_clients_are_compared_once(measure, monkeypatch):
    """A product for each two blocks, and no more: half of the square."""
    monkeypatch.setattr(blocks, "SIDE", 15)
    compared = []
    kernel = blocks.BLOCKS[measure]
    monkeypatch.setitem(
        blocks.BLOCKS, measure, lambda one, other: compared.append((one.part, other.part)) or kernel(one, other)
    )
    signatures = [a[:, :1].repeat(5, axis=1) + np.eye(12)[:, :5] for a in ragged(1, 12)]
    parts = [(i, j) for i, j, _ in angles.among(measure, signatures)]
    assert len(compared) == len(parts) == 4 * 5 / 2
    assert sum((i.stop - i.start) * (j.stop - j.start) for i, j in parts) == 9 * 10


def test_no_signature_and_an_empty_one():
    assert angles.distances("overlap", []).shape == (0, 0)
    assert angles.MEASURES["principal"]([np.zeros((5, 0))], [np.eye(5)[:, :2]]).tolist() == [[90]]
    assert angles.MEASURES["principal"]([np.zeros((5, 2))], [np.eye(5)[:, :2]]).tolist() == [[90]]


def test_spaces_that_must_meet_have_no_angle():
    random = np.random.default_rng(0)
    three, other = random.standard_normal((5, 3)), random.standard_normal((5, 3))
    assert angles.MEASURES["principal"]([three], [other])[0, 0] == 0


@pytest.mark.parametrize("exponent", range(-12, 0))
def test_small_principal_angles_in_a_block(exponent):
    """Where the cosine has lost its digits the sine has them: relative to the angle, not only to 1."""
    random = np.random.default_rng(0)
    bases = [np.linalg.qr(random.standard_normal((20, 3)))[0] for _ in range(6)]
    turned = []
    for q in bases:
        away = np.linalg.qr(np.column_stack([q, random.standard_normal((20, 3))]))[0][:, 3:]
        turned.append(
            np.column_stack([np.cos(10.0**exponent) * q[:, :1] + np.sin(10.0**exponent) * away[:, :1], away[:, 1:]])
        )
    found = np.radians(np.diag(angles.MEASURES["principal"](bases, turned)))
    np.testing.assert_allclose(found, 10.0**exponent, rtol=1e-5 if exponent > -11 else 1e-3)
