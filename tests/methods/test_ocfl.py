import sys
import tracemalloc
import types
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

import ilk
import ilk.methods.ocfl as module
from ilk.clusters.grouping import group
from ilk.clusters.updates import cosine_distance, temperature
from ilk.methods.fedavg import FedAvg
from ilk.methods.fedopt import FedOpt
from ilk.methods.ocfl import OCFL, OCFLState
from ilk.params import average, average_clusters, gram
from ilk.server import Answers

FAST = ilk.LocalSGD(epochs=1)
STRONG = ilk.LocalSGD(epochs=3, lr=0.05)


class Says:
    """A grouping that says what the test says, and keeps the distances that it was given."""

    def __init__(self, *labels):
        self.labels, self.given = labels, []

    def fit_predict(self, X):
        self.given.append(X.copy())
        return np.resize(self.labels, len(X))


ONE = Says(0)


class Engine:
    """An engine on which only some answer in each round, and that keeps what crossed."""

    def __init__(self, answers=lambda round: range(99)):
        self.inner, self.answers, self.name = ilk.Inline(), answers, "inline"
        self.sent, self.got = {}, {}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def memories(self):
        return self.inner.memories

    def ask(self, task, messages, round):
        for answer in self.inner.ask(task, messages, round):
            if type(task).__name__ == "Evaluate":
                yield answer
            elif answer.client in self.answers(round):
                self.sent.setdefault(round, {})[answer.client] = answer.message
                self.got.setdefault(round, {})[answer.client] = messages[answer.client]["models"]
                yield answer

    def models(self, round):
        return {k: message["model"] for k, message in self.sent[round].items()}


@pytest.fixture(scope="module")
def small():
    return ilk.federation("digits", split="permute-labels:2", clients=6)


@pytest.fixture
def rising(monkeypatch):
    """Let the temperature rise in round 2, whatever it is."""
    monkeypatch.setattr(module, "temperature", heating([0.5, 0.6]))


def heating(temperatures):
    rest = iter(temperatures)
    return lambda distance: next(rest)


# The first temperatures of released OCFL runs, and the round (from 0) in which they clustered (methods.md, F11).
@pytest.mark.parametrize(
    ("measured", "fires"),
    [
        ([0.4147, 0.3201, 0.3999], 3),
        ([0.5, 0.6], 2),
        ([0.5, 0.5, 0.5, 0.5001], 4),  # equal is no rise
        ([0.5, 0.4, 0.3, 0.2], None),
        ([0.9], None),  # never in the first round
        ([0.0, 0.0, 0.0], None),
        ([0.0, 1e-9], 2),
    ],
)
def test_the_trigger_is_the_first_strict_rise(monkeypatch, measured, fires):
    assert when_clustered(monkeypatch, measured) == fires


def test_the_trigger_fires_once(monkeypatch):
    assert when_clustered(monkeypatch, [0.5, 0.6, 0.4, 0.7, 0.9]) == 2


def when_clustered(monkeypatch, temperatures):
    monkeypatch.setattr(module, "temperature", heating(temperatures))
    method = OCFL(local=FAST, grouping=Says(0, 1))
    few = ilk.federation("digits", split="iid", clients=3)
    return ilk.run(method, few, rounds=len(temperatures), engine="inline", eval_every=99).state.clustered_at


