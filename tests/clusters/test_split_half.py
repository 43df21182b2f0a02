import numpy as np
import pytest

from ilk.clusters import split_half
from ilk.clusters.angles import overlap
from ilk.clusters.signatures import weighted_signature


def test_reliability_by_hand():
    """Halves that overlap by one half make a whole of reliability two thirds (Spearman-Brown)."""
    np.testing.assert_allclose(split_half.reliability(np.array([0.5, 0.0, 1.0])), [2 / 3, 1, 0])


def test_relative_by_hand():
    noise = np.array([0.5, 0.0])
    expected = 0.2 / (1 - np.sqrt(2 / 3))
    assert split_half.relative(np.array([[0.2]]), noise[:1], noise[1:])[0, 0] == pytest.approx(expected)


def test_the_limit_falls_towards_its_floor():
    limits = split_half.limit(np.array([1, 4, 10**8]))
    assert limits[0] == pytest.approx(2.2)
    assert limits[1] == pytest.approx(1.65)
    assert limits[2] == pytest.approx(1.1, abs=1e-3)


def drawn(random, count, tilt):
    """Samples (12 x count) with three strong directions, the third tilted out of its place by `tilt`."""
    strong = np.eye(12)[:, :3].copy()
    strong[:, 2] = np.cos(tilt) * np.eye(12)[2] + np.sin(tilt) * np.eye(12)[3]
    return strong @ (np.array([[6.0], [4], [3]]) * random.standard_normal((3, count))) + random.standard_normal(
        (12, count)
    )


@pytest.mark.parametrize("sizes", [(60, 60), (40, 4000)])
def test_one_distribution_lies_about_one_apart_and_another_above(sizes):
    random = np.random.default_rng(0)

    def signed(count, tilt):
        x = drawn(random, count, tilt)
        halves = [x[:, : count // 2], x[:, count // 2 :]]
        return weighted_signature(x, 3), overlap(*([weighted_signature(half, 3)] for half in halves))[0, 0]

    def mean_relative(tilt):
        found = []
        for _ in range(60):
            (a, noise_a), (b, noise_b) = signed(sizes[0], 0.0), signed(sizes[1], tilt)
            found.append((overlap([a], [b])[0, 0], noise_a, noise_b))
        distance, noise_a, noise_b = np.mean(found, axis=0)
        return split_half.relative(np.array([[distance]]), np.array([noise_a]), np.array([noise_b]))[0, 0]

    assert mean_relative(0.0) == pytest.approx(1, abs=0.25)
    assert mean_relative(0.7) > 2


@pytest.mark.parametrize(("sizes", "count"), [([36, 30, 400], 9), ([600] * 3, 10), ([2, 3], 1), ([20, 20], 5)])
def test_vectors_are_a_quarter_of_the_median_client(sizes, count):
    assert split_half.vectors(np.array(sizes)) == count


def test_angle_threshold_by_hand():
    assert split_half.angle_threshold(np.arange(11.0)) == pytest.approx(0.85 * 9)
