"""The scores of clusters, against counting by hand and against what their names promise."""

from itertools import combinations

import numpy as np
import pytest
from sklearn import metrics

import ilk
from ilk.clusters.scores import SCORES, scores


def entropy(shares):
    shares = np.asarray(shares, dtype=float)
    shares = shares[shares > 0]
    return -(shares * np.log(shares)).sum()


def by_hand(groups, clusters):
    """Rand index by pairs; homogeneity and completeness by entropies."""
    table = np.array(
        [[np.sum((groups == g) & (clusters == c)) for c in np.unique(clusters)] for g in np.unique(groups)]
    )
    n = table.sum()
    joint, of_groups, of_clusters = (entropy(part / n) for part in (table, table.sum(1), table.sum(0)))
    pairs = list(combinations(range(n), 2))
    agreed = sum((groups[i] == groups[j]) == (clusters[i] == clusters[j]) for i, j in pairs)
    homogeneity = 1 - (joint - of_clusters) / of_groups if of_groups else 1.0
    completeness = 1 - (joint - of_groups) / of_clusters if of_clusters else 1.0
    return {"rand_index": agreed / len(pairs), "homogeneity": homogeneity, "completeness": completeness}


@pytest.mark.parametrize("seed", range(10))
def test_against_counting_by_hand(seed):
    random = np.random.default_rng(seed)
    groups, clusters = random.integers(3, size=12), random.integers(1 + seed % 5, size=12)
    found = scores(groups, clusters)
    for name, expected in by_hand(groups, clusters).items():
        assert found[name] == pytest.approx(expected), name


def test_names_are_what_scikit_learn_calls_so():
    groups, clusters = np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.array([0, 0, 1, 1, 1, 2, 3, 3])
    found = scores(groups, clusters)
    assert found["ari"] == metrics.adjusted_rand_score(groups, clusters)
    assert found["ami"] == metrics.adjusted_mutual_info_score(groups, clusters)
    assert found["v_measure"] == pytest.approx(
        2 * found["homogeneity"] * found["completeness"] / (found["homogeneity"] + found["completeness"])
    )
    assert found["homogeneity"] != pytest.approx(found["completeness"])  # or swapped arguments would not show (F14)


def test_one_cluster_for_all_before_clustering():
    """What the papers' tables count for rounds before the clustering (methods.md 7)."""
    found = scores(np.array([0, 0, 1, 1]), np.zeros(4, int))
    assert (found["ari"], found["ami"], found["homogeneity"], found["completeness"]) == (0, 0, 0, 1)


def test_exact_groups_score_1_whatever_their_numbers():
    assert set(scores(np.array([0, 0, 1, 1]), np.array([7, 7, 3, 3])).values()) == {1.0}


def test_without_known_groups_there_is_no_score():
    assert scores(None, np.zeros(4, int)) == dict.fromkeys(SCORES)


def test_a_history_has_them_all():
    federation = ilk.federation("digits", split="rotate:2", clients=6)
    run = ilk.run(ilk.Solo(local=ilk.LocalSGD(epochs=1)), federation, rounds=1, engine="inline")
    assert (run.last["homogeneity"], run.last["ari"]) == (pytest.approx(1), 0)
    assert 0 < run.last["completeness"] < 1
    assert run.result()["completeness"] == run.last["completeness"]
