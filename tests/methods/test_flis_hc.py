import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

import ilk
from ilk.clusters.agreement import inference_agreement
from ilk.methods.fedavg import FedAvg
from ilk.methods.flis_hc import FLISHierarchical as FLIS
from ilk.params import average

FAST = ilk.LocalSGD(epochs=1)
STRONG = ilk.LocalSGD(epochs=3, lr=0.05)
LONG = ilk.LocalSGD(epochs=10, lr=0.05)


def federation(split="permute-labels:2", clients=6, seed=0):
    return ilk.federation("digits", split=split, clients=clients, seed=seed, auxiliary=100)


@pytest.fixture(scope="module")
def small():
    return federation()


class Engine:
    """An engine on which only some answer, as (round, how often asked in it) says, and that keeps what was sent."""

    def __init__(self, answers=lambda round, ask: range(99)):
        self.inner, self.answers, self.name = ilk.Inline(), answers, "inline"
        self.asked, self.sent, self.got = {}, {}, {}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def memories(self):
        return self.inner.memories

    def ask(self, task, messages, round):
        measuring = type(task).__name__ == "Evaluate"
        if not measuring:
            self.asked[round] = self.asked.get(round, 0) + 1
            time = round, self.asked[round]
            self.got[time] = {k: message["models"] for k, message in messages.items()}
        for answer in self.inner.ask(task, messages, round):
            if measuring:
                yield answer
            elif answer.client in self.answers(*time):
                self.sent.setdefault(time, {})[answer.client] = answer.message["model"]
                yield answer


class TestFedAvg:
    @pytest.mark.parametrize("cohort", [1.0, 0.5])
    @pytest.mark.parametrize("options", [{"threshold": 1.01}, {"threshold": 1e9, "linkage": "single"}, {"clusters": 1}])
    def test_one_cluster_is_fedavg_bit_for_bit(self, small, options, cohort):
        """The models of the warm-up are thrown away: clusters begin from the initial model."""
        settings = {"rounds": 3, "cohort": cohort, "engine": "inline"}
        flis = ilk.run(FLIS(local=FAST, **options), small, **settings)
        assert flis.model_digest == ilk.run(FedAvg(local=FAST), small, **settings).model_digest

    def test_one_cluster_for_each_client_is_solo(self, small):
        run = ilk.run(FLIS(local=FAST, clusters=6), small, rounds=3, engine="inline")
        solo = ilk.run(ilk.methods.method_class("solo")(local=FAST), small, rounds=3, engine="inline")
        assert run.state.cluster.tolist() == list(range(6))
        assert all(
            (model == memory["model"]).all() for model, memory in zip(run.state.models, solo.memories, strict=True)
        )

    def test_more_clusters_than_clients(self, small):
        assert ilk.run(FLIS(local=FAST, clusters=50), small, rounds=1, engine="inline").state.cluster.max() == 5

    def test_one_client(self):
        run = ilk.run(FLIS(local=FAST), federation("iid", 1), rounds=1, engine="inline")
        assert run.state.cluster.tolist() == [0]


def test_ledger_has_the_warm_up(small):
    """m P each way in a round, and 2 N P once (methods.md 1.5)."""
    run = ilk.run(FLIS(local=FAST, clusters=2), small, rounds=3, cohort=2, engine="inline")
    model = run.state.models.shape[1] * 4
    assert run.ledger.by_kind() == {"models": (6 + 3 * 2) * model, "model": (6 + 3 * 2) * model}
    assert sum(entry.bytes for entry in run.ledger.entries if entry.round == 0) == 2 * 6 * model


def test_needs_data_of_the_servers_own():
    with pytest.raises(ilk.IlkError, match="auxiliary"):
        ilk.run(FLIS(local=FAST), ilk.federation("digits", clients=4), rounds=1, engine="inline")


