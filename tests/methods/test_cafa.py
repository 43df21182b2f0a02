import numpy as np
import pytest

import ilk
from ilk.clusters.kmeans import best_silhouette
from ilk.methods.cafa import ABFA, CAFA, CBCC
from ilk.methods.fedopt import FedOpt
from ilk.params import average

FAST = ilk.LocalSGD(epochs=1)


@pytest.fixture(scope="module")
def small():
    return ilk.federation("digits", split="label-skew:0.3", clients=6)


@pytest.fixture(scope="module")
def mixed():
    """Ten IID clients, then ten of one label each, of different sizes."""
    return made([np.tile(np.arange(10), 4 + k % 3) for k in range(10)] + [np.full(30 + k, k) for k in range(10)])


def made(labels):
    """Return a federation whose clients have these labels for training and validation, in this order."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(10, 8))
    clients = {}
    for k, y in enumerate(labels):
        x = centres[y] + random.normal(0, 0.3, (len(y), 8))
        clients[f"c{k:02}"] = (x, y, x[:3], y[:3])
    return ilk.from_arrays(clients)


class Engine:
    """An engine on which only those answer whom the test lets, and that keeps what crossed."""

    def __init__(self, answers=lambda task, round: range(99)):
        self.inner, self.answers, self.name = ilk.Inline(), answers, "inline"
        self.log = []  # task, round, client, message, answer

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def memories(self):
        return self.inner.memories

    def ask(self, task, messages, round):
        name = type(task).__name__
        for answer in self.inner.ask(task, messages, round):
            if name == "Evaluate" or answer.client in self.answers(name, round):
                self.log.append((name, round, answer.client, messages[answer.client], answer.message))
                yield answer

    def of(self, *names, round=1):
        return {client: (send, got) for name, t, client, send, got in self.log if name in names and t == round}

    def models(self, round=1):
        return {k: got["model"] for k, (_, got) in self.of("Fit", "FitAndHold", round=round).items()}

    def judgements(self, round=1):
        return {k: got["accuracies"] for k, (_, got) in self.of("Judge", round=round).items()}


def judged_by_hand(federation, model, client):
    """The accuracy of an MLP's vector on a client's validation data, in NumPy."""
    x, y = federation.read(client, "validation")
    x = x.reshape(len(x), -1).astype(np.float64)
    d, c = x.shape[1], federation.classes
    w, v, u, t = np.split(model.astype(np.float64), np.cumsum([64 * d, 64, 64 * c]))
    said = np.argmax(np.maximum(x @ w.reshape(64, d).T + v, 0) @ u.reshape(c, 64).T + t, axis=1)
    return (said == y).mean()


class TestLabels:
    def test_histograms_are_of_all_that_is_not_for_testing(self, mixed):
        engine = Engine()
        ilk.run(CBCC(local=FAST), mixed, rounds=1, engine=engine)
        sent = {k: got["histogram"] for k, (_, got) in engine.of("Histogram", round=0).items()}
        assert sent[0].tolist() == [4] * 10
        assert sent[13].tolist() == [0, 0, 0, 33, 0, 0, 0, 0, 0, 0]
        assert sent[0].dtype == np.float32

    def test_finds_the_iid_clients(self, mixed):
        """The ten IID clients are one cluster, each one-label client is alone: the silhouette says eleven."""
        state = ilk.run(CAFA(local=FAST), mixed, rounds=1, engine="inline").state
        assert state.iid.tolist() == [True] * 10 + [False] * 10
        assert state.label_cluster.tolist() == [0] * 10 + list(range(1, 11))
        np.testing.assert_allclose(state.usual, [10 / 20] * 10 + [1 / 20] * 10)

    def test_shares_are_compared_and_not_counts(self):
        """Clients of 10 and of 60 samples with equal shares are alike."""
        two = made([np.tile([0, 1], n) for n in (5, 30, 8)] + [np.tile([2, 3], n) for n in (5, 30)])
        state = ilk.run(CBCC(local=FAST), two, rounds=1, engine="inline").state
        assert state.label_cluster.tolist() == [0, 0, 0, 1, 1]
        np.testing.assert_allclose(state.usual, [3 / 5] * 3 + [2 / 5] * 2)

    def test_weights_by_hand(self):
        """Clusters of 3 and 2 of 5 clients: 3/5, 3/5, 3/5, 2/5, 2/5; the clients' sizes do not enter."""
        two = made([np.tile([0, 1], n) for n in (5, 30, 8)] + [np.tile([2, 3], n) for n in (5, 30)])
        engine = Engine()
        run = ilk.run(CBCC(local=FAST), two, rounds=1, engine=engine)
        expected = np.array([3, 3, 3, 2, 2]) / 13 @ np.stack([engine.models()[k] for k in range(5)]).astype(np.float64)
        np.testing.assert_allclose(run.state.models[0], expected, rtol=1e-5, atol=1e-8)

    def test_weights_are_those_of_the_whole_federation_over_the_cohort(self, mixed):
        engine = Engine()
        run = ilk.run(CBCC(local=FAST), mixed, rounds=1, cohort=6, engine=engine)
        models = engine.models()
        weights = [10 if k < 10 else 1 for k in models]
        assert len(models) == 6
        assert len(set(weights)) == 2
        # its weights are 10/20 and 1/20, which double precision rounds: the last bit of a float may differ
        np.testing.assert_array_max_ulp(run.state.models, average(list(models.values()), weights), maxulp=1)

    def test_k_can_be_fixed(self, mixed):
        state = ilk.run(CBCC(local=FAST, k=2), mixed, rounds=1, engine="inline").state
        assert state.label_cluster.max() + 1 == 2
        assert ilk.run(CBCC(local=FAST, k=500), mixed, rounds=1, engine="inline").state.label_cluster.max() + 1 <= 20

    def test_who_sends_no_histogram_weighs_like_the_smallest_cluster(self):
        two = made([np.tile([0, 1], n) for n in (5, 30, 8)] + [np.tile([2, 3], n) for n in (5, 30)] + [np.arange(10)])
        engine = Engine(lambda task, round: range(5) if round == 0 else range(6))
        run = ilk.run(CBCC(local=FAST), two, rounds=1, engine=engine)
        assert run.state.label_cluster.tolist() == [0, 0, 0, 1, 1, -1]
        np.testing.assert_allclose(run.state.usual, np.array([3, 3, 3, 2, 2, 2]) / 6)
        assert not run.state.iid[5]
        assert (run.state.models == average(list(engine.models().values()), [3, 3, 3, 2, 2, 2])).all()

    def test_one_cluster_is_the_plain_mean(self):
        """All histograms are equal, so all weigh the same: FedOpt's sgd without weights, bit for bit."""
        same = made([np.tile(np.arange(4), n) for n in (3, 10, 6)])
        cbcc = ilk.run(CBCC(local=FAST), same, rounds=3, engine="inline")
        plain = ilk.run(FedOpt(local=FAST, weighted=False), same, rounds=3, engine="inline")
        assert cbcc.state.label_cluster.tolist() == [0, 0, 0]
        assert cbcc.model_digest == plain.model_digest


