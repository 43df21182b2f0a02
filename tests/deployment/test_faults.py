"""What goes wrong at a client costs at most its own answers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ilk.engines.flower import deploy

pytestmark = pytest.mark.deployment


def test_a_client_that_is_killed_and_one_that_answers_garbage(federation):
    """c is killed in round 2 and started again by its supervisor; b lies in every round but the last."""
    here = federation("a", "b", "c")
    here.serve("--method", "fedavg", "--rounds", 5, "--epochs", 1, "--eval-every", 5, "--largest", 1_000_000)
    here.client("a")
    here.client("c", supervised=True)
    program = str(Path(__file__).with_name("bad_client.py"))
    here.start("b", [sys.executable, program, "dep/b", "data", f"127.0.0.1:{here.port}"])
    here.until(lambda: here.status()["round"] == 1, 120, "the first round is played")
    assert "'model' is float32" in here.status()["clients"]["b"]["left_out"]
    assert here.kill(f"ilk.engines.flower.node {here.folder}/dep/c") == 1
    run = here.finish(180)
    came = {e.round: e.clients for e in run.ledger.entries if e.direction == "up"}
    assert [1 in came[round] for round in (1, 2, 3, 4, 5)] == [False, False, False, False, True], "b"
    assert all(0 in clients for clients in came.values()), "a"
    assert 2 in came[1]
    assert 2 in came[5], "c is back"
    log = (here.folder / "dep" / "server" / "federation.log").read_text()
    left_out = [line for line in log.splitlines() if "b is left out" in line]
    for why, line in zip(("'model' is float32", "in the name of 'a'", "not finite", "at most"), left_out, strict=True):
        assert why in line
    assert "started again" in here.told("c")


def test_a_newcomer_is_in_the_right_cluster_within_a_round(federation):
    """d gets its key while round 2 is played, joins, and is in its cluster one round later; then e, after the last round."""
    here = federation("a", "b", "c", later=("d", "e"))
    dep = here.folder / "dep"
    here.serve("--method", "pacfl", "--rounds", 6, "--epochs", 1, "--seats", 5, "--stay")
    for name in ("a", "b", "c"):
        here.client(name)
    here.until(lambda: here.status()["round"] >= 1, 120, "the first round is played")
    deploy.add(dep, "d")
    here.client("d")
    here.until(lambda: "d" in seated(here), 90, "d has joined")
    joined_in = here.status()["round"] + 1
    here.until(lambda: here.status()["round"] > joined_in or here.status()["phase"] == "serving", 90, "one more round")
    assert together(here.status()) == [["a", "c"], ["b", "d"]]
    here.until(lambda: here.status()["phase"] == "serving", 120, "the last round is played")
    here.until(lambda: (dep / "d" / "model.safetensors").exists(), 60, "d is handed its model")
    deploy.add(dep, "e")
    here.client("e")
    here.until(lambda: (dep / "e" / "model.safetensors").exists(), 90, "e is handed a model")
    here.until(lambda: together(here.status()) == [["a", "c", "e"], ["b", "d"]], 30, "e is in its cluster")


def seated(here):
    return [name for name, client in here.status()["clients"].items() if client["joined"]]


def together(told):
    clusters = {}
    for name, client in told["clients"].items():
        if client["joined"]:
            clusters.setdefault(client["cluster"], []).append(name)
    return sorted(clusters.values())
