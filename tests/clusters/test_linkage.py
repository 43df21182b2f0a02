import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

from ilk.clusters import linkage as tree

# Points 0 and 1 merge at 2. To 2 they lie 4 and 6 away: mean 5. To 3 they lie 8 and 8, and 2 lies 20 from 3.
# {0,1,2} to 3: UPGMA weighs members, (8 + 8 + 20) / 3 = 12; WPGMA weighs the two parts, ((8 + 8) / 2 + 20) / 2 = 14.
FOUR = np.array([[0, 2, 4, 8], [2, 0, 6, 8], [4, 6, 0, 20], [8, 8, 20, 0]], dtype=float)
HEIGHTS = {"upgma": [2, 5, 12], "wpgma": [2, 5, 14], "single": [2, 4, 8], "complete": [2, 6, 20]}


@pytest.mark.parametrize(("linkage", "heights"), HEIGHTS.items())
def test_heights_worked_out_by_hand(linkage, heights):
    np.testing.assert_allclose(tree.tree(FOUR, linkage)[:, 2], heights)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 25), st.sampled_from(list(tree.SCIPY)), st.floats(0, 2))
def test_cuts_agree_with_scipy(seed, count, linkage, threshold):
    points = np.random.default_rng(seed).random((count, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    merges = tree.tree(distance, linkage)
    theirs = hierarchy.linkage(squareform(distance, checks=False), tree.SCIPY[linkage])
    at = hierarchy.fcluster(theirs, threshold, "distance")
    assert (tree.cut_at(merges, threshold) == tree.by_first_member(at)).all()
    into = hierarchy.fcluster(theirs, 3, "maxclust")
    assert (tree.cut_into(merges, 3) == tree.by_first_member(into)).all()


def test_nothing_is_merged_above_a_merge_that_was_refused():
    merges = tree.tree(FOUR, "upgma")
    assert tree.cut(merges, [True, False, True]).tolist() == [0, 0, 1, 2]
    assert tree.cut(merges, [False, True, True]).tolist() == [0, 1, 2, 3]
    assert tree.cut(merges, [True, True, True]).tolist() == [0, 0, 0, 0]


def test_smaller_part():
    assert tree.smaller_part(tree.tree(FOUR, "upgma")).tolist() == [1, 1, 1]
    pairs = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 2], [9, 9, 2, 0]], dtype=float)
    assert tree.smaller_part(tree.tree(pairs, "upgma")).tolist() == [1, 1, 2]


def test_the_largest_gap():
    points = np.array([0.0, 1, 2, 50, 51])
    merges = tree.tree(np.abs(points[:, None] - points), "single")
    assert tree.cut_at_gap(merges).tolist() == [0, 0, 0, 1, 1]


