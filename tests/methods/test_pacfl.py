import tracemalloc
from typing import ClassVar

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import ilk
from ilk.clusters import angles, blocks
from ilk.methods.fedavg import FedAvg
from ilk.methods.pacfl import PACFL
from ilk.methods.solo import Solo
from ilk.server import Answers

FAST = ilk.LocalSGD(epochs=1)
LINES = {"distance": "principal", "vectors": 1, "local": FAST}  # of `lines`: how many degrees lie between them


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


def test_every_client_alone_is_solo_bit_for_bit(small):
    run = ilk.run(PACFL(local=FAST, threshold=0), small, rounds=3, engine="inline")
    solo = ilk.run(Solo(local=FAST), small, rounds=3, engine="inline")
    assert all((model == memory["model"]).all() for model, memory in zip(run.state.models, solo.memories, strict=True))


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


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({"distance": "principal", "threshold": 20}, {"signature"}),
        ({"distance": "summed", "threshold": "gap"}, {"signature"}),
        ({"distance": "released", "clusters": 3}, {"signature"}),  # the default threshold then has no say
        ({"distance": "principal"}, {"signature", "noise"}),
        ({"distance": "overlap", "threshold": 2}, {"signature", "noise"}),
        ({"distance": "overlap", "clusters": 3}, {"signature", "noise"}),
    ],
)
def test_noise_is_sent_only_where_it_is_used(small, options, kinds):
    run = ilk.run(PACFL(local=FAST, vectors=3, **options), small, rounds=1, engine="inline")
    sent = {entry.kind: entry.bytes for entry in run.ledger.entries if entry.round == 0}
    assert sent == {kind: {"signature": 12 * 3 * 64 * 4, "noise": 12 * 4}[kind] for kind in kinds}


@pytest.mark.parametrize("inputs", ["raw", "normalised"])
def test_signatures_are_of_training_and_validation_samples_together(inputs):
    """Worked out from the samples themselves, in double precision; each other choice is far from it."""
    federation = ilk.federation("digits", split="iid", clients=4)
    source = federation.sources["digits"]
    method = PACFL(local=FAST, vectors=3, distance="principal", threshold=0, inputs=inputs)
    signatures = ilk.run(method, federation, rounds=1, engine="inline").state.signatures

    def plane(*positions, mean, deviation):
        x = (source.x_train[np.concatenate(positions)].reshape(-1, 64) / 16 - mean) / deviation
        u = np.linalg.eigh(x.T @ x)[1][:, -3:]
        return u @ u.T

    views = {"raw": {"mean": 0, "deviation": 1}, "normalised": {"mean": 0.3053, "deviation": 0.3761}}
    seen = views.pop(inputs)
    (other,) = views.values()
    for u, share in zip(signatures, federation.partition.shares, strict=True):
        np.testing.assert_allclose(u @ u.T, plane(share.train, share.validation, **seen), atol=1e-5)
        for wrong in (plane(share.train, **seen), plane(share.train, share.validation, **other)):
            assert np.abs(u @ u.T - wrong).max() > 1e-3


def test_permuted_labels_are_invisible_to_signatures():
    """PACFL looks at inputs only: clients whose labels mean different things look alike. A limit, stated in its docs."""
    assert set(groups_found(ilk.federation("digits", split="permute-labels:4", clients=40))) == {0}


class Late(ilk.Inline):
    """An engine on which some clients do not answer before a round; it keeps what clients are sent to train.

    `silent` are clients, who all come in the round `until`, or a round for each.
    """

    def __init__(self, silent, until=1):
        self.comes, self.sent = silent if isinstance(silent, dict) else dict.fromkeys(silent, until), {}

    def ask(self, task, messages, round):
        if isinstance(task, ilk.Fit):
            self.sent[round] = messages
        return (a for a in super().ask(task, messages, round) if round >= self.comes.get(a.client, 0))


def test_who_signs_late_joins_the_right_cluster_and_moves_nobody():
    federation = ilk.federation("digits", split="rotate:4", clients=40)
    whole = groups_found(federation)
    run = ilk.run(PACFL(local=FAST), federation, rounds=1, engine=Late({5, 14}))
    assert (run.state.cluster == whole).all()
    assert np.isfinite(run.state.distance).all()
    assert len(run.state.distance) == 40 * 39 / 2
    expected = ilk.run(PACFL(local=FAST), federation, rounds=1, engine="inline").state
    np.testing.assert_allclose(run.state.distance, expected.distance, rtol=0.2)  # their noise is another draw


def test_newcomers_that_are_like_nobody_open_clusters():
    federation = ilk.federation("digits", split="rotate:4", clients=40)
    only_group_0 = {k for k in range(40) if federation.groups[k]}
    run = ilk.run(PACFL(local=FAST), federation, rounds=1, engine=Late(only_group_0))
    assert adjusted_rand_score(federation.groups, run.state.cluster) == 1


