import numpy as np
import pytest

import ilk
from ilk.errors import IlkWarning
from ilk.methods.fedavg import FedAvg
from ilk.methods.ifca import IFCA

FAST = ilk.LocalSGD(epochs=1, lr=0.05)
LEAKY = pytest.mark.filterwarnings("ignore:ifca. clients choose a model by their own test data")
PLANTED = np.random.default_rng(5).normal(size=(2, 3, 4)) * 3


def label(group, x):
    return (x @ PLANTED[group].T).argmax(axis=1)


@pytest.fixture(scope="module")
def planted(toy):
    """Eight clients with the same inputs' distribution; four label them by one linear model, four by another."""
    return toy(*[60] * 8, label=lambda k, x: label(k % 2, x))


@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_one_model_is_fedavg_bit_for_bit(played, toy, digits, model):
    federation = digits if model == "mlp" else toy(12, 31, 20, 9)
    settings = {"rounds": 3, "cohort": 0.5, "model": model}
    run = played(IFCA(local=FAST, k=1), federation, **settings)
    fedavg = played(FedAvg(local=FAST), federation, **settings)
    assert run.model_digest == fedavg.model_digest
    assert run.ledger.by_kind() == fedavg.ledger.by_kind(), "there is no choice to tell"
    assert played(IFCA(local=FAST, k=1, min_share=0.9), federation, **settings).model_digest == fedavg.model_digest


@pytest.mark.parametrize("cohort", [1.0, 0.5])
def test_two_planted_linear_models_are_recovered(played, planted, cohort):
    """Each of the two models ends as one of the two labellings; every client, asked or not, takes its own."""
    local = ilk.LocalSGD(epochs=2, lr=0.1)
    run = played(IFCA(local=local, min_share=0.3), planted, rounds=15, cohort=cohort)
    chosen = np.array(run.last["cluster_by_client"])
    assert (chosen == np.arange(8) % 2).all()
    x = np.random.default_rng(9).normal(size=(2000, 4))
    says = [(x @ model[:12].reshape(3, 4).T + model[12:]).argmax(axis=1) for model in run.state.models]
    agree = np.array([[(said == label(group, x)).mean() for group in (0, 1)] for said in says])
    assert (agree.max(axis=1) > 0.9).all()
    assert set(agree.argmax(axis=1)) == {0, 1}
    fedavg = played(FedAvg(local=local), planted, rounds=15, cohort=cohort)
    assert run.accuracy > 0.9 > fedavg.accuracy + 0.15


def test_the_groups_of_rotated_digits(played, digits):
    run = played(IFCA(local=ilk.LocalSGD(epochs=2), min_share=0.2), digits, rounds=8, model="mlp")
    assert run.last["ari"] == 1


def test_the_models_begin_different_and_the_first_is_everybodys(played, toy, hand, watched):
    federation, engine = toy(12, 31), watched()
    played(IFCA(local=FAST, k=3), federation, engine=engine)
    sent = engine.asked(1)[0]["models"]
    for j in range(3):
        assert np.array_equal(sent[j], hand.start(federation, which=j))
    assert len({row.tobytes() for row in sent}) == 3


@pytest.mark.parametrize("cohort", [1.0, 3])
def test_a_round_by_hand(played, toy, hand, watched, cohort):
    """Choice by training loss, training, and means by choice, in plain numpy; two rounds."""
    federation, engine = toy(12, 31, 20, 9, 26, 40, label=lambda k, x: label(k % 2, x)), watched()
    models = np.array([hand.start(federation, which=j) for j in range(2)])
    run = played(IFCA(local=FAST), federation, rounds=2, cohort=cohort, engine=engine)
    everything_chosen = set()
    for round in (1, 2):
        cohort_of_round = list(engine.asked(round))
        losses = [[hand.loss(model, *hand.read(federation, k)) for model in models] for k in cohort_of_round]
        chosen = np.argmin(losses, axis=1)
        everything_chosen |= set(chosen)
        assert [int(engine.answers(round)[k]["chosen"]) for k in cohort_of_round] == chosen.tolist()
        ends = [
            hand.descend(models[j], federation, k, round, FAST) for k, j in zip(cohort_of_round, chosen, strict=True)
        ]
        for j in set(chosen):
            mine = np.flatnonzero(chosen == j)
            sizes = federation.sizes[np.array(cohort_of_round)[mine]]
            models[j] = hand.mean(np.array(ends)[mine], sizes)
    np.testing.assert_allclose(run.state.models, models, atol=2e-6)
    assert everything_chosen == {0, 1}