def test_one_and_two_clients():
    assert tree.cut_at(tree.tree(np.zeros((1, 1)), "upgma"), 0).tolist() == [0]
    two = tree.tree(np.array([[0.0, 3], [3, 0]]), "upgma")
    assert tree.cut_at(two, 3).tolist() == [0, 0]
    assert tree.cut_at(two, 2.9).tolist() == [0, 1]
    assert tree.cut_at_gap(two).tolist() == [0, 1]
    assert tree.cut_into(two, 5).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "before", "expected"),
    [
        ([0, 0, 1, 1], [-1, -1, -1, -1], [0, 0, 1, 1]),  # nobody was in one
        ([5, 5, 2, 2], [1, 1, 0, 0], [1, 1, 0, 0]),  # the same clusters keep their numbers
        ([0, 0, 1, 1, 2], [1, 1, 0, 0, -1], [1, 1, 0, 0, 2]),  # a newcomer alone
        ([0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 1, 1]),  # two become one: the larger gives the number
        ([0, 1, 1], [0, 0, 0], [1, 0, 0]),  # one becomes two: the larger part keeps the number
        # Both new clusters have most clients from old 0 (3 and 2); the sum is largest with 1 for the second.
        ([0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_clusters_keep_their_numbers(labels, before, expected):
    assert tree.keep_numbers(np.array(labels), np.array(before)).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "before", "taken", "expected"),
    [
        ([0, 0, 1], [0, 0, -1], 3, [0, 0, 3]),  # 1 and 2 have been given, though nobody is in them now
        ([0, 1, 2], [-1, 1, -1], 3, [3, 1, 4]),  # who was in a cluster keeps its number, also below `taken`
        ([0, 0, 1], [2, 2, -1], 1, [2, 2, 3]),  # fewer taken than there are numbers
        ([0, 1], [-1, -1], 2, [2, 3]),
    ],
)
def test_numbers_that_were_given_once_are_not_given_again(labels, before, taken, expected):
    assert tree.keep_numbers(np.array(labels), np.array(before), taken=taken).tolist() == expected


@pytest.mark.parametrize(("threshold", "expected"), [(1.9, [0, 1, 2, 3]), (2, [0, 0, 1, 2]), (5, [0, 0, 0, 1])])
def test_a_merge_exactly_at_the_threshold_is_made(threshold, expected):
    assert tree.cut_at(tree.tree(FOUR, "upgma"), threshold).tolist() == expected


def cut_by_members(merges, allowed):
    """The definition: all members of each merge, the largest that are whole."""
    count = len(merges) + 1
    members = [{k} for k in range(count)]
    whole = [True] * count
    for (a, b, _, _), allow in zip(merges, allowed, strict=True):
        members.append(members[int(a)] | members[int(b)])
        whole.append(whole[int(a)] and whole[int(b)] and bool(allow))
    labels = np.full(count, -1)
    for node in reversed(range(len(members))):
        if whole[node] and labels[min(members[node])] < 0:
            labels[list(members[node])] = node
    return tree.by_first_member(labels)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from(list(tree.SCIPY)), st.floats(0, 1))
def test_any_cut_of_any_tree(seed, count, linkage, share):
    random = np.random.default_rng(seed)
    points = random.random((count, 2))
    merges = tree.tree(np.linalg.norm(points[:, None] - points, axis=2), linkage)
    allowed = random.random(count - 1) < share
    assert (tree.cut(merges, allowed) == cut_by_members(merges, allowed)).all()


def test_a_cut_does_not_list_the_members_of_every_merge(at_most):
    """A chain of 50,000 merges: lists of members would have 10^9 entries."""
    count = 50_000
    chain = np.column_stack(
        [[0, *range(count, 2 * count - 2)], range(1, count), np.arange(1, count), np.arange(2, count + 1)]
    )
    with at_most(20):
        assert tree.cut_at(chain.astype(float), 30_000.5).max() == count - 30_001


@pytest.mark.parametrize("linkage", tree.SCIPY)
def test_each_pair_once_or_a_square(linkage):
    pairs = squareform(FOUR, checks=False).astype(np.float32)
    assert (tree.tree(pairs, linkage) == tree.tree(FOUR, linkage)).all()


def keep_by_one_table(labels, before):
    labels, count = tree.by_first_member(labels), int(before.max(initial=-1)) + 1
    shared = np.zeros((labels.max() + 1, count), dtype=np.int64)
    np.add.at(shared, (labels[before >= 0], before[before >= 0]), 1)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return shared[rows, columns].sum()


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6))
def test_as_many_keep_their_number_as_can(seed, count, clusters):
    random = np.random.default_rng(seed)
    labels, before = random.integers(0, clusters, count), random.integers(-1, clusters, count)
    found = tree.keep_numbers(labels, before)
    assert (tree.by_first_member(found) == tree.by_first_member(labels)).all()
    assert (found == before).sum() == keep_by_one_table(labels, before)
    unmatched = sorted(set(found[found > before.max(initial=-1)]))
    assert unmatched == list(range(before.max(initial=-1) + 1, before.max(initial=-1) + 1 + len(unmatched)))


def test_many_clusters_keep_their_numbers_without_a_table_of_all_pairs(at_most):
    before = np.random.default_rng(0).permutation(30_000)  # a table of all would have 7 GB
    with at_most(20):
        assert (tree.keep_numbers(np.arange(30_000), before) == before).all()