def lines(*degrees):
    """Clients whose samples all lie on a line through the origin, at these angles."""
    random = np.random.default_rng(0)
    clients = {}
    for k, angle in enumerate(np.radians(degrees)):
        length = random.uniform(1, 2, size=(20, 1))
        clients[f"c{k}"] = (length * [np.cos(angle), np.sin(angle)], (length[:, 0] > 1.5).astype(int))
    return ilk.from_arrays(clients)


@pytest.mark.parametrize("degrees", [0, 90])
def test_clients_exactly_at_the_threshold_are_together(degrees):
    run = ilk.run(PACFL(threshold=degrees, **LINES), lines(0, degrees), rounds=1, engine="inline")
    assert run.state.distance.tolist() == [degrees]
    assert run.state.cluster.tolist() == [0, 0]


class Signing:
    """A server whose clients sign lines at these angles, with this noise."""

    initial_model = np.zeros(10, np.float32)

    def __init__(self, degrees, noise):
        self.angles, self.noise = np.radians(degrees), np.float32(noise)
        self.everyone, self.sizes = np.arange(len(noise)), np.full(len(noise), 100)

    def ask(self, task, clients, send):
        said = zip(self.angles, self.noise, strict=True)
        lines = ({"signature": np.array([[np.cos(a)], [np.sin(a)]], np.float32), "noise": noise} for a, noise in said)
        return Answers(clients, self.sizes, tuple(lines))


def test_angles_join_up_to_what_halves_of_clients_differ_by():
    """The 90th percentile of 0, 1, ..., 10 is 9, so clients join up to 0.85 * 9 = 7.65 degrees: 7.6, but not 7.7."""
    noise = np.random.default_rng(0).permutation(11)
    degrees = [0, 7.6, 30, 37.7, 60, 75.2, 95, 112, 129, 146, 163]
    state = PACFL(distance="principal", vectors=1).start(Signing(degrees, noise))
    assert state.noise.tolist() == noise.tolist()
    assert state.cluster.tolist() == [0, 0, *range(1, 10)]


class TestNewcomersWhereNoThresholdSaysWhatIsNear:
    """With a number of clusters, or cut at the largest gap."""

    @pytest.mark.parametrize("options", [{"clusters": 2}, {"threshold": "gap"}])
    def test_they_join_the_nearest_cluster_however_far_and_nobody_moves(self, options):
        federation = lines(0, 0, 40, 40, 30, 5, 100)
        run = ilk.run(PACFL(**options, **LINES), federation, rounds=3, engine=Late({4, 5, 6}, until=2))
        assert run.state.cluster.tolist() == [0, 0, 1, 1, 1, 0, 1]
        assert "moved" not in run.history.columns

    def test_they_open_clusters_while_there_are_fewer_than_the_number(self):
        run = ilk.run(PACFL(clusters=3, **LINES), lines(0, 40, 80, 80), rounds=1, engine=Late({1, 2, 3}))
        assert run.state.cluster.tolist() == [0, 1, 2, 2]

    def test_the_largest_gap_opens_no_cluster_beside_a_settled_one(self):
        run = ilk.run(PACFL(threshold="gap", **LINES), lines(0, 5, 80), rounds=1, engine=Late({1, 2}))
        assert run.state.cluster.tolist() == [0, 0, 0]

    @pytest.mark.parametrize("options", [{"clusters": 1}, {"clusters": 2}, {"threshold": "gap"}])
    def test_settled_clusters_are_never_merged(self, options):
        """Not for a smaller number either; the newcomer lies 10 from cluster 1, and cluster 0 is 1 from cluster 2."""
        distance = np.array([30, 1, 40, 30, 10, 40], np.float32)  # of clients 01, 02, 03, 12, 13, 23
        found = PACFL(**options, **LINES)._group(distance, np.full(4, np.nan), np.array([0, 1, 2, -1]))
        assert found.tolist() == [0, 1, 2, 1]


def test_who_is_silent_when_asked_to_sign_is_not_asked_to_train_in_the_same_round():
    """Client 2 signs when it is first asked in a round, client 3 one round later."""
    engine = Late({2: 1, 3: 2})
    run = ilk.run(PACFL(threshold=12, **LINES), lines(0, 40, 5, 45), rounds=2, engine=engine)
    assert {round: sorted(messages) for round, messages in engine.sent.items()} == {1: [0, 1, 2], 2: [0, 1, 2, 3]}
    assert run.state.cluster.tolist() == [0, 1, 0, 1]
    models = [entry for entry in run.ledger.entries if entry.kind == "models"]
    assert {entry.round: entry.clients for entry in models} == {1: (0, 1, 2), 2: (0, 1, 2, 3)}


@pytest.mark.parametrize("newcomers", ["frozen", "recluster"])
class TestANewcomerThatBelongsToTwoClusters:
    """Clients at 0 and 20 degrees are apart; one at 10 degrees is near enough to both, and so joins them."""

    def played(self, newcomers):
        options = {"distance": "principal", "vectors": 1, "linkage": "single", "threshold": 12, "local": FAST}
        federation = lines(0, 20, 20, 10)
        return ilk.run(PACFL(newcomers=newcomers, **options), federation, rounds=3, engine=Late({3}, until=2))

    def test_moves_somebody_only_if_all_are_clustered_again(self, newcomers):
        run = self.played(newcomers)
        if newcomers == "frozen":
            assert run.state.cluster.tolist() == [0, 1, 1, 0]
            assert "moved" not in run.history.columns
        else:
            assert run.state.cluster.tolist() == [1, 1, 1, 1], "the number of the larger of the two"
            assert run.history["moved"] == [None, {"c0": [0, 1]}, None]


