"""The matrix, its tree, the cut and the map, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from ilk.report.kept import Kept, distance_of
from ilk.report.matrices import BLOCKS, label_table, matrix_tables
from ilk.report.proximity import clusters_at, in_the_plane, proximity_of
from ilk.report.reading import read

THREE = np.array([[0, 1, 4], [1, 0, 6], [4, 6, 0]], dtype=float)


def near(plant, folder, distance, cluster, options=None):
    options = options or {"linkage": "upgma", "threshold": "split-half"}
    return proximity_of(
        read(plant(folder, accuracy=[0.5] * len(cluster), cluster=cluster, distance=distance, options=options))
    )


def test_cut_between_made_and_refused(plant, tmp_path):
    found = near(plant, tmp_path / "r", THREE, [0, 0, 1])
    assert (found.highest_made, found.lowest_refused, found.cut) == (1.0, 5.0, 3.0)
    assert clusters_at(found.merges) == [(0.0, 3), (1.0, 2), (5.0, 1)]


def test_a_number_is_the_threshold(plant, tmp_path):
    assert near(plant, tmp_path / "r", THREE, [0, 0, 1], {"linkage": "upgma", "threshold": 2}).cut == 2.0


def test_one_cluster_and_everyone_alone(plant, tmp_path):
    assert near(plant, tmp_path / "one", THREE, [0, 0, 0]).cut is None
    assert near(plant, tmp_path / "all", THREE, [0, 1, 2]).cut == 0.5


def test_clusters_that_no_height_separates(plant, tmp_path):
    assert not near(plant, tmp_path / "r", THREE, [0, 1, 0]).consistent


def test_who_did_not_sign_is_left_out(plant, tmp_path):
    distance = np.full((4, 4), np.nan)
    distance[:3, :3] = THREE
    found = near(plant, tmp_path / "r", distance, [0, 0, 1, 2])
    assert found.clients.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.distance, THREE)


def test_square_and_condensed_are_the_same():
    square, condensed = (distance_of(Kept({"distance": d}), 3)[0] for d in (THREE, squareform(THREE)))
    np.testing.assert_array_equal(square, condensed)
    assert distance_of(Kept({"distance": np.zeros((2, 2))}), 3) is None
    assert distance_of(Kept(), 3) is None


def test_disagreement_of_first_models():
    said = np.array([[0, 1, 1, 0], [0, 1, 1, 1], [-1, -1, -1, -1]])
    distance, what = distance_of(Kept({"predictions": said}), 3)
    assert distance[0, 1] == pytest.approx(0.25)
    assert np.isnan(distance[2]).all()
    assert "disagree" in what


@pytest.mark.parametrize("count", [2, 3, 4, 30])
def test_points_of_a_plane_are_found_again(count):
    points = np.random.default_rng(count).normal(size=(count, 2))
    found, agreement = in_the_plane(squareform(pdist(points)))
    np.testing.assert_allclose(pdist(found), pdist(points), atol=1e-6)
    assert agreement == pytest.approx(1.0)


def test_a_map_of_nothing_but_equals():
    assert in_the_plane(np.zeros((5, 5)))[0].tolist() == [[0.0, 0.0]] * 5


@pytest.mark.parametrize("clients", [5, 3 * BLOCKS + 1])
def test_a_large_matrix_is_summarised_and_says_so(plant, in_blocks, tmp_path, clients):
    cluster = (np.arange(clients) % 3).tolist()
    found = near(plant, tmp_path / "r", in_blocks(cluster), cluster)
    drawn = matrix_tables(found, [f"c{k}" for k in range(clients)])
    side = min(clients, BLOCKS)
    assert len(drawn.cells) == side**2
    assert len(drawn.leaves) == len({row["name"] for row in drawn.leaves}) == side
    assert ("mean over about 3 clients" in drawn.note) == (clients > BLOCKS)
    mean = np.mean([row["value"] for row in drawn.cells])
    assert mean == pytest.approx(found.distance.mean(), rel=0.1)
    ends = [row["at"] for row in drawn.branches]
    assert 0 < min(ends) <= max(ends) < side


def test_labels_in_words(plant, tmp_path):
    labels = [[10, 0], [10, 0], [0, 10], [0, 10]]
    run = read(plant(tmp_path / "r", accuracy=[0.5] * 4, cluster=[0, 0, 1, 1], labels=labels))
    rows, note = label_table(run)
    assert [row["name"] for row in rows[::2]] == ["1 · c00", "1 · c01", "2 · c02", "2 · c03"]
    assert note == (
        "A client's labels differ from its cluster's by 0 % of its samples on average, a cluster's from everybody's by 50 %."
    )
    run = read(plant(tmp_path / "s", accuracy=[0.5] * 4, cluster=[0, 1, 0, 1], labels=labels))
    assert "labels do not tell these clusters apart" in label_table(run)[1]
