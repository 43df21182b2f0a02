"""What crosses in a round equals the formulas of the papers: models, and whatever else a method sends, float by float."""

import pytest

import ilk
from ilk.methods import make_method, method_class, registry

N, M, K, C = 6, 3, 2, 10  # clients, asked in a round, IFCA's models, classes
P = 64 * 64 + 64 + 64 * 10 + 10  # floats in the digits' MLP
HEAD = 64 * 10 + 10  # its last layer
D, VECTORS = 64, 3

PLAIN = (M * P, M * P)
ROUND = {  # down, up in floats
    "solo": (0, 0),
    "fednova": (M * P, M * (P + 1)),
    "scaffold": (2 * M * P, 2 * M * P),
    "lg-fedavg": (M * HEAD, M * HEAD),
    "ifca": (M * K * P, M * (P + 1)),
    "flis-dc": (M * M * P, M * P),
    "abfa": (M * P + M * (M - 1) * P, M * P + M * M),
    "cafa": (M * P + M * (M - 1) * P, M * P + M * M),
}
START = {  # once, before the first round
    "pacfl": (0, N * (VECTORS * D + 1)),
    "flis-hc": (N * P, N * P),
    "cafa": (0, N * C),
    "cbcc": (0, N * C),
}
OPTIONS = {"lg-fedavg": {"shared_layers": 1}, "ifca": {"k": K}, "pacfl": {"vectors": VECTORS}}


@pytest.mark.parametrize("name", sorted(registry()))
def test_the_ledger_equals_the_formula(name):
    auxiliary = 100 if method_class(name).needs_auxiliary else 0
    federation = ilk.federation("digits", split="iid", clients=N, auxiliary=auxiliary)
    method = make_method(name, {"local": {"epochs": 1}, **OPTIONS.get(name, {})})
    run = ilk.run(method, federation, rounds=2, cohort=M, engine="inline", eval_every=2)

    def floats(round):
        return tuple(
            sum(e.bytes for e in run.ledger.entries if e.round == round and e.direction == direction) / 4
            for direction in ("down", "up")
        )

    assert floats(0) == START.get(name, (0, 0))
    assert floats(2) == ROUND.get(name, PLAIN)


def test_the_round_in_which_briggs_clusters_asks_everybody():
    federation = ilk.federation("digits", split="iid", clients=N)
    run = ilk.run(make_method("briggs", {"at_round": 1}), federation, rounds=1, cohort=M, engine="inline")
    assert run.ledger.total("down") == run.ledger.total("up") == 4 * N * P
