"""What crossed, against the formulas of the papers."""

from __future__ import annotations

import numpy as np
import pytest

import ilk
from ilk.client import Setting
from ilk.ledger import Entry, Ledger
from ilk.methods import make_method
from ilk.server import Answer, NobodyAnswered, Server
from ilk.tasks import Fit, LocalSGD

P, M, ROUNDS = 579, 4, 3  # floats of the network, clients asked, rounds


def played(name, federation, **plan):
    method = make_method(name, {"local": {"epochs": 1}})
    return ilk.run(method, federation, rounds=ROUNDS, cohort=M, engine="inline", **plan)


def model_floats(run, direction):
    entries = [entry for entry in run.ledger.entries if entry.kind in ("model", "models")]
    return [
        sum(entry.bytes for entry in entries if (entry.round, entry.direction) == (round, direction)) / 4
        for round in range(1, ROUNDS + 1)
    ]


def test_solo_costs_nothing(blobs):
    run = played("solo", blobs)
    assert run.ledger.entries == []
    assert run.ledger.total("up") == run.ledger.total("down") == run.ledger.paper_mb(6) == 0
    assert run.history["bytes_up"] == run.history["bytes_down"] == [0, 0, 0]


def test_fedavg_costs_a_model_each_way(blobs):
    run = played("fedavg", blobs)
    assert model_floats(run, "down") == model_floats(run, "up") == [M * P] * ROUNDS
    assert run.ledger.by_kind() == {"models": ROUNDS * M * P * 4, "model": ROUNDS * M * P * 4}
    assert run.history["bytes_up"] == [M * P * 4, 2 * M * P * 4, 3 * M * P * 4]
    assert run.result()["bytes_down"] == run.ledger.total("down") == ROUNDS * M * P * 4


def test_flis_dc_sends_every_model_to_everybody(blobs):
    run = played("flis-dc", blobs)
    assert model_floats(run, "down") == [M * 1 * P, M * M * P, M * M * P]
    assert model_floats(run, "up") == [M * P] * ROUNDS
    assert run.ledger.by_kind().keys() == {"models", "model"}


def test_who_was_asked_stands_in_the_ledger(blobs):
    run = played("fedavg", blobs)
    for round in range(1, ROUNDS + 1):
        asked = ilk.runs.run.cohort_of(round, 6, M, 0)
        for direction in ("up", "down"):
            (entry,) = (e for e in run.ledger.entries if (e.round, e.direction) == (round, direction))
            assert entry.clients == tuple(asked)


def federation_of_the_papers(rounds, floats, copies_down, clients=tuple(range(10))):
    """R = 0.1 of N = 100 clients; every client receives some models and sends one."""
    ledger = Ledger()
    for round in range(1, rounds + 1):
        sent = {k: {"models": np.empty((copies_down, floats), np.float32)} for k in clients}
        ledger.count(round, "down", sent)
        ledger.count(round, "up", {k: {"model": np.empty(floats, np.float32)} for k in clients})
    return ledger


@pytest.mark.parametrize(
    ("rounds", "floats", "copies_down", "mb"),
    [(19, 62_006, 1, 7.54), (19, 62_006, 2, 11.31), (30, 11_014, 1, 2.11)],
    ids=["FedAvg", "IFCA", "LG-FedAvg"],
)
def test_the_unit_of_the_papers(rounds, floats, copies_down, mb):
    ledger = federation_of_the_papers(rounds, floats, copies_down)
    assert ledger.paper_mb(100) == pytest.approx(mb, abs=0.005)
    assert ledger.paper_mb(100) == pytest.approx(0.1 * rounds * (copies_down + 1) * floats * 32 / 1e6)


def test_scaffold_has_three_copies_and_flis_hc_no_warm_up_in_the_papers_unit(blobs):
    """Of the four that SCAFFOLD moves, and of FLIS-HC's first training of everybody (F16)."""
    fedavg, scaffold, flis = (played(name, blobs).ledger for name in ("fedavg", "scaffold", "flis-hc"))
    assert scaffold.paper_mb(6) == pytest.approx(1.5 * fedavg.paper_mb(6))
    assert scaffold.total("up") + scaffold.total("down") == 2 * (fedavg.total("up") + fedavg.total("down"))
    assert flis.paper_mb(6) == fedavg.paper_mb(6)
    assert flis.total("up") > fedavg.total("up")


def test_signatures_and_the_like_are_free_in_the_papers_but_not_here():
    ledger = federation_of_the_papers(19, 62_006, 1)
    before, up = ledger.paper_mb(100), ledger.total("up")
    ledger.count(0, "up", {k: {"signature": np.zeros((64, 3), np.float32)} for k in range(100)})
    assert ledger.paper_mb(100) == before
    assert ledger.total("up") == up + 100 * 64 * 3 * 4
    assert ledger.by_kind()["signature"] == 76_800


def test_messages_of_different_sizes_are_counted_as_they_are():
    ledger = Ledger()
    sent = {
        0: {"model": np.zeros(5, np.float32), "flag": np.array(1, np.int64)},
        1: {"model": np.zeros(7, np.float32)},
        2: {"model": np.zeros(5, np.float32), "empty": np.empty((0, 9))},
    }
    ledger.count(4, "up", sent)
    assert set(ledger.entries) == {
        Entry(4, "up", "model", (0, 2), 20),
        Entry(4, "up", "model", (1,), 28),
        Entry(4, "up", "flag", (0,), 8),
    }
    assert ledger.total("up") == 2 * 20 + 28 + 8
    assert ledger.total("down") == 0


def test_two_counts_add_up():
    ledger = Ledger()
    for round in (1, 2):
        ledger.count(round, "down", {0: {"a": np.zeros(2, np.uint8)}, 5: {"a": np.zeros(2, np.uint8)}})
    assert ledger.entries == [Entry(1, "down", "a", (0, 5), 2), Entry(2, "down", "a", (0, 5), 2)]
    assert ledger.total("down") == 8


def test_who_does_not_answer_is_counted_down_but_not_up(blobs):
    class Carrier:
        def __init__(self, answering):
            self.answering = answering

        def reach(self, clients):
            return clients

        def ask(self, task, messages, round):
            return [Answer(k, {"model": np.zeros(3, np.float32)}, {}) for k in messages if k in self.answering]

        def accept(self, answers):
            pass

    server = Server(Setting(blobs, "mlp", 0), Carrier({1, 4}), round=2)
    server.ask(Fit(LocalSGD()), np.arange(5), {"models": np.zeros((1, 10), np.float32)})
    assert server.ledger.entries == [
        Entry(2, "down", "models", (0, 1, 2, 3, 4), 40),
        Entry(2, "up", "model", (1, 4), 12),
    ]
    server.carrier = Carrier(set())
    with pytest.raises(NobodyAnswered):
        server.ask(Fit(LocalSGD()), np.arange(5), {"models": np.zeros((1, 10), np.float32)})
    assert server.ledger.entries[2:] == [Entry(2, "down", "models", (0, 1, 2, 3, 4), 40)]
