import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.pacfl import PACFL

FAST = ilk.LocalSGD(epochs=1)


@pytest.fixture(scope="module")
def small():
    return ilk.federation("digits", split="rotate:4", clients=12)


def groups_found(federation, **options):
    run = ilk.run(PACFL(local=FAST, **options), federation, rounds=1, engine="inline")
    return run.state.cluster


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_four_rotations_exactly(seed):
    federation = ilk.federation("digits", split="rotate:4", clients=40, seed=seed)
    assert adjusted_rand_score(federation.groups, groups_found(federation)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_iid_clients_are_one_cluster(seed):
    assert set(groups_found(ilk.federation("digits", split="iid", clients=40, seed=seed))) == {0}


def test_threshold_zero_leaves_every_client_alone(small):
    assert groups_found(small, threshold=0).tolist() == list(range(12))


@pytest.mark.parametrize("distance", ["overlap", "principal", "summed", "released"])
def test_a_huge_threshold_is_fedavg_bit_for_bit(small, distance):
    settings = {"rounds": 3, "cohort": 0.5, "engine": "inline"}
    pacfl = ilk.run(PACFL(local=FAST, threshold=1e9, distance=distance), small, **settings)
    assert pacfl.model_digest == ilk.run(FedAvg(local=FAST), small, **settings).model_digest


def test_every_cluster_is_trained_by_its_members_only(small):
    """One round of PACFL is FedAvg on each cluster by itself."""
    run = ilk.run(PACFL(local=FAST, clusters=4), small, rounds=1, engine="inline")
    for z in range(4):
        alone = ilk.run(PACFL(local=FAST, threshold=0), small, rounds=1, engine="inline")
        members = np.flatnonzero(run.state.cluster == z)
        weights = small.sizes[members] / small.sizes[members].sum()
        np.testing.assert_allclose(run.state.models[z], weights @ alone.state.models[members], atol=1e-6)


def test_a_cluster_of_which_nobody_was_asked_keeps_its_model(small):
    run = ilk.run(PACFL(local=FAST, threshold=0), small, rounds=1, cohort=3, engine="inline")
    start = ilk.run(PACFL(local=FAST, threshold=0), small, rounds=1, cohort=12, engine="inline")
    moved = [k for k in range(12) if not (run.state.models[k] == run.state.models[[0]]).all()]
    assert len({row.tobytes() for row in run.state.models}) == 4, (
        "three trained clients, and the untouched initial model"
    )
    assert len(moved) >= 3
    assert len({row.tobytes() for row in start.state.models}) == 12


def test_the_number_of_clusters_can_be_given():
    federation = ilk.federation("digits", split="rotate:4", clients=40, seed=7)
    assert adjusted_rand_score(federation.groups, groups_found(federation, clusters=4)) == 1
    assert groups_found(federation, clusters=1).max() == 0


def test_the_largest_gap_sees_the_coarser_grouping():
    """Upright and upside-down digits are more alike than either is to a lying one: the gap stops at two clusters."""
    federation = ilk.federation("digits", split="rotate:4", clients=40, seed=7)
    assert adjusted_rand_score(federation.groups % 2, groups_found(federation, threshold="gap")) == 1


@pytest.mark.parametrize("distance", ["principal", "summed", "released"])
def test_signatures_per_class(small, distance):
    run = ilk.run(
        PACFL(local=FAST, signature="per-class", vectors=2, distance=distance, threshold=0),
        small,
        rounds=1,
        engine="inline",
    )
    assert run.state.signatures.shape[1] == 64
    assert 2 * 7 <= run.state.signatures.shape[2] <= 2 * 10


def test_per_class_has_no_overlap():
    with pytest.raises(ilk.IlkError, match="per-class"):
        PACFL(signature="per-class")


def test_signatures_are_counted_once_and_by_their_bytes(small):
    run = ilk.run(PACFL(local=FAST, vectors=3), small, rounds=2, engine="inline")
    crossed = run.ledger.by_kind()
    assert crossed["signature"] == 12 * 3 * 64 * 4
    assert crossed["noise"] == 12 * 4
    model = run.state.models.shape[1] * 4
    assert crossed["models"] == crossed["model"] == 2 * 12 * model
    assert run.ledger.paper_mb(12) == pytest.approx(2 * 2 * model * 8 / 1e6)


def test_permuted_labels_are_invisible_to_signatures():
    """PACFL looks at inputs only: clients whose labels mean different things look alike. A limit, stated in its docs."""
    assert set(groups_found(ilk.federation("digits", split="permute-labels:4", clients=40))) == {0}


class Late:
    """An engine on which some clients do not answer in round 0."""

    def __init__(self, silent):
        self.inner, self.silent, self.name = ilk.Inline(), silent, "inline"

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def memories(self):
        return self.inner.memories

    def ask(self, task, messages, round):
        return (a for a in self.inner.ask(task, messages, round) if round > 0 or a.client not in self.silent)


def test_who_signs_late_joins_the_right_cluster_and_moves_nobody():
    federation = ilk.federation("digits", split="rotate:4", clients=40)
    whole = groups_found(federation)
    run = ilk.run(PACFL(local=FAST), federation, rounds=1, engine=Late({5, 14}))
    assert (run.state.cluster == whole).all()
    assert np.isfinite(run.state.distance).all()
    expected = ilk.run(PACFL(local=FAST), federation, rounds=1, engine="inline").state
    np.testing.assert_allclose(run.state.distance, expected.distance, rtol=0.2)  # their noise is another draw


def test_newcomers_that_are_like_nobody_open_clusters():
    federation = ilk.federation("digits", split="rotate:4", clients=40)
    only_group_0 = {k for k in range(40) if federation.groups[k]}
    run = ilk.run(PACFL(local=FAST), federation, rounds=1, engine=Late(only_group_0))
    assert adjusted_rand_score(federation.groups, run.state.cluster) == 1
