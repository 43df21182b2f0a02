"""Runs of a real deployment end in the same bits as runs in one process, whatever dies on the way."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess

import pytest
from safetensors.numpy import load_file

import ilk
from ilk.data.silos import from_folder
from ilk.engines.flower import certificates, deploy
from ilk.runs.experiment import Experiment
from ilk.runs.play import methods_of

from .conftest import PROGRAM

pytestmark = pytest.mark.deployment
NAMES = ("a", "b", "c", "d")
EACH_MESSAGE = 40_000  # bytes that one may cost beside its arrays: polls, heartbeats, signatures of requests, TLS


def inline(federation, name, **plan):
    """The run that a deployment must be, as the command line would play it in one process."""
    (method,) = methods_of(Experiment(methods=(name,), epochs=1))
    return ilk.run(method, from_folder(federation.folder / "data"), engine="inline", **plan)


def test_pacfl_with_tls_and_node_authentication_is_the_inline_run(federation, relay):
    """And who has no key, or a certificate of another CA, is not let in meanwhile."""
    here = federation(*NAMES)
    between = relay(here.port)
    strangers = intruders(here)
    here.serve("--method", "pacfl", "--rounds", 2, "--epochs", 1, "--eval-every", 2, "--json")
    here.until(lambda: "Listening on port" in here.told("serve"), 60, "the server listens")
    for name in NAMES:
        here.client(name, port=between.own_port)
    for name in strangers:
        here.client(name, here.folder / "data" / "a.npz")
    run = here.finish(120)
    same = inline(here, "pacfl", rounds=2, eval_every=2)
    assert run.model_digest == same.model_digest
    assert run.ledger.entries == same.ledger.entries
    assert run.clusters == [["a", "c"], ["b", "d"]]
    told = here.status()
    assert set(told["clients"]) == set(NAMES)
    assert "Error" not in here.told("serve")
    for name in NAMES:
        held = load_file(here.folder / "dep" / name / "model.safetensors")["model"]
        assert held.shape == (run.ledger.entries[-1].bytes_each // 4,)
    asked_each = {"join": 1, "sign": 1, "fit": 2, "evaluate": 1, "hold": 1}
    messages = len(NAMES) * sum(asked_each.values())
    for way in ("up", "down"):
        arrays = told["bytes"][way] + told["bytes"][f"evaluation_{way}"]
        assert told["bytes"][way] == run.ledger.total(way)
        assert arrays <= between.carried[way] <= 1.1 * arrays + EACH_MESSAGE * messages, (way, between.carried, arrays)
    shown = subprocess.run([*PROGRAM, "status", "dep"], cwd=here.folder, capture_output=True, text=True, timeout=60)
    assert "pacfl: done, round 2 of 2" in shown.stdout
    assert json.loads(here.told("serve")[here.told("serve").rindex('{"run"') :])["model_digest"] == same.model_digest


def intruders(here):
    """Folders of two clients: one of this CA whose key the server does not have, and one of another CA."""
    deploy.add(here.folder / "dep", "unknown")
    (here.folder / "dep" / "server" / "clients" / "unknown.pub").unlink()
    deploy.add(here.folder / "dep", "foreign")
    (here.folder / "dep" / "server" / "clients" / "foreign.pub").unlink()
    folder = here.folder / "dep" / "foreign"
    for name in ("tls.key", "tls.crt", "node.key"):
        (folder / name).unlink()
    shutil.move(folder / "ca.crt", folder / "right.crt")
    certificates.make_ca(here.folder / "other")
    certificates.make_client(here.folder / "other", folder, "foreign")
    shutil.move(folder / "right.crt", folder / "ca.crt")  # it trusts the server; the server shall not trust it
    return "unknown", "foreign"


def test_scaffold_goes_on_after_the_server_was_killed(federation):
    """SIGKILL in round 3: the clients have used what no checkpoint knows; the resumed run is the inline run."""
    here = federation(*NAMES)
    options = ("--method", "scaffold", "--rounds", 4, "--epochs", 1, "--eval-every", 4)
    here.serve(*options)
    for name in NAMES:
        here.client(name, supervised=True)
    here.until(lambda: here.status()["round"] >= 2, 120, "two rounds are played")
    here.processes["serve"].send_signal(signal.SIGKILL)
    here.processes["serve"].wait(10)
    here.serve("--resume")
    run = here.finish(180)
    same = inline(here, "scaffold", rounds=4, eval_every=4)
    assert run.model_digest == same.model_digest
    assert run.ledger.entries == same.ledger.entries
    assert len(run.history) == 4
