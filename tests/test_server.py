"""What a server makes of the answers that come, and of those that do not."""

from __future__ import annotations

import numpy as np
import pytest

import ilk
from ilk.client import Setting
from ilk.engines import Inline
from ilk.errors import IlkError
from ilk.methods import make_method
from ilk.server import Answer, NobodyAnswered, Server
from ilk.tasks import Evaluate, Fit, LocalSGD

TASK = Fit(LocalSGD(epochs=1))


class Post:
    """A carrier that answers as it is told, in the order that it is told."""

    place = None  # no client is answered for in this process

    def __init__(self, *answering):
        self.answering, self.asked, self.accepted = answering, [], []

    def reach(self, clients):
        return clients

    def ask(self, task, messages, round):
        self.asked.append((task, dict(messages), round))
        for k in self.answering:
            yield Answer(k, {"model": np.full(2, k, np.float32)}, {"note": np.array([k])})

    def accept(self, answers):
        self.accepted.append([answer.client for answer in answers])


def server(blobs, carrier, **more):
    return Server(Setting(blobs, "mlp", 0), carrier, **more)


def test_who_cannot_be_reached_is_not_asked_and_costs_nothing(blobs):
    carrier = Post(0)
    carrier.reach = lambda clients: clients[clients < 2]
    asking = server(blobs, carrier)
    asking.ask(TASK, np.array([0, 1, 5]), {"models": np.zeros((1, 3), np.float32)})
    assert list(carrier.asked[0][1]) == [0, 1]
    assert [(entry.direction, entry.clients) for entry in asking.ledger.entries] == [("down", (0, 1)), ("up", (0,))]


def test_answers_stand_in_the_order_of_the_clients_asked(blobs):
    for order in ((0, 2, 5), (5, 0, 2), (2, 5, 0)):
        answers = server(blobs, Post(*order)).ask(TASK, np.array([2, 0, 5]), {})
        assert answers.clients.tolist() == [2, 0, 5]
        assert [model[0] for model in answers.models] == [2, 0, 5]
        assert answers.sizes.tolist() == blobs.sizes[[2, 0, 5]].tolist()
        assert len(answers) == 3


def test_some_answers_are_missing(blobs):
    post = Post(4, 1)
    answers = server(blobs, post).ask(TASK, np.array([0, 1, 3, 4]), {})
    assert answers.clients.tolist() == [1, 4]
    assert answers["model"].tolist() == [[1, 1], [4, 4]]
    assert answers.sizes.tolist() == blobs.sizes[[1, 4]].tolist()
    assert post.accepted == [[1, 4]]


def test_answers_of_clients_that_were_not_asked_do_not_count(blobs):
    post = Post(0, 3, 1)
    asker = server(blobs, post)
    assert asker.ask(TASK, np.array([0, 1]), {}).clients.tolist() == [0, 1]
    assert post.accepted == [[0, 1]]
    assert [entry.clients for entry in asker.ledger.entries] == [(0, 1)]


def test_nobody_answered(blobs):
    post = Post()
    with pytest.raises(NobodyAnswered):
        server(blobs, post).ask(TASK, np.array([0, 1]), {})
    assert post.accepted in ([], [[]])


def test_one_message_for_all_or_one_for_each(blobs):
    post = Post(0, 1)
    asker = server(blobs, post, round=3)
    common = {"models": np.zeros((1, 2), np.float32)}
    asker.ask(TASK, np.array([0, 1]), common)
    asker.ask(TASK, np.array([0, 1]), lambda k: {"number": np.array([k])})
    task, messages, round = post.asked[0]
    assert (task, round) == (TASK, 3)
    assert messages == {0: common, 1: common}
    assert {k: message["number"].tolist() for k, message in post.asked[1][1].items()} == {0: [0], 1: [1]}


def test_clients_keep_only_what_was_accepted(blobs, losing):
    engine = losing(void=(2,))
    engine.open(Setting(blobs, "mlp", 0, keep_models=True))
    asker = Server(engine.place.setting, engine, round=1)
    models = {"models": asker.initial_model[None]}
    first = asker.ask(TASK, np.array([0, 1]), models)
    assert [sorted(memory) for memory in engine.memories] == [["model"], ["model"], [], [], [], []]
    asker.round = 2
    with pytest.raises(NobodyAnswered):
        asker.ask(TASK, np.array([0, 2]), models)
    assert np.array_equal(engine.memories[0]["model"], first.models[0]), "the lost answer must not be remembered"
    assert engine.memories[2] == {}