class TestTrigger:
    def test_the_temperature_is_that_of_this_rounds_cosines(self, small):
        engine = Engine()
        run = ilk.run(OCFL(local=FAST), small, rounds=1, engine=engine)
        start = engine.got[1][0][0].astype(np.float64)
        updates = np.stack(list(engine.models(1).values())) - start
        unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        squares = ((1 - unit @ unit.T) ** 2).sum()
        assert run.state.temperature == pytest.approx((squares / (4 * 6 * 5)) ** 0.5, rel=1e-6)

    def test_clusters_are_found_once(self, small, monkeypatch):
        own = Says(0, 1)
        monkeypatch.setattr(module, "temperature", heating([0.5, 0.6]))  # a third measurement would be an error
        run = ilk.run(OCFL(local=FAST, grouping=own), small, rounds=4, engine="inline")
        assert len(own.given) == 1
        assert run.state.clustered_at == 2
        assert run.state.cluster.tolist() == [0, 1] * 3

    def test_the_grouping_is_given_distances(self, small, rising):
        own, engine = Says(0, 1), Engine()
        ilk.run(OCFL(local=FAST, grouping=own), small, rounds=2, engine=engine)
        start = engine.got[2][0][0]
        expected = cosine_distance(gram(list(engine.models(2).values()), start))
        np.testing.assert_allclose(own.given[0], expected)
        assert (np.diag(own.given[0]) == 0).all()

    def test_a_void_round_is_not_measured(self, small, monkeypatch):
        monkeypatch.setattr(module, "temperature", heating([0.5, 0.6]))
        engine = Engine(lambda round: [] if round == 2 else range(6))
        run = ilk.run(OCFL(local=FAST, grouping=Says(0, 1)), small, rounds=3, engine=engine)
        assert run.state.clustered_at == 3


class TestOneClusterOnly:
    @pytest.mark.parametrize("cohort", [1.0, 0.5])
    def test_is_fedopt_bit_for_bit_before_clustering(self, small, monkeypatch, cohort):
        monkeypatch.setattr(module, "temperature", heating([0.9, 0.8, 0.7, 0.6]))
        settings = {"rounds": 4, "cohort": cohort, "engine": "inline"}
        ocfl = ilk.run(OCFL(local=FAST), small, **settings)
        fedopt = ilk.run(FedOpt(local=FAST, optimiser="sgd", server_lr=1, weighted=False), small, **settings)
        assert ocfl.state.clustered_at is None
        assert ocfl.model_digest == fedopt.model_digest

    @pytest.mark.parametrize(
        ("weighted", "other"), [(False, FedOpt(local=FAST, weighted=False)), (True, FedAvg(local=FAST))]
    )
    def test_and_after_it(self, small, rising, weighted, other):
        settings = {"rounds": 4, "engine": "inline"}
        ocfl = ilk.run(OCFL(local=FAST, grouping=ONE, weighted=weighted), small, **settings)
        assert ocfl.state.clustered_at == 2
        assert ocfl.model_digest == ilk.run(other, small, **settings).model_digest
        assert ocfl.ledger.by_kind() == ilk.run(other, small, **settings).ledger.by_kind()

    def test_and_with_half_of_the_clients_a_round(self, small, rising):
        settings = {"rounds": 5, "cohort": 0.5, "engine": "inline"}
        ocfl = ilk.run(OCFL(local=FAST, grouping=ONE), small, **settings)
        fedopt = ilk.run(FedOpt(local=FAST, weighted=False), small, **settings)
        assert ocfl.model_digest == fedopt.model_digest


class TestAveraging:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_updates_of_the_round_of_clustering_count_in_the_clusters(self, small, rising, weighted):
        engine = Engine()
        run = ilk.run(OCFL(local=FAST, grouping=Says(0, 1, 1), weighted=weighted), small, rounds=2, engine=engine)
        assert run.state.cluster.tolist() == [0, 1, 1, 0, 1, 1]
        for z, members in ((0, [0, 3]), (1, [1, 2, 4, 5])):
            weights = small.sizes[members] if weighted else np.ones(len(members))
            expected = average([engine.models(2)[k] for k in members], weights)
            assert (run.state.models[z] == expected[0]).all()

    def test_a_cluster_of_which_nobody_answers_keeps_its_model(self, small, rising):
        engine = Engine(lambda round: [0, 3] if round == 3 else range(6))
        method = OCFL(local=FAST, grouping=Says(0, 1, 1))
        before = ilk.run(method, small, rounds=2, engine=Engine()).state.models
        module.temperature = heating([0.5, 0.6])
        after = ilk.run(method, small, rounds=3, engine=engine).state.models
        assert (after[1] == before[1]).all()
        assert not (after[0] == before[0]).all()

    def test_ledger(self, small, rising):
        """N P each way in every round; clustering costs nothing."""
        run = ilk.run(OCFL(local=FAST, grouping=Says(0, 1)), small, rounds=3, engine="inline")
        model = run.state.models.shape[1] * 4
        assert run.ledger.by_kind() == {"models": 3 * 6 * model, "model": 3 * 6 * model}


