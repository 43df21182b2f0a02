import sys
import types

import numpy as np
import pytest
from sklearn.cluster import AffinityPropagation, AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

import ilk
from ilk.clusters.grouping import GROUPINGS, group, place_noise
from ilk.clusters.linkage import by_first_member
from ilk.methods.ocfl import OCFL

SOUND = [name for name in GROUPINGS if name != "affinity-of-distances"]


def planted(groups=3, each=5, near=0.2, far=1.0, seed=0):
    """Return cosine distances of clients in groups, dealt out in turns, and the groups."""
    truth = np.arange(groups * each) % groups
    distance = np.where(truth[:, None] == truth, near, far)
    distance = distance + np.random.default_rng(seed).uniform(-0.05, 0.05, distance.shape)
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0)
    return distance, truth


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("name", SOUND)
def test_every_algorithm_finds_planted_groups(name, groups):
    distance, truth = planted(groups, each=15 // groups)
    found = group(distance, name, groups if name == "kmeans" else None, "nearest", seed=0)
    assert (found == truth).all(), "groups are numbered by their first members"


def test_kmeans_takes_three_if_it_is_not_told():
    distance, truth = planted(3)
    assert (group(distance, "kmeans", None, "nearest", 0) == truth).all()
    assert group(planted(4, 4)[0], "kmeans", None, "nearest", 0).max() + 1 == 3
    assert group(planted(4, 4)[0], "kmeans", 4, "nearest", 0).max() + 1 == 4


def test_affinity_propagation_is_given_similarities():
    """Released code gives it distances, and then the least alike are put together (F13)."""
    distance, truth = planted(3)
    wrong = AffinityPropagation(affinity="precomputed", random_state=0).fit_predict(distance)
    assert adjusted_rand_score(truth, wrong) < 0.5
    assert (group(distance, "affinity", None, "nearest", 0) == truth).all()
    assert (group(distance, "affinity-of-distances", None, "pooled", 0) == by_first_member(wrong)).all()


@pytest.mark.parametrize(("large", "small", "clusters"), [(12, 3, 2), (16, 4, 2), (17, 3, 1), (13, 2, 1)])
def test_hdbscan_takes_a_fifth_of_the_clients_for_the_least_cluster(large, small, clusters):
    truth = np.array([0] * large + [1] * small)
    distance = np.where(truth[:, None] == truth, 0.2, 1.0) * (1 - np.eye(len(truth)))
    assert group(distance, "hdbscan", None, "nearest", 0).max() + 1 == clusters


def test_the_distances_are_left_as_they_are():
    distance, _ = planted()
    before = distance.copy()
    for name in GROUPINGS:
        group(distance, name, None, "nearest", 0)
    assert (distance == before).all()


@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("name", GROUPINGS)
def test_a_few_clients_are_grouped_somehow(name, n):
    distance = 1 - np.eye(n)
    distance[0, 1] = distance[1, 0] = 0.5
    if name.startswith("affinity") and n == 2:
        pytest.skip("scikit-learn warns that all similarities are equal, and answers")
    found = group(distance, name, None, "nearest", 0)
    assert len(found) == n
    assert set(found) == set(range(found.max() + 1))


@pytest.mark.parametrize("name", [name for name in SOUND if name != "affinity"])
def test_clients_that_are_all_alike_are_one_cluster(name):
    assert group(np.zeros((8, 8)), name, None, "nearest", 0).tolist() == [0] * 8


HAND = np.array(
    [
        [0.0, 0.1, 0.9, 0.9, 0.6],
        [0.1, 0.0, 0.9, 0.9, 0.2],
        [0.9, 0.9, 0.0, 0.1, 0.3],
        [0.9, 0.9, 0.1, 0.0, 0.4],
        [0.6, 0.2, 0.3, 0.4, 0.0],
    ]
)


class Says:
    def __init__(self, *labels):
        self.labels = labels

    def fit_predict(self, X):
        self.given = X
        return list(self.labels)


class TestNoise:
    """The fifth client's nearest neighbour is in the first cluster, but on average it is nearer to the second."""

    def test_nearest(self):
        assert place_noise(HAND, np.array([0, 0, 1, 1, -1]), "nearest").tolist() == [0, 0, 1, 1, 1]

    def test_nearest_looks_at_real_members_only(self):
        """Noise that has been placed does not pull further noise."""
        distance = np.array([[0, 1, 0.2, 0.9], [1, 0, 0.8, 0.5], [0.2, 0.8, 0, 0], [0.9, 0.5, 0, 0]])
        assert place_noise(distance, np.array([0, 1, -1, -1]), "nearest").tolist() == [0, 1, 0, 1]

    def test_alone(self):
        assert group(HAND, Says(0, 0, -1, 1, -1), None, "alone", 0).tolist() == [0, 0, 1, 2, 3]

    def test_pooled(self):
        assert group(HAND, Says(0, 0, -1, 1, -1), None, "pooled", 0).tolist() == [0, 0, 1, 2, 1]

    @pytest.mark.parametrize(("noise", "expected"), [("nearest", [0] * 5), ("pooled", [0] * 5), ("alone", [*range(5)])])
    def test_nothing_but_noise(self, noise, expected):
        assert group(HAND, Says(*[-1] * 5), None, noise, 0).tolist() == expected


class TestOwn:
    def test_an_object_is_given_the_distances(self):
        own = Says(7, 7, 3, 3, 7)
        assert group(HAND, own, None, "nearest", 0).tolist() == [0, 0, 1, 1, 0]
        assert own.given is HAND

    def test_scikit_learns_objects_will_do(self):
        distance, truth = planted(3)
        own = AgglomerativeClustering(3, metric="precomputed", linkage="average")
        assert (group(distance, own, None, "nearest", 0) == truth).all()

    def test_module_and_callable(self, monkeypatch):
        module = types.ModuleType("my_grouping")
        module.halves = lambda: Says(1, 1, 0, 0, -1)
        monkeypatch.setitem(sys.modules, "my_grouping", module)
        assert group(HAND, "my_grouping:halves", None, "nearest", 0).tolist() == [0, 0, 1, 1, 1]

    @pytest.mark.parametrize("name", ["no_such_module:thing", "ilk:no_such_thing", ":x"])
    def test_what_is_not_there_is_refused(self, name):
        with pytest.raises(ilk.IlkError, match="module:callable"):
            group(HAND, name, None, "nearest", 0)

    def test_a_module_in_the_current_folder_is_found(self, monkeypatch, tmp_path):
        text = "class Alone:\n    def fit_predict(self, X):\n        return range(len(X))\n"
        (tmp_path / "grouping_of_my_own.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        assert group(HAND, "grouping_of_my_own:Alone", None, "nearest", 0).tolist() == [*range(5)]

    def test_what_is_not_there_is_refused_before_the_first_round(self):
        few = ilk.federation("digits", split="iid", clients=2)
        with pytest.raises(ilk.IlkError, match="no_such_module"):
            ilk.run(OCFL(grouping="no_such_module:thing"), few, rounds=1, engine="inline")

    @pytest.mark.parametrize("wrong", ["nonsense", "HDBSCAN", "", 3, None, object()])
    def test_unknown_groupings_are_refused_by_name(self, wrong):
        with pytest.raises(ilk.IlkError, match="grouping"):
            OCFL(grouping=wrong)

    def test_known_ones_are_taken(self):
        own = Says(0)
        assert OCFL(grouping=own).grouping is own
        for name in (*GROUPINGS, "a.module:thing"):
            assert OCFL(grouping=name).grouping == name
