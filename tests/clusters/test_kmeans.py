import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from ilk.clusters.kmeans import best_silhouette, kmeans


def blobs(k, each=6, seed=0):
    centres = 10 * np.stack([np.cos(2 * np.pi * np.arange(k) / k), np.sin(2 * np.pi * np.arange(k) / k)], axis=1)
    truth = np.tile(np.arange(k), each)
    return centres[truth] + np.random.default_rng(seed).normal(0, 0.3, (k * each, 2)), truth


@pytest.mark.parametrize("k", [2, 3, 5])
def test_kmeans_is_scikit_learns(k):
    points, truth = blobs(k)
    found = kmeans(points, k, seed=0)
    theirs = KMeans(k, n_init=10, random_state=0).fit_predict(points)
    assert adjusted_rand_score(theirs, found) == 1
    assert (found == truth).all(), "clusters are numbered by their first members"


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_best_silhouette_finds_the_number_of_blobs(k):
    points, truth = blobs(k)
    assert (best_silhouette(points, seed=0) == truth).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_best_silhouette_is_the_best_over_all_k(seed):
    """Without any structure, too: scikit-learn's score of the clusters found is the maximum over k from 2 to n - 1."""
    points = np.random.default_rng(seed).uniform(size=(9, 2))
    scores = {k: silhouette_score(points, kmeans(points, k, seed)) for k in range(2, 9)}
    found = best_silhouette(points, seed)
    assert silhouette_score(points, found) == max(scores.values())
    assert found.max() + 1 == max(scores, key=scores.get)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_equal_rows_are_one_cluster(n):
    points = np.full((n, 4), 0.25)
    assert best_silhouette(points, 0).tolist() == [0] * n
    assert kmeans(points, 6, 0).tolist() == [0] * n


def test_no_more_clusters_than_different_rows():
    points = np.array([[0.0, 1], [1, 0], [0, 1], [1, 0]])
    assert kmeans(points, 3, 0).tolist() == [0, 1, 0, 1]
    assert best_silhouette(points, 0).tolist() == [0, 1, 0, 1]


def test_two_rows_have_no_silhouette():
    assert best_silhouette(np.array([[0.0], [9.0]]), 0).tolist() == [0, 0]


def test_three_rows_can_only_be_two_clusters():
    assert best_silhouette(np.array([[0.0], [9.0], [0.1]]), 0).tolist() == [0, 1, 0]


def test_the_same_seed_gives_the_same_clusters():
    points = np.random.default_rng(4).uniform(size=(30, 5)).astype(np.float32)
    assert (kmeans(points, 4, 7) == kmeans(points, 4, 7)).all()