class TestANewcomerThatDrivesTwoClientsApart:
    """By complete linkage 0 and 10 degrees go together up to 12, but one at -6 is nearer to 0, and 16 is too far."""

    OPTIONS: ClassVar = {"distance": "principal", "vectors": 1, "linkage": "complete", "threshold": 12, "local": FAST}

    def test_who_leaves_opens_a_cluster_with_the_model_that_it_had(self):
        engine = Late({3}, until=2)
        run = ilk.run(PACFL(newcomers="recluster", **self.OPTIONS), lines(0, 0, 10, -6), rounds=2, engine=engine)
        assert run.state.cluster.tolist() == [0, 0, 1, 0]
        assert run.history["moved"][1] == {"c2": [0, 1]}
        left, stayed = engine.sent[2][2]["models"], engine.sent[2][0]["models"]
        assert (left == stayed).all()
        assert (left != engine.sent[1][2]["models"]).any(), "not the initial model"

    def test_frozen_nobody_leaves(self):
        run = ilk.run(PACFL(**self.OPTIONS), lines(0, 0, 10, -6), rounds=2, engine=Late({3}, until=2))
        assert run.state.cluster.tolist() == [0, 0, 0, 1]
        assert "moved" not in run.history.columns


def test_a_new_cluster_takes_neither_number_nor_model_of_one_that_everybody_left():
    """Round 2: one at 10 degrees bridges 0 and 20, so everybody leaves cluster 1. Round 4: one at 80 is alone."""
    options = LINES | {"linkage": "single", "threshold": 12, "newcomers": "recluster"}
    engine = Late({3: 2, 4: 4})
    run = ilk.run(PACFL(**options), lines(0, 0, 20, 10, 80), rounds=4, engine=engine)
    assert run.history["moved"] == [None, {"c2": [1, 0]}, None, None]
    assert run.state.cluster.tolist() == [0, 0, 0, 0, 2]
    initial, abandoned = engine.sent[1][0]["models"], run.state.models[[1]]
    assert (abandoned != initial).any(), "client 2 has trained it in round 1"
    assert (engine.sent[4][4]["models"] == initial).all()


def test_clustered_again_the_clear_groups_stay_as_they_are():
    federation = ilk.federation("digits", split="rotate:4", clients=40)
    run = ilk.run(PACFL(local=FAST, newcomers="recluster"), federation, rounds=1, engine=Late({5, 14}))
    assert (run.state.cluster == groups_found(federation)).all()
    assert "moved" not in run.history.columns


def test_newcomers_are_compared_and_nobody_else(monkeypatch):
    """38 clients among themselves, then each of the two newcomers with everybody: every pair is looked at once."""
    compared = []
    for name in ("among", "between"):
        whole = getattr(angles, name)

        def counted(measure, rows, columns=None, whole=whole):
            compared.append((len(rows), len(rows if columns is None else columns)))
            return whole(measure, rows) if columns is None else whole(measure, rows, columns)

        monkeypatch.setattr(angles, name, counted)
    federation = ilk.federation("digits", split="rotate:4", clients=40)
    ilk.run(PACFL(local=FAST), federation, rounds=2, engine=Late({5, 14}))
    assert [pair for pair in compared if 0 not in pair and pair != (1, 1)] == [(38, 38), (2, 2), (2, 38)]


@pytest.mark.parametrize("distance", ["overlap", "principal"])
def test_a_thousand_clients_start_with_little_memory(distance, monkeypatch):
    """What start() adds to the signatures: no square of the clients, in any type, and nothing that grows faster."""
    clients = 1000
    monkeypatch.setattr(blocks, "SIDE", 96)  # what is under way at a time is then little

    class Signed:
        ids, everyone, sizes = tuple(map(str, range(clients))), np.arange(clients), np.full(clients, 100)
        initial_model = np.zeros(10, np.float32)

        def ask(self, task, clients, send):
            random = np.random.default_rng(0)
            signatures = random.standard_normal((len(clients), 16, 3)).astype(np.float32) / 7
            noise = np.float32(0.5)
            return Answers(clients, self.sizes, tuple({"signature": s, "noise": noise} for s in signatures))

    tracemalloc.start()
    state = PACFL(distance=distance, vectors=3, threshold=5).start(Signed())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pairs = clients * (clients - 1) // 2
    assert state.distance.nbytes == 4 * pairs
    assert peak < 3e6 + 2 * 8 * pairs + 4 * state.signatures.nbytes


def test_options(documented):
    assert documented(PACFL) == {
        "signature": "whole",
        "inputs": "raw",
        "vectors": None,
        "distance": "overlap",
        "linkage": "upgma",
        "threshold": "split-half",
        "clusters": None,
        "repeats": 5,
        "newcomers": "frozen",
    }