class TestAccuracies:
    def test_everybody_judges_its_own_model_first_and_all_others(self, small):
        engine = Engine()
        ilk.run(ABFA(local=FAST), small, rounds=1, cohort=4, engine=engine)
        models, judgements = engine.models(), engine.judgements()
        assert len(models) == 4
        for j, said in judgements.items():
            order = [j, *(i for i in models if i != j)]
            np.testing.assert_allclose(said, [judged_by_hand(small, models[i], j) for i in order], atol=1e-6)
            sent = engine.of("Judge")[j][0]["peer_models"]
            assert (sent == np.stack([models[i] for i in order[1:]])).all()

    def test_weights_by_hand(self, small, monkeypatch):
        """A_i = sum_j a_ij S_j / sum_j S_j with given accuracies."""
        given = np.random.default_rng(0).uniform(size=(6, 6)).astype(np.float32)  # model x judge
        run, engine = judging(monkeypatch, small, given)
        a = given.astype(np.float64) @ small.sizes / small.sizes.sum()
        expected = (a / a.sum()) @ np.stack([engine.models()[k] for k in range(6)]).astype(np.float64)
        np.testing.assert_allclose(run.state.models[0], expected, rtol=1e-5, atol=1e-8)

    def test_sizes_of_the_judges_matter_and_of_the_judged_do_not(self, monkeypatch):
        two = made([np.tile([0, 1], 50), np.tile([0, 1], 10)])
        run, engine = judging(monkeypatch, two, np.array([[1.0, 0.0], [0.0, 1.0]]))
        assert (run.state.models == average(list(engine.models().values()), two.sizes)).all()
        run, engine = judging(monkeypatch, two, np.array([[1.0, 1.0], [0.5, 0.5]]))
        np.testing.assert_allclose(
            run.state.models, average(list(engine.models().values()), [2, 1]), rtol=1e-6, atol=1e-8
        )

    def test_equal_accuracies_are_the_plain_mean(self, small, monkeypatch):
        run, engine = judging(monkeypatch, small, np.full((6, 6), 0.7))
        plain = average(list(engine.models().values()), np.ones(6))
        np.testing.assert_allclose(run.state.models, plain, rtol=1e-6, atol=1e-8)

    def test_if_nobody_is_right_all_weigh_the_same(self, small, monkeypatch):
        run, engine = judging(monkeypatch, small, np.zeros((6, 6)))
        assert (run.state.models == average(list(engine.models().values()), np.ones(6))).all()

    def test_if_nobody_is_right_labels_still_count(self, monkeypatch):
        """methods.md 5.2: if all A are 0, w^A is uniform; w^K is not."""
        two = made([np.tile([0, 1], n) for n in (5, 6, 8)] + [np.tile([2, 3], n) for n in (5, 9)])
        run, engine = judging(monkeypatch, two, np.zeros((5, 5)), CAFA)
        assert (run.state.models == average(list(engine.models().values()), [3, 3, 3, 2, 2])).all()

    def test_a_missing_judge_is_left_out_of_both_sums(self, small, monkeypatch):
        given = np.random.default_rng(1).uniform(size=(6, 6)).astype(np.float32)
        engine = Engine(lambda task, round: (0, 2, 3) if task == "Judge" else range(6))
        run, engine = judging(monkeypatch, small, given, engine=engine)
        judges = [0, 2, 3]
        a = given[:, judges].astype(np.float64) @ small.sizes[judges]
        np.testing.assert_allclose(run.state.models, average(list(engine.models().values()), a), rtol=1e-5, atol=1e-8)

    def test_who_did_not_train_is_not_judged_and_does_not_judge(self, small):
        engine = Engine(lambda task, round: (0, 2, 3))
        ilk.run(ABFA(local=FAST), small, rounds=1, engine=engine)
        assert set(engine.of("Judge")) == {0, 2, 3}
        assert {len(said) for said in engine.judgements().values()} == {3}

    def test_a_cohort_of_one_judges_itself(self, small):
        engine = Engine()
        run = ilk.run(ABFA(local=FAST), small, rounds=1, cohort=1, engine=engine)
        (model,) = engine.models().values()
        assert (run.state.models[0] == model).all()
        assert "peer_models" not in run.ledger.by_kind()
        assert run.ledger.by_kind()["accuracies"] == 4


