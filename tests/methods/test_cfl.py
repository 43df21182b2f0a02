import sys
import types

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from torch import nn

import ilk
from ilk.methods.cfl import CFL
from ilk.methods.fedavg import FedAvg
from ilk.params import average

LOCAL = ilk.LocalSGD(epochs=3, lr=0.05)
# With these clients the mean norm falls below 0.65 in rounds 3 to 5; by then the largest is 1.5 to 2 with two halves, and
# below 1.4 with IID clients.
SPLITS = {"local": LOCAL, "eps1": 0.65, "eps2": 1.5, "t_min": 2}
EAGER = {"local": ilk.LocalSGD(epochs=1), "eps1": 1e9, "eps2": 0, "t_min": 0}  # splits whenever it may


def federation(split="permute-labels:2", clients=8, seed=0):
    return ilk.federation("digits", split=split, clients=clients, seed=seed)


@pytest.fixture(scope="module")
def equal():
    """Six clients of one size, so that weighted and plain means are the same."""
    random = np.random.default_rng(0)
    clients = {}
    for k in range(6):
        x = random.normal(size=(30, 4)).astype(np.float32)
        clients[f"c{k}"] = (x, (x[:, k % 2] > 0).astype(int))
    return ilk.from_arrays(clients)


class Some:
    """An engine on which only those answer who are said to answer in this round."""

    def __init__(self, answers):
        self.inner, self.answers, self.name = ilk.Inline(), answers, "inline"

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def memories(self):
        return self.inner.memories

    def ask(self, task, messages, round):
        measuring = type(task).__name__ == "Evaluate"
        return (a for a in self.inner.ask(task, messages, round) if measuring or a.client in self.answers(round))


class Watched(Some):
    """An engine that keeps every model that was sent up, by round and client."""

    def __init__(self, answers=None):
        super().__init__(answers or (lambda round: range(99)))
        self.sent, self.got = {}, {}

    def ask(self, task, messages, round):
        for answer in super().ask(task, messages, round):
            if type(task).__name__ != "Evaluate":
                self.sent.setdefault(round, {})[answer.client] = answer.message["model"]
                self.got.setdefault(round, {})[answer.client] = messages[answer.client]["models"]
            yield answer


class Steps(CFL):
    """CFL that keeps the state after each round."""

    def round(self, server, state, cohort):
        after = super().round(server, state, cohort)
        KEPT.append(after)
        return after


KEPT: list = []


def states(method_options, federation, **settings):
    KEPT.clear()
    run = ilk.run(Steps(**method_options), federation, engine=settings.pop("engine", "inline"), **settings)
    return run, list(KEPT)


class TestNeverSplit:
    @pytest.mark.parametrize("cohort", [1.0, 0.5])
    def test_is_fedavg_bit_for_bit(self, equal, cohort):
        assert len(set(equal.sizes)) == 1
        settings = {"rounds": 4, "cohort": cohort, "engine": "inline"}
        cfl = ilk.run(CFL(local=LOCAL, eps1=0, t_min=0), equal, **settings)
        assert cfl.model_digest == ilk.run(FedAvg(local=LOCAL), equal, **settings).model_digest

    def test_averages_without_weights(self):
        random = np.random.default_rng(1)
        sizes = (10, 40)
        unequal = ilk.from_arrays({str(n): (random.normal(size=(n, 3)), np.arange(n) % 2) for n in sizes})
        engine = Watched()
        run = ilk.run(CFL(local=LOCAL), unequal, rounds=1, engine=engine)
        assert (run.state.models == average(list(engine.sent[1].values()), [1, 1])).all()

    def test_costs_what_fedavg_costs(self, equal):
        settings = {"rounds": 3, "cohort": 0.5, "engine": "inline"}
        cfl, fedavg = (ilk.run(m(local=LOCAL), equal, **settings) for m in (CFL, FedAvg))
        assert cfl.ledger.by_kind() == fedavg.ledger.by_kind()