class TestWhoJoinsLater:
    """Clients 4 and 5 are silent in the round of clustering."""

    SILENT = staticmethod(lambda round: range(4) if round == 2 else range(6))

    def test_by_the_mean_distance(self, small, rising):
        engine = Engine(self.SILENT)
        method = OCFL(local=STRONG, grouping=Says(0, 1))
        run = ilk.run(method, small, rounds=3, engine=engine)
        assert run.state.cluster.tolist() == [0, 1] * 3
        start = engine.got[2][0][0].astype(np.float64)
        size = len(start)
        for k in (4, 5):
            row = int(engine.sent[3][k]["chosen"])
            own = engine.models(3)[k] - engine.got[3][k][row].astype(np.float64)
            mean = []
            for z in (0, 1):
                members = [i for i in range(4) if run.state.cluster[i] == z]
                theirs = [engine.models(2)[i] - start for i in members]
                cosines = [own @ d / np.linalg.norm(own) / np.linalg.norm(d) for d in theirs]
                mean.append(np.mean([1 - c for c in cosines]))
                trick = 1 - run.state.directions[z].astype(np.float64) @ own / np.linalg.norm(own)
                assert trick == pytest.approx(mean[-1], abs=1e-5)
            assert run.state.cluster[k] == int(np.argmin(mean))
        assert run.state.directions.shape == (2, size)

    def test_mean_distance_and_not_distance_to_the_mean(self):
        """By hand: cluster 0 holds a long and a short update; their directions count the same.

        Client 3 began from model 0 and moved by (1, 5), client 4 from model 1 by (4, -2).
        """
        base = np.zeros(2, np.float32)
        members = [np.array(v, np.float32) for v in ([100, 0], [0, 0.1], [3, 4])]
        lengths = np.array([100, 0.1, 5])
        directions = np.stack(
            [
                module._mean_direction(members, base, lengths, np.array([True, True, False])),
                module._mean_direction(members, base, lengths, np.array([False, False, True])),
            ]
        )
        np.testing.assert_allclose(directions, [[0.5, 0.5], [0.6, 0.8]], rtol=1e-6)
        state = OCFLState(np.array([[0, 0], [10, 10]], np.float32), np.array([0, 0, 1, -1, -1]), 0.5, 2, directions)
        answers = Answers(
            np.array([3, 4]),
            np.array([9, 9]),
            ({"model": np.array([1, 5], np.float32)}, {"model": np.array([14, 8], np.float32)}),
        )
        joined = module._attribute(state, answers, np.array([0, 1]), 2)
        assert joined.cluster.tolist() == [0, 0, 1, 1, 0]
        assert state.cluster.tolist() == [0, 0, 1, -1, -1]

    def test_what_they_trained_counts_for_the_model_that_they_chose(self, small, rising):
        engine = Engine(self.SILENT)
        run = ilk.run(OCFL(local=STRONG, grouping=Says(0, 1)), small, rounds=3, engine=engine)
        began = {k: int(m["chosen"]) if "chosen" in m else k % 2 for k, m in engine.sent[3].items()}
        assert {k for k, m in engine.sent[3].items() if "chosen" in m} == {4, 5}
        for z in (0, 1):
            members = [k for k in range(6) if began[k] == z]
            expected = average([engine.models(3)[k] for k in members], np.ones(len(members)))
            assert (run.state.models[z] == expected[0]).all()

    def test_they_are_sent_all_models_once(self, small, rising):
        engine = Engine(self.SILENT)
        ilk.run(OCFL(local=FAST, grouping=Says(0, 1)), small, rounds=4, engine=engine)
        assert [len(engine.got[3][k]) for k in range(6)] == [1, 1, 1, 1, 2, 2]
        assert [len(engine.got[4][k]) for k in range(6)] == [1] * 6