def judging(monkeypatch, federation, given, method=ABFA, engine=None):
    """Play one round in which judge j finds given[i, j] for model i."""
    from ilk.methods import cafa

    honest = cafa.Judge.answer

    def answer(self, client, message):
        said = honest(self, client, message)["accuracies"]
        others = np.delete(np.arange(len(given)), client.index)
        assert len(said) == len(given)
        return {"accuracies": given[[client.index, *others], client.index].astype(np.float32)}

    engine = engine or Engine()
    with monkeypatch.context() as patched:
        patched.setattr(cafa.Judge, "answer", answer)
        return ilk.run(method(local=FAST), federation, rounds=1, engine=engine), engine


class TestPeers:
    @pytest.mark.parametrize("q", [1, 2, 4])
    def test_each_model_is_judged_by_this_many_others_and_itself(self, small, q):
        engine = Engine()
        ilk.run(ABFA(local=FAST, peers=q), small, rounds=2, engine=engine)
        for t in (1, 2):
            models = {model.tobytes(): k for k, model in engine.models(t).items()}
            times = dict.fromkeys(range(6), 0)
            for j, (send, said) in engine.of("Judge", round=t).items():
                peers = [models[model.tobytes()] for model in send["peer_models"]]
                assert j not in peers
                assert len(set(peers)) == len(peers) == len(said["accuracies"]) - 1
                for i in peers:
                    times[i] += 1
            assert set(times.values()) == {q}

    def test_judges_change_from_round_to_round(self, small):
        engine = Engine()
        ilk.run(ABFA(local=FAST, peers=1), small, rounds=4, engine=engine)
        counts = {tuple(len(said) for said in engine.judgements(t).values()) for t in range(1, 5)}
        assert len(counts) > 1

    def test_as_many_as_there_are_is_everybody(self, small):
        settings = {"rounds": 2, "engine": "inline"}
        all_, few = (ilk.run(ABFA(local=FAST, peers=q), small, **settings) for q in (None, 5))
        assert all_.model_digest == few.model_digest
        assert ilk.run(ABFA(local=FAST, peers=99), small, **settings).model_digest == all_.model_digest

    def test_weights_with_few_judges(self, small):
        """By hand from what was really said."""
        engine = Engine()
        run = ilk.run(ABFA(local=FAST, peers=2), small, rounds=1, engine=engine)
        models = engine.models()
        who = {model.tobytes(): k for k, model in models.items()}
        right, asked = np.zeros(6), np.zeros(6)
        for j, (send, said) in engine.of("Judge").items():
            for i, a in zip([j, *(who[m.tobytes()] for m in send["peer_models"])], said["accuracies"], strict=True):
                right[i] += small.sizes[j] * a
                asked[i] += small.sizes[j]
        np.testing.assert_allclose(
            run.state.models, average(list(models.values()), right / asked), rtol=1e-5, atol=1e-8
        )