def test_a_model_that_nobody_chose_stays_unchanged(played, toy, watched):
    engine = watched()
    run = played(IFCA(local=FAST, k=6), toy(12, 31, 20), engine=engine)
    sent = engine.asked(1)[0]["models"]
    chosen = {int(message["chosen"]) for message in engine.answers(1).values()}
    assert 1 <= len(chosen) <= 3
    for j in range(6):
        assert np.array_equal(run.state.models[j], sent[j]) == (j not in chosen)


def with_labels(federation, **parts):
    """Give each part of client 0's samples these labels, in this order of labels, over and over."""
    source, share = federation.sources["arrays"], federation.partition.shares[0]
    source.x_train[:] = 0
    for part, labels in parts.items():
        positions = getattr(share, part)
        source.y_train[positions] = np.resize(labels, len(positions))
    return federation


def always(*biases):
    """A linear model that gives every input these logits."""
    return np.array([0] * 4 * len(biases) + list(biases), np.float32)


@pytest.mark.parametrize("choose", ["train-loss", "validation-loss", "test-accuracy"])
@pytest.mark.parametrize("which", [0, 1])
def test_by_whose_samples_a_client_chooses(toy, clients_of, choose, which):
    """One part of the data says 0, both others say 1."""
    parts = {"train": [1], "validation": [1], "test": [1]} | {choose.split("-")[0]: [0]}
    client = clients_of(with_labels(toy(30, classes=2), **parts))(0)
    models = np.array([always(3, 0), always(0, 3)])[:: 1 if which == 0 else -1]
    start, chosen = IFCA(choose=choose).training.begin(client, {"models": models})
    assert chosen == which
    assert np.array_equal(start, always(3, 0))


def test_loss_and_accuracy_choose_differently(toy, clients_of):
    """Two samples in three say 0. The first model is right on them and sure of it; the second is unsure and wrong.

    Losses: (2 * 0 + 10) / 3 = 3.3 and about log 2; accuracies 2/3 and 1/3.
    """
    thirds = {part: [0, 1, 0] for part in ("train", "validation", "test")}
    client = clients_of(with_labels(toy(30, classes=2), **thirds))(0)
    models = np.array([always(10, 0), always(0, 0.1)])
    chosen = {c: IFCA(choose=c).training.begin(client, {"models": models})[1] for c in ("train-loss", "test-accuracy")}
    assert chosen == {"train-loss": 1, "test-accuracy": 0}
    assert IFCA().training.begin(client, {"models": models})[1] == 1, "training loss is the default"


@pytest.mark.parametrize("choose", ["train-loss", "validation-loss", "test-accuracy"])
def test_of_equally_good_models_the_first_is_taken(toy, clients_of, choose):
    client = clients_of(toy(30))(0)
    models = np.array([always(1, 2, 3)] * 3)
    assert IFCA(choose=choose).training.begin(client, {"models": models})[1] == 0


@LEAKY
@pytest.mark.parametrize("choose", ["train-loss", "validation-loss", "test-accuracy"])
def test_the_option_reaches_the_rounds_and_the_draws(played, toy, watched, choose):
    for options in ({}, {"min_share": 0.1}):
        engine, tasks = watched(), []
        ask = engine.ask
        engine.ask = lambda task, *rest, ask=ask, tasks=tasks: (tasks.append(task), ask(task, *rest))[1]
        played(IFCA(local=FAST, choose=choose, **options), toy(30, 40, 20, 25), engine=engine)
        said = [getattr(task, "choose", None) or task.training.choose for task in tasks]
        assert len(said) >= 2
        assert set(said) == {choose}


def shares(federation, hand, draw, k):
    models = [hand.start(federation, which=draw * k + j) for j in range(k)]
    clients = range(len(federation.ids))
    best = [np.argmin([hand.loss(m, *hand.read(federation, c)) for m in models]) for c in clients]
    return np.bincount(best, minlength=k) / len(clients)


@pytest.mark.parametrize(("k", "min_share"), [(2, 0.35), (2, 0.5), (3, 0.2)])
def test_initial_models_are_drawn_until_each_has_its_share(played, planted, hand, watched, k, min_share):
    """The first draw that the clients' losses, worked out by hand, are content with."""
    engine = watched()
    run = played(IFCA(local=FAST, k=k, min_share=min_share), planted, engine=engine)
    draw = next(d for d in range(50) if shares(planted, hand, d, k).min() >= min_share)
    first = engine.asked(1)[0]["models"]
    assert [np.array_equal(first[j], hand.start(planted, which=draw * k + j)) for j in range(k)] == [True] * k
    asked = [client for round, client, _ in engine.sent if round == 0]
    assert asked == list(range(8)) * (draw + 1), "everybody is asked, once a draw"
    begun = {(e.direction, e.kind): 0 for e in run.ledger.entries if e.round == 0}
    for e in run.ledger.entries:
        if e.round == 0:
            begun[e.direction, e.kind] += e.bytes
    assert begun == {("down", "models"): (draw + 1) * 8 * k * 15 * 4, ("up", "chosen"): (draw + 1) * 8 * 4}


