import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from torch import nn

import ilk
from ilk import models
from ilk.clusters import linkage as tree
from ilk.methods.briggs import Briggs
from ilk.methods.fedavg import FedAvg
from ilk.params import average

FAST = ilk.LocalSGD(epochs=1)
STRONG = ilk.LocalSGD(epochs=3, lr=0.05)
ALL = 1e9  # a threshold up to which everybody joins


@pytest.fixture(scope="module")
def small():
    return ilk.federation("digits", split="permute-labels:2", clients=6)


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


class TestFedAvg:
    @pytest.mark.parametrize(
        ("metric", "link"), [("cosine", "upgma"), ("euclidean", "complete"), ("manhattan", "single")]
    )
    def test_an_endless_threshold_is_fedavg(self, small, metric, link):
        settings = {"rounds": 3, "engine": "inline"}
        method = Briggs(local=FAST, at_round=2, threshold=ALL, metric=metric, linkage=link)
        assert ilk.run(method, small, **settings).model_digest == (
            ilk.run(FedAvg(local=FAST), small, **settings).model_digest
        )

    def test_but_everybody_is_asked_in_the_round_of_clustering(self, small, monkeypatch):
        """With cohorts of 2 it is FedAvg whose second cohort is everybody."""
        settings = {"rounds": 3, "cohort": 2, "engine": "inline"}
        briggs = ilk.run(Briggs(local=FAST, at_round=2, threshold=ALL), small, **settings)
        from ilk.runs.run import cohort_of

        monkeypatch.setattr(
            "ilk.runs.run.cohort_of",
            lambda round, n, cohort, seed: np.arange(n) if round == 2 else cohort_of(round, n, cohort, seed),
        )
        fedavg = ilk.run(FedAvg(local=FAST), small, **settings)
        assert briggs.model_digest == fedavg.model_digest
        assert briggs.ledger.by_kind() == fedavg.ledger.by_kind()

    @pytest.mark.parametrize("cohort", [1.0, 0.5])
    def test_before_the_round_of_clustering(self, small, cohort):
        settings = {"rounds": 3, "cohort": cohort, "engine": "inline"}
        briggs = ilk.run(Briggs(local=FAST, at_round=4, threshold=0), small, **settings)
        assert briggs.model_digest == ilk.run(FedAvg(local=FAST), small, **settings).model_digest

    def test_threshold_zero_is_everybody_alone(self, small):
        run = ilk.run(Briggs(local=FAST, at_round=1, threshold=0), small, rounds=2, engine="inline")
        solo = ilk.run(ilk.methods.method_class("solo")(local=FAST), small, rounds=2, engine="inline")
        assert run.state.cluster.tolist() == list(range(6))
        assert all(
            (model == memory["model"]).all() for model, memory in zip(run.state.models, solo.memories, strict=True)
        )


def test_ledger_counts_everybody_in_the_round_of_clustering(small):
    """m P each way in a round, and N P each way in the round of clustering (methods.md 1.5)."""
    run = ilk.run(Briggs(local=FAST, at_round=2), small, rounds=3, cohort=2, engine="inline")
    model = run.state.models.shape[1] * 4
    assert run.ledger.by_kind() == {"models": (2 + 6 + 2) * model, "model": (2 + 6 + 2) * model}


class TestRecovers:
    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("split", ["rotate:4", "permute-labels:4"])
    def test_four_groups(self, split, seed):
        federation = ilk.federation("digits", split=split, clients=12, seed=seed)
        method = Briggs(local=STRONG, at_round=2, threshold=0.5)
        run = ilk.run(method, federation, rounds=2, cohort=0.5, engine="inline", eval_every=2)
        assert run.state.cluster.tolist() == [0, 1, 2, 3] * 3

    def test_beats_fedavg(self, small):
        settings = {"rounds": 3, "engine": "inline", "eval_every": 3}
        briggs = ilk.run(Briggs(local=STRONG, at_round=1, threshold=0.5), small, **settings)
        assert briggs.accuracy > ilk.run(FedAvg(local=STRONG), small, **settings).accuracy + 0.2

    @pytest.mark.parametrize("metric", ["cosine", "euclidean", "manhattan"])
    def test_distances_put_the_alike_together_and_not_the_unlike(self, small, metric):
        """Fed similarities, a clustering puts one client of each group together (F13)."""
        run, distance = clustered(small, metric, "upgma", lambda heights: heights[-2])
        cluster = run.state.cluster
        together = cluster[:, None] == cluster
        assert together.sum() > 6
        assert distance[together & ~np.eye(6, dtype=bool)].max() < distance[~together].mean()
        assert (small.groups[:, None] == small.groups)[together].all()

    def test_ocfls_mistake_puts_the_unlike_together(self, small):
        method = Briggs(local=STRONG, at_round=1, metric="similarity", threshold=0.3)
        cluster = ilk.run(method, small, rounds=1, engine="inline").state.cluster
        assert sorted(np.bincount(cluster).tolist()) == [2, 2, 2]
        assert all(set(small.groups[cluster == z]) == {0, 1} for z in range(3)), "one of each group, as published"


def clustered(federation, metric, link, threshold, at_round=1):
    """Run until the clustering, with a threshold taken from SciPy's merge heights of the updates that crossed."""
    engine = Engine()
    ilk.run(Briggs(local=STRONG, at_round=99), federation, rounds=at_round, engine=engine)
    start = next(iter(engine.got[at_round].values()))[0].astype(np.float64)
    updates = np.stack([message["model"] for message in engine.sent[at_round].values()]) - start
    pairs = pdist(updates, {"cosine": "cosine", "euclidean": "euclidean", "manhattan": "cityblock"}[metric])
    merges = linkage(pairs, {"upgma": "average", "wpgma": "weighted"}.get(link, link))
    limit = float(threshold(merges[:, 2])) * (1 + 1e-6)
    method = Briggs(local=STRONG, at_round=at_round, metric=metric, linkage=link, threshold=limit)
    run = ilk.run(method, federation, rounds=at_round, engine="inline")
    expected = fcluster(merges, limit, "distance")
    same = run.state.cluster[:, None] == run.state.cluster
    assert (same == (expected[:, None] == expected)).all()
    from scipy.spatial.distance import squareform

    return run, squareform(pairs)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "manhattan"])