class TestClustering:
    def warm_up(self, federation):
        """Return the warm-up's models, and their agreement on the server's samples, by hand."""
        engine = Engine()
        state = ilk.run(FLIS(local=STRONG), federation, rounds=1, engine=engine).state
        models = np.stack([engine.sent[0, 1][k] for k in range(len(federation.ids))])
        x = federation.read_auxiliary().reshape(-1, 64).astype(np.float64)
        a, b, c, d = np.split(models.astype(np.float64), np.cumsum([64 * 64, 64, 64 * 10]), axis=1)
        said = [
            np.argmax(np.maximum(x @ w.reshape(64, 64).T + v, 0) @ u.reshape(10, 64).T + t, axis=1)
            for w, v, u, t in zip(a, b, c, d, strict=True)
        ]
        return state, np.stack(said)

    def test_predictions_are_those_of_everybodys_first_models(self, small):
        state, said = self.warm_up(small)
        assert (state.predictions != said).mean() < 0.005
        assert len(small.read_auxiliary()) == said.shape[1] == 100

    @pytest.mark.parametrize(
        ("ours", "scipys"),
        [("upgma", "average"), ("wpgma", "weighted"), ("complete", "complete"), ("single", "single")],
    )
    def test_clusters_are_scipys_of_the_disagreement(self, ours, scipys):
        eight = federation("rotate:4", 8)
        state, _ = self.warm_up(eight)
        merges = linkage(squareform(1 - inference_agreement(state.predictions), checks=False), scipys)
        limit = float(merges[3, 2] + merges[4, 2]) / 2
        run = ilk.run(FLIS(local=STRONG, threshold=limit, linkage=ours), eight, rounds=1, engine="inline")
        expected, found = fcluster(merges, limit, "distance"), run.state.cluster
        assert 1 < found.max() + 1 < 8
        assert ((found[:, None] == found) == (expected[:, None] == expected)).all()

    def test_clusters_win_over_a_threshold(self, small):
        run = ilk.run(FLIS(local=FAST, clusters=3, threshold=1e9), small, rounds=1, engine="inline")
        assert run.state.cluster.max() + 1 == 3

    def test_every_cluster_begins_from_the_initial_model(self, small):
        engine = Engine()
        ilk.run(FLIS(local=STRONG, clusters=3), small, rounds=1, engine=engine)
        start = engine.got[0, 1][0]
        assert all(len(models) == 1 and (models == start).all() for models in engine.got[1, 1].values())

    def test_averages_within_clusters_by_samples(self, small):
        engine = Engine()
        run = ilk.run(FLIS(local=STRONG), small, rounds=1, engine=engine)
        assert run.state.cluster.tolist() == [0, 1] * 3
        for z, members in ((0, [0, 2, 4]), (1, [1, 3, 5])):
            expected = average([engine.sent[1, 1][k] for k in members], small.sizes[members])
            assert (run.state.models[z] == expected[0]).all()

    def test_a_cluster_of_which_nobody_was_asked_keeps_its_model(self, small):
        run = ilk.run(FLIS(local=FAST, clusters=6), small, rounds=1, cohort=2, engine="inline")
        untouched = ilk.run(FLIS(local=FAST, clusters=6), small, rounds=1, cohort=1, engine="inline").state.models
        assert len({model.tobytes() for model in run.state.models}) == 3
        assert len({model.tobytes() for model in untouched}) == 2


class TestRecovers:
    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize(("split", "clients"), [("permute-labels:2", 6), ("permute-labels:4", 12)])
    def test_permuted_labels_by_the_largest_gap(self, split, clients, seed):
        planted = federation(split, clients, seed)
        run = ilk.run(FLIS(local=STRONG), planted, rounds=1, engine="inline")
        assert run.state.cluster.tolist() == planted.groups.tolist()

    @pytest.mark.parametrize("seed", range(2))
    def test_rotations_only_after_long_training_and_with_their_number(self, seed):
        """Models turned the other way round say similar things about upright digits: the signal is weak."""
        planted = ilk.federation("digits", split="rotate:4", clients=12, seed=seed, auxiliary=100)
        run = ilk.run(FLIS(local=LONG, clusters=4), planted, rounds=1, engine="inline", eval_every=1)
        assert run.last["ari"] > 0.9

    def test_beats_fedavg(self, small):
        settings = {"rounds": 3, "engine": "inline", "eval_every": 3}
        flis = ilk.run(FLIS(local=STRONG), small, **settings)
        assert flis.accuracy > ilk.run(FedAvg(local=STRONG), small, **settings).accuracy + 0.2


