"""A linear model whose training can be worked out by hand, made federations for it, and an engine that takes notes."""

from __future__ import annotations

import dataclasses
import math
from itertools import count

import numpy as np
import pytest
from torch import nn

import ilk
from ilk import models
from ilk.checked import describe, plain
from ilk.client import Place, Setting
from ilk.engines import Inline
from ilk.randomness import stream
from ilk.runs import run as running
from ilk.tasks import Evaluate

FEATURES, CLASSES = 4, 3


def linear(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def normed(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 6), nn.BatchNorm1d(6), nn.Linear(6, classes))


@pytest.fixture(scope="session", autouse=True)
def toy_models():
    """The models "linear" (4 x 3 weights, 3 biases) and "normed" (with BatchNorm, hence with buffers)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(models.MODELS, "linear", linear)
        patch.setitem(models.MODELS, "normed", normed)
        yield


def make_toy(*sizes, classes=CLASSES, features=FEATURES, label=None, seed=0):
    """Return a federation whose client k trains on exactly ``sizes[k]`` samples; ``label(k, x)`` gives their labels."""
    random = np.random.default_rng(seed)
    clients = {}
    for k, size in enumerate(sizes):
        owned = next(n for n in count(size) if n - max(round(0.1 * n), 1) == size)  # the rest is for validation
        x = random.normal(size=(owned + 30, features)).astype(np.float32)
        y = random.integers(classes, size=len(x)) if label is None else label(k, x)
        y[:classes] = np.arange(classes)  # every label occurs
        clients[f"client-{k}"] = (x[:owned], y[:owned], x[owned:], y[owned:])
    made = ilk.from_arrays(clients, seed=seed)
    assert made.sizes.tolist() == list(sizes)
    return made


@pytest.fixture(scope="session")
def toy():
    return make_toy


@pytest.fixture(scope="session")
def digits():
    """Ten clients in two groups: upright digits, and digits turned by a quarter."""
    return ilk.federation("digits", split="rotate:2", clients=10)


class Hand:
    """Softmax regression and SGD in plain numpy and double precision: nothing of ilk's, but for the order of samples."""

    @staticmethod
    def start(federation, seed=0, which=0):
        return models.initial_model("linear", federation.shape, federation.classes, seed, which).astype(np.float64)

    @staticmethod
    def probabilities(theta, x):
        classes = len(theta) // (x.shape[1] + 1)
        weight, bias = theta[:-classes].reshape(classes, -1), theta[-classes:]
        logits = x @ weight.T + bias
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    @staticmethod
    def gradient(theta, x, y):
        """The mean over samples of (p - one-hot) x, and of (p - one-hot) for the biases."""
        p = Hand.probabilities(theta, x)
        error = (p - np.eye(p.shape[1])[y]) / len(y)
        return np.concatenate([(error.T @ x).ravel(), error.sum(axis=0)])

    @staticmethod
    def loss(theta, x, y):
        return -np.log(Hand.probabilities(theta, x)[np.arange(len(y)), y]).mean()

    @staticmethod
    def read(federation, client, part="train"):
        x, y = federation.read(client, part)
        return x.astype(np.float64), y

    @staticmethod
    def batches(federation, client, round, local, seed=0):
        """Yield for each epoch the list of this client's batches in this round."""
        x, y = Hand.read(federation, client)
        order = stream(seed, "batches", round, federation.ids[client])
        for _ in range(local.epochs):
            shuffled = order.permutation(len(y))
            cuts = range(0, len(y), local.batch_size)
            yield [(x[shuffled[i : i + local.batch_size]], y[shuffled[i : i + local.batch_size]]) for i in cuts]

    @staticmethod
    def descend(theta, federation, client, round, local, more=lambda theta: 0.0, beside=0.0):
        """Train as `local` says; `more` is what is added to each gradient, `beside` to each step beside its momentum."""
        velocity = 0.0
        for epoch in Hand.batches(federation, client, round, local):
            for x, y in epoch:
                velocity = local.momentum * velocity + Hand.gradient(theta, x, y) + more(theta)
                theta = theta - local.lr * (velocity + beside)
        return theta

    @staticmethod
    def mean(vectors, sizes):
        return np.asarray(sizes) @ np.array(vectors) / np.sum(sizes)


@pytest.fixture(scope="session")
def hand():
    return Hand