class TestLedger:
    """N C floats of histograms once; m P each way, m (m - 1) P of peers' models and m^2 accuracies a round."""

    @pytest.mark.parametrize(
        ("method", "histograms", "judged"), [(CAFA, True, True), (CBCC, True, False), (ABFA, False, True)]
    )
    def test_each_variant(self, small, method, histograms, judged):
        run = ilk.run(method(local=FAST), small, rounds=3, cohort=4, engine="inline")
        n, c, m, t, model = 6, 10, 4, 3, run.state.models.shape[1] * 4
        expected = {"models": t * m * model, "model": t * m * model}
        expected |= {"histogram": n * c * 4} if histograms else {}
        expected |= {"peer_models": t * m * (m - 1) * model, "accuracies": t * m * m * 4} if judged else {}
        assert run.ledger.by_kind() == expected
        ways = {entry.kind: entry.direction for entry in run.ledger.entries}
        assert ways == {kind: "down" if kind in ("models", "peer_models") else "up" for kind in expected}

    def test_with_few_judges(self, small):
        run = ilk.run(ABFA(local=FAST, peers=2), small, rounds=2, engine="inline")
        model = run.state.models.shape[1] * 4
        assert run.ledger.by_kind()["peer_models"] == 2 * 6 * 2 * model
        assert run.ledger.by_kind()["accuracies"] == 2 * (6 + 6 * 2) * 4


def test_cafa_multiplies_both_weights(monkeypatch):
    two = made([np.tile([0, 1], n) for n in (5, 6, 8)] + [np.tile([2, 3], n) for n in (5, 9)])
    given = np.random.default_rng(2).uniform(size=(5, 5)).astype(np.float32)
    run, engine = judging(monkeypatch, two, given, CAFA)
    weights = np.array([3, 3, 3, 2, 2]) * (given.astype(np.float64) @ two.sizes)
    np.testing.assert_allclose(run.state.models, average(list(engine.models().values()), weights), rtol=1e-5, atol=1e-8)


def test_k_and_peers_are_checked():
    for wrong in ({"k": 1}, {"peers": 0}):
        with pytest.raises(ilk.IlkError, match=next(iter(wrong))):
            CAFA(**wrong)


@pytest.mark.parametrize(
    ("cls", "defaults"),
    [
        (CAFA, {"k": None, "k_most": None, "peers": None}),
        (CBCC, {"k": None, "k_most": None}),
        (ABFA, {"peers": None}),
    ],
)
def test_options(documented, cls, defaults):
    assert documented(cls) == defaults


def test_parts_have_only_the_options_that_they_use():
    with pytest.raises(ilk.IlkError, match="peers"):
        CBCC(peers=1)
    with pytest.raises(ilk.IlkError, match="k"):
        ABFA(k=2)


def test_a_model_that_nobody_judged_is_not_thrown_away(small, monkeypatch):
    """Only client 0 judges: itself and one other. All that is known is 0.5, so nobody weighs less than another."""
    from ilk.methods import cafa

    half = {"accuracies": np.full(2, 0.5, np.float32)}
    monkeypatch.setattr(cafa.Judge, "answer", lambda self, client, message: half)
    monkeypatch.setattr(CAFA, "_who_judges_whom", lambda self, server, m: [np.array([(j + 1) % m]) for j in range(m)])
    engine = Engine(lambda task, round: (0,) if task == "Judge" else range(6))
    run = ilk.run(ABFA(local=FAST, peers=1), small, rounds=1, engine=engine)
    plain = average(list(engine.models().values()), np.ones(6))
    np.testing.assert_allclose(run.state.models, plain, rtol=1e-6, atol=1e-8)


def test_the_largest_k_that_is_looked_at(mixed):
    """Three kinds of clients by their labels; who may look at two clusters only does not find three."""
    shares = np.repeat(np.eye(5), 4, axis=0) + np.random.default_rng(0).normal(size=(20, 5)) * 1e-3
    assert best_silhouette(shares, 0).max() + 1 == 5
    assert best_silhouette(shares, 0, most=3).max() + 1 <= 3
    free = ilk.run(CAFA(local=FAST), mixed, rounds=1, engine="inline").state.label_cluster
    held = ilk.run(CAFA(local=FAST, k_most=2), mixed, rounds=1, engine="inline").state.label_cluster
    assert held.max() == 1
    assert free.max() >= held.max()