def test_one_of_these_draws_more_than_once(planted, hand):
    assert shares(planted, hand, 0, 3).min() < 0.2 or shares(planted, hand, 0, 2).min() < 0.5


def test_only_a_cohort_is_asked_about_a_draw(played, planted, watched):
    """As in the reference; each draw asks others, and the ledger has m models times k down for each."""
    engine = watched()
    run = played(IFCA(local=FAST, min_share=0.5), planted, engine=engine, cohort=4)
    asked = [client for round, client, _ in engine.sent if round == 0]
    draws = [tuple(asked[i : i + 4]) for i in range(0, len(asked), 4)]
    assert all(len(set(draw)) == 4 and list(draw) == sorted(draw) for draw in draws)
    assert len(draws) == 1 or len(set(draws)) > 1
    down = sum(e.bytes for e in run.ledger.entries if (e.round, e.direction) == (0, "down"))
    assert down == len(draws) * 4 * 2 * 15 * 4


def test_without_weights_it_is_the_plain_mean(played, toy, watched):
    engine = watched()
    run = played(IFCA(local=FAST, k=1, weighted=False), toy(12, 31, 20), engine=engine)
    expected = np.mean([m["model"] for m in engine.answers(1).values()], axis=0)
    np.testing.assert_allclose(run.state.models[0], expected, atol=1e-7)


def test_the_share_is_of_those_who_answer(played, planted, hand, watched):
    """Half of the clients stay silent when the initial models are chosen."""
    engine = watched(lost=lambda round, client: round == 0 and client >= 4)
    played(IFCA(local=FAST, min_share=0.5), planted, engine=engine)
    draws = sum(client == 0 for round, client, _ in engine.sent if round == 0)
    last = [message for round, _, message in engine.came if round == 0][-4:]
    assert draws >= 1
    assert sorted(int(message["chosen"]) for message in last) == [0, 0, 1, 1]


def test_a_share_that_cannot_be_had_is_an_error(played, toy):
    with pytest.raises(ilk.IlkError, match=r"ifca: 3 models cannot each have 40% .*smaller min_share"):
        played(IFCA(local=FAST, k=3, min_share=0.4), toy(12, 31, 20))


def test_nobody_to_begin_with_is_an_error(played, toy, watched):
    with pytest.raises(ilk.IlkError, match="No client answered when ifca began"):
        played(IFCA(min_share=0.1), toy(12, 31), engine=watched(lost=lambda round, client: True))


@pytest.mark.parametrize("k", [2, 5])
def test_k_models_down_and_one_with_its_number_up(played, toy, k):
    run = played(IFCA(local=FAST, k=k), toy(12, 31, 20), rounds=2, cohort=2)
    assert run.ledger.total("down") == 2 * 2 * k * 15 * 4
    assert run.ledger.total("up") == 2 * 2 * (15 + 1) * 4
    assert run.ledger.by_kind()["chosen"] == 2 * 2 * 4


def test_clients_remember_nothing(played, toy):
    assert played(IFCA(local=FAST), toy(12, 31, 20), rounds=2).memories == [{}, {}, {}]


def test_a_choice_by_test_data_is_said_to_leak(played, toy):
    with pytest.warns(IlkWarning, match=r"ifca: clients choose a model by their own test data .* too high"):
        run = played(IFCA(local=FAST, choose="test-accuracy"), toy(12, 31, 20))
    assert len(run.result()["leaks"]) == 1
    assert played(IFCA(local=FAST), toy(12, 31, 20)).result()["leaks"] == []


@LEAKY
@pytest.mark.parametrize("options", [{}, {"k": 3}, {"choose": "test-accuracy"}], ids=str)
def test_who_is_not_asked_or_does_not_answer(survives, options):
    survives(IFCA(local=FAST, **options))


def test_options(documented):
    assert documented(IFCA) == {"k": 2, "choose": "train-loss", "min_share": 0.0, "weighted": True}


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("k", 1.5), ("choose", "test-loss"), ("min_share", -0.1), ("min_share", 1), ("min_share", float("nan"))],
)
def test_a_wrong_option_is_refused_by_name(name, value):
    with pytest.raises(ilk.IlkError, match=f"ifca: {name} = "):
        IFCA(**{name: value})