class Watched(Inline):
    """The inline engine: it notes what crosses in training, and loses the answers that it is told to lose."""

    def __init__(self, lost=lambda round, client: False):
        self.lost, self.sent, self.came = lost, [], []

    def ask(self, task, messages, round):
        if isinstance(task, Evaluate):
            yield from super().ask(task, messages, round)
            return
        for answer in super().ask(task, messages, round):
            self.sent.append((round, answer.client, messages[answer.client]))
            if not self.lost(round, answer.client):
                self.came.append((round, answer.client, answer.message))
                yield answer

    def answers(self, round):
        return {client: message for when, client, message in self.came if when == round}

    def asked(self, round):
        return {client: message for when, client, message in self.sent if when == round}


@pytest.fixture(scope="session")
def watched():
    return Watched


@pytest.fixture(scope="session")
def played():
    """Run on the linear model in this process, unless told otherwise."""

    def play(method, federation, **settings):
        return ilk.run(method, federation, **{"rounds": 1, "model": "linear", "engine": "inline", **settings})

    return play


@pytest.fixture(scope="session")
def clients_of():
    """Return a federation's clients as a task sees them in round 1, by their numbers."""

    def make(federation, model="linear", memory=None):
        place = Place(Setting(federation, models.choose(model, federation.shape), seed=0))
        return lambda k: place.client(k, 1, memory or {})

    return make


@pytest.fixture(scope="session")
def documented():
    """The options' defaults as `ilk methods` shows them; checked to be those that a method without options has."""

    def defaults(cls):
        rows = {row["name"]: row for row in describe(cls)}
        real = plain(cls())
        real |= {f"local.{name}": value for name, value in real.pop("local").items()}
        assert {name: row["default"] for name, row in rows.items()} == real
        assert all(row["help"] for name, row in rows.items() if not name.startswith("local."))
        return {name: value for name, value in real.items() if not name.startswith("local.")}

    return defaults


def same(one, other):
    """All that the server and the clients hold is the same, bit for bit."""
    assert one.model_digest == other.model_digest
    for name in (part.name for part in dataclasses.fields(one.state)):
        assert np.array_equal(getattr(one.state, name), getattr(other.state, name)), name
    for a, b in zip(one.memories, other.memories, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[kind], b[kind]) for kind in a)


@pytest.fixture(scope="session")
def survives(played):
    """Check a method on a federation that is like real ones: few are asked, and not everybody answers."""

    def check(method):
        federation = make_toy(30, 20, 25, 40, 10, 35)

        def play(lost=lambda round, client: False, **settings):
            engine = Watched(lost)
            run = played(method, federation, engine=engine, **settings)
            assert np.isfinite(list(run.accuracy_by_client.values())).all(), "everybody is served"
            assert np.isfinite(run.last["loss"])
            return run, engine

        # two of six are asked: those that never were have nothing in memory, and are served all the same
        run, engine = play(rounds=2, cohort=2)
        asked = {client for _, client, _ in engine.sent}
        assert 2 <= len(asked) < 6
        assert all(run.memories[k] == {} for k in set(range(6)) - asked)
        assert {client for entry in run.ledger.entries for client in entry.clients} == asked

        # three in ten answers are lost: they are not in the ledger, and nobody remembers what was not accepted
        run, engine = play(lambda round, client: stream(7, "lost", round, client).random() < 0.3, rounds=3)
        assert 0 < len(engine.came) < len(engine.sent) == 18
        for round in (1, 2, 3):
            up = {e.clients for e in run.ledger.entries if e.round == round and e.direction == "up"}
            assert up == {tuple(engine.answers(round))}
            down = {e.clients for e in run.ledger.entries if e.round == round and e.direction == "down"}
            assert down == {tuple(range(6))}

        # one that does not answer is one that was not asked
        silent, _ = play(lambda round, client: client == 3, rounds=2)
        assert silent.memories[3] == {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(running, "cohort_of", lambda *_: np.array([0, 1, 2, 4, 5]))
            without, _ = play(rounds=2)
        same(silent, without)

        # a round in which nobody answers did not take place
        void, _ = play(lambda round, client: round == 2, rounds=2)
        once, _ = play(rounds=1)
        same(void, once)
        after, _ = play(lambda round, client: round == 2, rounds=3)
        assert not np.array_equal(after.state.models, void.state.models)

    return check