class TestCompare:
    def compared(self, small, monkeypatch, compare):
        models = types.ModuleType("my_models")
        models.normed = lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
        monkeypatch.setitem(sys.modules, "my_models", models)
        own, engine = Says(0, 1), Engine()
        settings = {"rounds": 2, "engine": engine, "model": "my_models:normed"}
        run = ilk.run(OCFL(local=FAST, grouping=own, compare=compare), small, **settings)
        updates = np.stack(list(engine.models(2).values())) - engine.got[2][0][0].astype(np.float64)
        return run, own.given[0], updates

    @pytest.mark.parametrize(("compare", "buffers"), [("trainable", 0), ("state", 64 * 2 + 1)])
    def test_trainable_parameters_or_the_whole_state(self, small, monkeypatch, rising, compare, buffers):
        run, given, updates = self.compared(small, monkeypatch, compare)
        trainable = 64 * 2 + 64 * 10 + 10
        assert run.state.models.shape[1] == trainable + 64 * 2 + 1
        part = updates[:, : trainable + buffers]
        np.testing.assert_allclose(given, cosine_distance(part @ part.T), atol=1e-5)
        assert run.state.directions.size == 0  # everybody was there: nobody is still to come

    def test_counters_drown_everything(self, small, monkeypatch, rising):
        """Why the released CIFAR-10 temperatures are about 1e-4 (F12)."""
        _, given, _ = self.compared(small, monkeypatch, "state")
        assert temperature(given) < 0.05


class TestRecovers:
    @pytest.mark.parametrize(
        "options", [{"grouping": "hdbscan"}, {"grouping": "kmeans", "k": 4}, {"grouping": "silhouette"}]
    )
    @pytest.mark.parametrize("split", ["rotate:4", "permute-labels:4"])
    def test_four_groups(self, split, options):
        federation = ilk.federation("digits", split=split, clients=12)
        run = ilk.run(OCFL(local=STRONG, **options), federation, rounds=3, engine="inline", eval_every=3)
        assert run.state.clustered_at == 2
        assert run.last["ari"] == 1

    def test_affinity_with_the_right_sign(self):
        federation = ilk.federation("digits", split="permute-labels:4", clients=12)
        run = ilk.run(OCFL(local=STRONG, grouping="affinity"), federation, rounds=3, engine="inline", eval_every=3)
        assert run.last["ari"] == 1

    def test_hdbscan_leaves_iid_clients_together(self):
        federation = ilk.federation("digits", split="iid", clients=12)
        run = ilk.run(OCFL(local=STRONG), federation, rounds=3, engine="inline", eval_every=3)
        assert run.state.clustered_at == 2
        assert run.state.cluster.tolist() == [0] * 12

    def test_half_of_the_clients_a_round(self):
        """Who is not in the round of clustering joins the right cluster, too."""
        federation = ilk.federation("digits", split="permute-labels:2", clients=12)
        method = OCFL(local=STRONG, grouping="kmeans", k=2)
        run = ilk.run(method, federation, rounds=8, cohort=0.5, engine="inline", eval_every=8)
        assert run.state.clustered_at
        assert run.state.cluster.min() == 0, "everybody has been asked by now"
        assert run.last["ari"] == 1

    def test_beats_fedopt(self, small):
        settings = {"rounds": 3, "engine": "inline", "eval_every": 3}
        ocfl = ilk.run(OCFL(local=STRONG, grouping="silhouette"), small, **settings)
        assert ocfl.accuracy > ilk.run(FedOpt(local=STRONG, weighted=False), small, **settings).accuracy + 0.2