class TestRecovers:
    @pytest.mark.parametrize("seed", range(2))
    def test_two_halves_with_permuted_labels(self, seed):
        run = ilk.run(CFL(**SPLITS), federation(seed=seed), rounds=8, engine="inline", eval_every=8)
        assert run.state.cluster.tolist() == [0, 1] * 4

    @pytest.mark.parametrize("seed", range(2))
    def test_never_splits_iid_clients_with_the_same_settings(self, seed):
        run = ilk.run(CFL(**SPLITS), federation("iid", seed=seed), rounds=8, engine="inline", eval_every=8)
        assert run.state.cluster.tolist() == [0] * 8

    @pytest.mark.parametrize("split", ["rotate:4", "permute-labels:4"])
    def test_four_groups_by_splitting_twice(self, split):
        method = CFL(**{**SPLITS, "eps1": 0.6, "eps2": 1.2})
        run = ilk.run(method, federation(split, 12), rounds=12, engine="inline", eval_every=12)
        assert run.last["ari"] == 1

    def test_four_groups_with_half_of_the_clients_a_round(self):
        run = ilk.run(CFL(**SPLITS), federation(), rounds=20, cohort=0.5, engine="inline", eval_every=20)
        assert run.last["ari"] == 1

    def test_beats_fedavg(self):
        settings = {"rounds": 7, "engine": "inline", "eval_every": 7}
        cfl = ilk.run(CFL(**SPLITS), federation(), **settings)
        assert cfl.accuracy > ilk.run(FedAvg(local=LOCAL), federation(), **settings).accuracy + 0.2


class TestConditions:
    def test_the_norms_that_decide(self, equal):
        """|mean d| and max |d| by hand, over all clients that are in the cluster."""
        engine = Watched()
        run = ilk.run(CFL(local=LOCAL), equal, rounds=1, engine=engine)
        start = engine.got[1][0][0].astype(np.float64)
        updates = np.stack([engine.sent[1][k] for k in range(6)]) - start
        norms = np.linalg.norm(updates.mean(axis=0)), np.linalg.norm(updates, axis=1).max()
        np.testing.assert_allclose(run.history["norms"], [[norms]], rtol=1e-6)
        np.testing.assert_allclose(run.state.updates, updates, rtol=1e-6, atol=1e-9)

    def split_with(self, equal, **options):
        run = ilk.run(CFL(**{"local": LOCAL, "t_min": 0, **options}), equal, rounds=1, engine="inline")
        return len(run.state.models) > 1

    def test_eps1_and_eps2(self, equal):
        """A cluster splits just above its mean norm and just below its largest norm, and not at them."""
        [[(mean, largest)]] = ilk.run(CFL(local=LOCAL), equal, rounds=1, engine="inline").history["norms"]
        assert mean < largest
        assert self.split_with(equal, eps1=mean * 1.001, eps2=largest * 0.999)
        assert not self.split_with(equal, eps1=mean * 0.999, eps2=largest * 0.999)
        assert not self.split_with(equal, eps1=mean * 1.001, eps2=largest * 1.001)
        assert not self.split_with(equal, eps1=mean, eps2=0), "below, not at"
        assert not self.split_with(equal, eps1=1e9, eps2=largest), "above, not at"

    def test_t_min_is_the_last_round_without_a_split(self, equal):
        for rounds, clusters in ((3, 1), (4, 2)):
            run = ilk.run(CFL(**{**EAGER, "t_min": 3}), equal, rounds=rounds, engine="inline")
            assert len(run.state.models) == clusters

    def test_two_clients_are_never_split_and_three_are(self):
        random = np.random.default_rng(0)
        for n, clusters in ((2, 1), (3, 2)):
            few = ilk.from_arrays({str(k): (random.normal(size=(20, 3)), np.arange(20) % 2) for k in range(n)})
            assert len(ilk.run(CFL(**EAGER), few, rounds=1, engine="inline").state.models) == clusters

    def test_a_cluster_splits_at_most_in_two_a_round(self, equal):
        _, after = states(EAGER, equal, rounds=4)
        counts = [len(state.models) for state in after]
        assert counts[0] == 2
        assert counts[1] <= 4
        sizes = np.bincount(after[-1].cluster)
        assert sizes.max() <= 2, "in the end nobody may be split"