class TestNewcomers:
    """Who did not answer at the start trains from the initial model when it is first asked, and joins by agreement."""

    def test_join_the_cluster_with_the_highest_mean_agreement(self, small):
        engine = Engine(lambda round, ask: range(4) if round == 0 else range(6))
        run = ilk.run(FLIS(local=STRONG), small, rounds=1, engine=engine)
        assert run.state.cluster.tolist() == [0, 1] * 3
        assert set(engine.got[1, 1]) == {4, 5}
        assert (engine.got[1, 1][4] == engine.got[0, 1][0]).all(), "they are sent the initial model first"
        agreement = inference_agreement(run.state.predictions)
        for k, own, other in ((4, [0, 2], [1, 3]), (5, [1, 3], [0, 2])):
            assert agreement[k, own].mean() > agreement[k, other].mean()

    def test_mean_and_not_best_agreement_decides(self):
        """Worked out by hand: the newcomer agrees 1.0 and 0.0 with cluster 0, 0.75 with each of cluster 1."""
        from ilk.methods.flis_hc import FLISHCState

        said = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 2], [0, 0, 2, 0], [-1] * 4])
        state = FLISHCState(np.zeros((2, 3), np.float32), np.array([0, 0, 1, 1, -1]), said)
        after = FLIS()._welcome(Stub(np.array([[0, 0, 0, 0]])), state, np.array([4]))
        assert after.cluster.tolist() == [0, 0, 1, 1, 1]
        assert after.predictions[4].tolist() == [0, 0, 0, 0]
        assert state.cluster[4] == -1, "the state before is left as it was"

    def test_train_in_their_cluster_in_the_same_round(self, small):
        engine = Engine(lambda round, ask: range(5) if round == 0 else range(6))
        run = ilk.run(FLIS(local=STRONG), small, rounds=1, engine=engine)
        expected = average([engine.sent[1, 2][k] for k in (1, 3, 5)], small.sizes[[1, 3, 5]])
        assert (run.state.models[1] == expected[0]).all()

    def test_are_welcomed_once(self, small):
        engine = Engine(lambda round, ask: range(5) if round == 0 else range(6))
        run = ilk.run(FLIS(local=FAST, clusters=2), small, rounds=3, engine=engine)
        assert engine.asked == {0: 1, 1: 2, 2: 1, 3: 1}
        model = run.state.models.shape[1] * 4
        assert run.ledger.by_kind()["models"] == (6 + 3 * 6 + 1) * model

    def test_who_is_silent_again_is_asked_again(self, small):
        """Round 1: its welcome is lost, so it is in no cluster to train with. Round 2: it joins."""
        engine = Engine(lambda round, ask: range(5) if round == 0 or (round, ask) == (1, 1) else range(6))
        run = ilk.run(FLIS(local=STRONG), small, rounds=1, engine=engine)
        assert run.state.cluster.tolist() == [0, 1, 0, 1, 0, -1]
        assert 5 not in engine.got[1, 2]
        for z, members in ((0, [0, 2, 4]), (1, [1, 3])):
            expected = average([engine.sent[1, 2][k] for k in members], small.sizes[members])
            assert (run.state.models[z] == expected[0]).all()
        engine = Engine(engine.answers)
        assert ilk.run(FLIS(local=STRONG), small, rounds=2, engine=engine).state.cluster[5] == 1

    def test_nobody_at_all_at_the_start_is_an_error(self, small):
        with pytest.raises(ilk.IlkError, match="No client answered"):
            ilk.run(FLIS(local=FAST), small, rounds=1, engine=Engine(lambda round, ask: []))


class Stub:
    """A server whose models say what the test says they say."""

    initial_model = np.zeros(3, np.float32)

    def __init__(self, says):
        self.says = says

    def ask(self, task, clients, send):
        class First:
            models = [None] * len(clients)

        First.clients = clients
        return First

    def predict(self, models):
        return self.says


class TestOlderCode:
    def test_ward_of_the_rows_of_the_agreement(self):
        eight = federation("rotate:4", 8)
        state = ilk.run(FLIS(local=STRONG, linkage="ward-of-rows", clusters=3), eight, rounds=1, engine="inline").state
        expected = fcluster(linkage(inference_agreement(state.predictions), "ward"), 3, "maxclust")
        assert ((state.cluster[:, None] == state.cluster) == (expected[:, None] == expected)).all()
        assert state.cluster.max() == 2

    def test_a_first_training_of_its_own_length(self, small):
        """One epoch at first: predictions are those of a run with one epoch, rounds have all three."""
        engine = Engine()
        short = ilk.run(FLIS(local=STRONG, first_epochs=1, clusters=1), small, rounds=1, engine=engine)
        once = ilk.run(FLIS(local=ilk.LocalSGD(epochs=1, lr=0.05), clusters=1), small, rounds=1, engine="inline")
        usual = ilk.run(FLIS(local=STRONG, clusters=1), small, rounds=1, engine="inline")
        assert (short.state.predictions == once.state.predictions).all()
        assert not (short.state.predictions == usual.state.predictions).all()
        assert (short.state.models == usual.state.models).all()


def test_options(documented):
    assert documented(FLIS) == {
        "threshold": "gap",
        "clusters": None,
        "linkage": "upgma",
        "first_epochs": None,
    }