class TestMemory:
    """30 clients x 25 million parameters must fit in 4 GiB: 1.4 times their updates. Here at a fiftieth of the size."""

    CLIENTS, SIZE, BLOCK = 30, 500_000, (1 << 18) // 50

    def peak(self, work):
        """Return the largest memory that is held while `work` runs on all clients' models, in units of these models."""
        tracemalloc.start()
        try:
            models = [np.full(self.SIZE, k, np.float32) for k in range(self.CLIENTS)]
            updates = tracemalloc.get_traced_memory()[0]
            assert updates > self.CLIENTS * self.SIZE * 4
            work(models)
            return tracemalloc.get_traced_memory()[1] / updates
        finally:
            tracemalloc.stop()

    def test_of_the_gram_matrix(self):
        base = np.zeros(self.SIZE, np.float32)
        assert self.peak(lambda models: gram(models, base, self.BLOCK)) < 1.1

    def test_of_averaging_in_clusters(self):
        old, cluster, ones = np.zeros((3, self.SIZE), np.float32), np.arange(self.CLIENTS) % 3, np.ones(self.CLIENTS)
        assert self.peak(lambda models: average_clusters(old, models, cluster, ones)) < 1.25

    def test_of_the_round_of_clustering(self, monkeypatch):
        monkeypatch.setattr(module, "gram", lambda models, base: gram(models, base, self.BLOCK))
        method, everyone = OCFL(grouping=Says(0, 1, 2)), np.arange(self.CLIENTS)
        server = types.SimpleNamespace(
            initial_model=np.full(self.SIZE, 0.5, np.float32),
            everyone=everyone,
            net=types.SimpleNamespace(trainable=self.SIZE),
            round=2,
            stream=lambda purpose: np.random.default_rng(0),
            report=lambda **values: None,
        )
        before = replace(method.start(server), temperature=0.0)
        after = []

        def play(models):
            messages = tuple({"model": model} for model in models)
            server.ask = lambda *question: Answers(everyone, np.ones(self.CLIENTS), messages)
            after.append(method.round(server, before, everyone))

        used = self.peak(play)
        assert after[0].clustered_at == 2
        assert used < 1.4


def test_k_is_for_kmeans_only():
    assert OCFL(grouping="kmeans", k=4).k == 4
    with pytest.raises(ilk.IlkError, match="k = 4 is for grouping = 'kmeans' only"):
        OCFL(k=4)


def test_the_temperature_is_a_column_of_the_history(small):
    run = ilk.run(OCFL(local=FAST), small, rounds=2, engine="inline")
    assert (
        run.history["temperature"][0] == ilk.run(OCFL(local=FAST), small, rounds=1, engine="inline").state.temperature
    )
    assert all(0 < t < 1 for t in run.history["temperature"] if t is not None)


def test_a_cluster_of_hdbscan_has_at_least_a_fifth_of_the_clients():
    """6 of 30 and 3 of 15, rounded up: a tight group one client smaller is noise."""
    for clients, least in ((30, 6), (15, 3), (13, 3)):
        for size in (least, least - 1):
            far = np.full((clients, clients), 10.0)
            far[:size, :size] = 0.1
            far[size : 2 * least + 1, size : 2 * least + 1] = 0.1
            np.fill_diagonal(far, 0)
            labels = group(far, "hdbscan", None, "pooled", 0)
            together = len(set(labels[:size])) == 1 and labels[0] not in labels[size : 2 * least + 1]
            assert together == (size == least), (clients, size)


def test_options(documented):
    assert documented(OCFL) == {
        "grouping": "hdbscan",
        "k": None,
        "noise": "nearest",
        "compare": "trainable",
        "weighted": False,
    }