class TestSplit:
    def test_halves_by_complete_linkage_of_cosines(self):
        """Of these clients, SciPy's other linkages make other halves."""
        engine = Watched()
        run = ilk.run(CFL(**EAGER), federation("label-skew:0.3", 6), rounds=1, engine=engine)
        start = engine.got[1][0][0].astype(np.float64)
        cosines = pdist(np.stack([engine.sent[1][k] for k in range(6)]) - start, "cosine")

        def together(labels):
            return (labels[:, None] == labels).tolist()

        halves = {
            method: together(fcluster(linkage(cosines, method), 2, "maxclust"))
            for method in ("complete", "average", "weighted", "single")
        }
        assert halves["complete"] not in [halves["average"], halves["weighted"], halves["single"]]
        assert together(run.state.cluster) == halves["complete"]

    def test_this_rounds_updates_already_count_in_the_halves(self):
        engine = Watched()
        run = ilk.run(CFL(**EAGER), federation(), rounds=1, engine=engine)
        assert len(run.state.models) == 2
        for z in range(2):
            members = np.flatnonzero(run.state.cluster == z)
            mean = average([engine.sent[1][k] for k in members], np.ones(len(members)))[0]
            assert (run.state.models[z] == mean).all()

    def test_the_first_half_keeps_its_number(self):
        run = ilk.run(CFL(**EAGER), federation(), rounds=1, engine="inline")
        assert run.state.cluster[0] == 0

    def test_members_are_sent_the_model_of_their_half(self):
        engine = Watched()
        _, after = states(EAGER, federation(), rounds=2, engine=engine)
        for k, models in engine.got[2].items():
            assert len(models) == 1
            assert (models[0] == after[0].models[after[0].cluster[k]]).all()


class TestPartialParticipation:
    def test_only_this_rounds_updates_are_added(self):
        """The model after a round is the plain mean of this round's models in the cluster, and of nothing else."""
        engine = Watched()
        options = {**SPLITS, "t_min": 0, "eps1": 1e9, "eps2": 0}
        _, after = states(options, federation(), rounds=8, cohort=0.5, engine=engine)
        assert len(after[-1].models) >= 2
        for t, state in enumerate(after, start=1):
            before = after[t - 2].models if t > 1 else engine.got[1][min(engine.got[1])]
            for z in range(len(state.models)):
                here = [k for k in engine.sent[t] if state.cluster[k] == z]
                if here:
                    mean = average([engine.sent[t][k] for k in here], np.ones(len(here)))[0]
                    assert (state.models[z] == mean).all()
                elif z < len(before):
                    assert (state.models[z] == before[z]).all(), "nobody was asked: the model stays"

    def test_no_split_before_everybody_has_sent_an_update(self, equal):
        engine = Some(lambda round: range(6) if round >= 4 else range(5))
        _, after = states(EAGER, equal, rounds=4, engine=engine)
        assert [len(state.models) for state in after] == [1, 1, 1, 2]

    def test_nor_if_a_members_update_is_old(self, equal):
        """Everybody is asked: an update of the round before the last is too old (2 ceil(N / cohort) = 2 rounds)."""
        options = {**EAGER, "t_min": 2}
        for last, clusters in ((1, 1), (2, 2), (3, 2)):
            engine = Some(lambda round, last=last: range(6) if round <= last else range(5))
            run = ilk.run(CFL(**options), equal, rounds=3, engine=engine)
            assert len(run.state.models) == clusters, f"client 5 last answered in round {last}"

    def test_the_window_is_wider_with_smaller_cohorts(self, equal, monkeypatch):
        """Two of six a round: 2 ceil(6 / 2) = 6 rounds. Clients 2 and 3 are asked in the first round only."""
        asked = {1: [2, 3], 2: [4, 5]}
        monkeypatch.setattr(
            "ilk.runs.run.cohort_of", lambda round, clients, cohort, seed: np.array(asked.get(round, [0, 1]))
        )
        for rounds, clusters in ((6, 2), (7, 1)):
            run = ilk.run(CFL(**{**EAGER, "t_min": rounds - 1}), equal, rounds=rounds, engine="inline")
            assert len(run.state.models) == clusters, f"round {rounds}"

    def test_a_half_splits_again_only_after_fresh_updates(self):
        """The updates that split a cluster do not count for its halves."""
        few = federation("permute-labels:4", 8)
        engine = Some(lambda round: {0} if round == 2 else range(8))
        _, after = states(EAGER, few, rounds=3, engine=engine)
        assert [len(state.models) for state in after] == [2, 2, 4]
        assert after[0].since.tolist() == [0] * 8
        assert after[1].since.tolist() == [2] + [0] * 7

    def test_silent_clients_are_not_counted_as_zeros(self, equal):
        engine = Watched(lambda round: {1, 3})
        run = ilk.run(CFL(local=LOCAL), equal, rounds=1, engine=engine)
        assert (run.state.models[0] == average([engine.sent[1][1], engine.sent[1][3]], [1, 1])[0]).all()