@pytest.mark.parametrize("link", ["upgma", "wpgma", "complete", "single"])
def test_the_clusters_are_scipys(small, metric, link):
    run, _ = clustered(small, metric, link, lambda heights: heights[2])
    assert run.state.cluster.max() + 1 == 3


def test_updates_are_from_the_model_of_the_round_of_clustering(small):
    """Cosines of theta_k - theta, not of theta_k, and theta is not the initial model."""
    run, _ = clustered(small, "cosine", "upgma", lambda heights: heights[1], at_round=3)
    assert 1 < run.state.cluster.max() + 1 < 6


def test_this_rounds_models_are_averaged_in_the_clusters_by_samples(small):
    engine = Engine()
    run = ilk.run(Briggs(local=STRONG, at_round=1, threshold=0.5), small, rounds=1, engine=engine)
    assert run.state.cluster.tolist() == [0, 1] * 3
    for z in range(2):
        members = np.flatnonzero(run.state.cluster == z)
        expected = average([engine.sent[1][k]["model"] for k in members], small.sizes[members])
        assert (run.state.models[z] == expected[0]).all()


def test_clusters_are_found_once(small):
    once = ilk.run(Briggs(local=STRONG, at_round=1, threshold=0.5), small, rounds=1, engine="inline").state
    later = ilk.run(Briggs(local=STRONG, at_round=1, threshold=0.5), small, rounds=4, cohort=0.5, engine="inline").state
    assert (once.cluster == later.cluster).all()


class TestWhoDidNotAnswer:
    METHOD = Briggs(local=STRONG, at_round=1, threshold=0.5)

    def test_chooses_among_the_models_and_counts_for_the_chosen(self, small):
        """Client 5 is silent in the round of clustering. Its group's model fits it best, and its answer enters there."""
        engine = Engine(lambda round: range(5) if round == 1 else range(6))
        run = ilk.run(self.METHOD, small, rounds=2, engine=engine)
        assert run.state.cluster.tolist() == [0, 1, 0, 1, 0, -1]
        assert len(engine.got[2][5]) == 2
        assert int(engine.sent[2][5]["chosen"]) == 1
        for z, members in ((0, [0, 2, 4]), (1, [1, 3, 5])):
            expected = average([engine.sent[2][k]["model"] for k in members], small.sizes[members])
            assert (run.state.models[z] == expected[0]).all()
        assert run.last["cluster_by_client"] == [0, 1, 0, 1, 0, 1], "and it is measured with the model it chooses"

    def test_is_charged_for_the_models_it_is_sent(self, small):
        engine = Engine(lambda round: range(5) if round == 1 else range(6))
        run = ilk.run(self.METHOD, small, rounds=2, engine=engine)
        model = run.state.models.shape[1] * 4
        assert run.ledger.by_kind() == {"models": (6 + 5 + 2) * model, "model": (5 + 6) * model, "chosen": 4}

    def test_counts_where_there_is_one_cluster_only(self, small):
        engine = Engine(lambda round: range(5) if round == 1 else range(6))
        run = ilk.run(Briggs(local=FAST, at_round=1, threshold=ALL), small, rounds=2, engine=engine)
        expected = average([engine.sent[2][k]["model"] for k in range(6)], small.sizes)
        assert (run.state.models == expected).all()

    def test_a_void_round_of_clustering_is_made_up_for(self, small):
        engine = Engine(lambda round: [] if round == 1 else range(6))
        run = ilk.run(self.METHOD, small, rounds=2, engine=engine)
        assert run.state.cluster.tolist() == [0, 1] * 3


def normed(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))


@pytest.mark.parametrize(("compare", "buffers"), [("trainable", 0), ("state", 64 * 2 + 1)])
def test_trainable_parameters_or_the_whole_state(small, monkeypatch, compare, buffers):
    """The heights of the tree are those of the cosines of what is compared; buffers change them."""
    monkeypatch.setitem(models.MODELS, "normed", normed)
    engine, seen = Engine(), []
    monkeypatch.setattr(tree, "cut_at", lambda merges, threshold: seen.append(merges) or np.zeros(6, np.int64))
    ilk.run(Briggs(local=FAST, at_round=1, compare=compare), small, rounds=1, engine=engine, model="normed")
    start = engine.got[1][0][0].astype(np.float64)
    updates = np.stack([engine.sent[1][k]["model"] for k in range(6)]) - start
    part = updates[:, : 64 * 2 + 64 * 10 + 10 + buffers]
    np.testing.assert_allclose(seen[0][:, 2], linkage(pdist(part, "cosine"), "average")[:, 2], atol=1e-5)


def test_without_weights_it_is_the_plain_mean(small):
    engine = Engine()
    run = ilk.run(Briggs(local=FAST, at_round=9, weighted=False), small, rounds=1, engine=engine)
    assert (run.state.models == average([engine.sent[1][k]["model"] for k in range(6)], np.ones(6))).all()


def test_options(documented):
    assert documented(Briggs) == {
        "at_round": 20,
        "metric": "cosine",
        "linkage": "upgma",
        "threshold": 0.05,
        "compare": "trainable",
        "weighted": True,
    }