def test_what_is_remembered_is_added_to_what_was_remembered(blobs):
    engine = Inline()
    engine.open(Setting(blobs, "mlp", 0))
    engine.accept([Answer(1, {}, {"a": np.array([1])})])
    engine.accept([Answer(1, {}, {"b": np.array([2])}), Answer(0, {}, {})])
    engine.accept([Answer(1, {}, {"a": np.array([3])})])
    assert engine.memories[1] == {"a": np.array([3]), "b": np.array([2])}
    assert engine.memories[0] == {}


@pytest.mark.parametrize("name", ["fedavg", "solo"])
def test_a_void_round_leaves_everything_as_it_was(blobs, losing, name):
    method = make_method(name, {"local": {"epochs": 1}})
    void = ilk.run(method, blobs, rounds=2, engine=losing(void=(2,)))
    short = ilk.run(method, blobs, rounds=1, engine=losing())
    assert void.model_digest == short.model_digest
    assert void.history["loss"][0] == void.history["loss"][1] == short.history["loss"][0]
    longer = ilk.run(method, blobs, rounds=3, engine=losing(void=(2,)))
    assert longer.model_digest != void.model_digest, "the run goes on after a void round"
    assert [row["round"] for row in longer.history] == [1, 2, 3]
    if name == "fedavg":
        directions = [(entry.round, entry.direction) for entry in void.ledger.entries]
        assert directions == [(1, "down"), (1, "up"), (2, "down")]


def test_a_method_that_cannot_begin_says_so(blobs, losing):
    class Asking(ilk.Method):
        name = "asking"

        def start(self, server):
            server.ask(TASK, server.everyone, {"models": server.initial_model[None]})
            return super().start(server)

    with pytest.raises(IlkError, match="No client answered when asking began"):
        ilk.run(Asking(), blobs, rounds=1, engine=losing(void=(0,)))


def test_what_a_server_knows(blobs):
    knows = server(blobs, Post(), round=4)
    assert knows.ids == blobs.ids
    assert knows.everyone.tolist() == list(range(6))
    assert knows.sizes.tolist() == [len(share.train) for share in blobs.partition.shares]
    several = knows.initial_models(3)
    assert np.array_equal(several[0], knows.initial_model)
    assert not np.isclose(several[1], several[2]).any()
    here, again = knows.stream("x").random(3), knows.stream("x").random(3)
    assert np.array_equal(here, again)
    knows.round = 5
    assert not np.array_equal(here, knows.stream("x").random(3))


def test_predictions_are_those_of_the_models_on_the_servers_data(blobs):
    knows = server(blobs, Post())
    always = np.zeros((2, 579), np.float32)
    always[0, -2], always[1, -1] = 1.0, 1.0
    predictions = knows.predict(always)
    assert predictions.tolist() == [[1] * 20, [2] * 20]


def test_no_data_on_the_server_is_an_error_with_the_remedy(make_federation):
    bare = make_federation(clients=2, auxiliary=0)
    with pytest.raises(IlkError, match="--auxiliary 100"):
        server(bare, Post()).predict(np.zeros((1, 579), np.float32))
    with pytest.raises(IlkError, match=r"compares models.*--auxiliary 100"):
        ilk.run(make_method("flis-dc", {}), bare, rounds=1)


def test_evaluations_that_do_not_come_leave_a_number_over_those_that_do(blobs, losing):
    """A client that is not reached has no score; the mean is over the others."""
    method = make_method("fedavg", {"local": {"epochs": 1}})
    run = ilk.run(method, blobs, rounds=3, engine=losing(share=0.3, evaluations_too=True))
    full = ilk.run(method, blobs, rounds=3, engine=losing(share=0.3))
    for row, whole in zip(run.history, full.history, strict=True):
        came = [k for k, accuracy in enumerate(row["accuracy_by_client"]) if np.isfinite(accuracy)]
        assert 0 < len(came) <= 6
        expected = np.array(whole["accuracy_by_client"])[came]
        assert row["accuracy"] == pytest.approx(expected.mean())
        assert row["accuracy_worst"] == expected.min()
        assert np.isfinite([row["f1"], row["loss"], row["accuracy_std"], row["accuracy_p10"]]).all()
    assert any(np.isnan(run.history["accuracy_by_client"]).ravel()), "this test is about answers that are missing"


def test_evaluate_is_not_a_training(blobs):
    engine = Inline()
    engine.open(Setting(blobs, "mlp", 0))
    (answer,) = engine.ask(Evaluate(TASK, "served"), {0: {"models": engine.place.initial_model[None]}}, 1)
    assert answer.kept == {}