class TestStale:
    def test_adds_all_last_updates_again(self, equal):
        """PACFL's code (F10): never asked clients count as zeros, and old updates are added in each round."""
        engine = Watched(lambda round: {1: {0, 1}, 2: {2}}[round])
        _, after = states({"local": LOCAL, "stale": True}, equal, rounds=2, engine=engine)
        start = engine.got[1][0][0]
        first = {k: engine.sent[1][k] - start for k in (0, 1)}
        np.testing.assert_allclose(after[0].models[0], start + (first[0] + first[1]) / 6, atol=1e-6)
        third = engine.sent[2][2] - after[0].models[0]
        np.testing.assert_allclose(
            after[1].models[0], after[0].models[0] + (first[0] + first[1] + third) / 6, atol=1e-6
        )

    def test_is_the_same_when_everybody_answers(self, equal):
        runs = [ilk.run(CFL(local=LOCAL, stale=s), equal, rounds=3, engine="inline").state for s in (True, False)]
        np.testing.assert_allclose(runs[0].models, runs[1].models, atol=1e-5)

    def test_does_not_wait_for_fresh_updates(self, equal):
        engine = Some(lambda round: {0, 1, 2})
        run = ilk.run(CFL(**EAGER, stale=True), equal, rounds=1, engine=engine)
        assert len(run.state.models) == 2
        assert len(ilk.run(CFL(**EAGER), equal, rounds=1, engine=engine).state.models) == 1


def test_a_void_round_changes_nothing(equal):
    engine = Some(lambda round: {} if round == 2 else range(6))
    whole = ilk.run(CFL(**EAGER), equal, rounds=1, engine="inline").state
    void = ilk.run(CFL(**EAGER), equal, rounds=2, engine=engine).state
    assert (whole.models == void.models).all()
    assert (whole.since == void.since).all()


def test_buffers_are_averaged_and_not_compared(monkeypatch):
    """With BatchNorm: norms and cosines are of trainable parameters; running statistics are means of the clients'."""
    module = types.ModuleType("my_models")
    module.normed = lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    monkeypatch.setitem(sys.modules, "my_models", module)
    engine = Watched()
    run = ilk.run(CFL(**EAGER), federation(clients=4), rounds=1, engine=engine, model="my_models:normed")
    trainable = 64 * 2 + 64 * 10 + 10
    assert run.state.models.shape[1] == trainable + 64 * 2 + 1
    start, sent = engine.got[1][0][0].astype(np.float64), np.stack([engine.sent[1][k] for k in range(4)])
    largest = np.linalg.norm((sent - start)[:, :trainable], axis=1).max()
    whole = ilk.run(
        CFL(**EAGER, compare="state"), federation(clients=4), rounds=1, engine="inline", model="my_models:normed"
    )
    np.testing.assert_allclose(whole.last["norms"][0][1], np.linalg.norm(sent - start, axis=1).max(), rtol=1e-5)
    np.testing.assert_allclose(run.last["norms"][0][1], largest, rtol=1e-5)
    assert largest < np.linalg.norm(sent - start, axis=1).max() / 2, "the counter alone is longer"
    for z in range(2):
        np.testing.assert_allclose(run.state.models[z], sent[run.state.cluster == z].mean(axis=0), rtol=1e-5, atol=1e-7)


def test_options(documented):
    assert documented(CFL) == {"eps1": 0.4, "eps2": 1.6, "t_min": 20, "compare": "trainable", "stale": False}
