"""The commands of a deployment: what they write and how they refuse. Runs over a network are in tests/deployment."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest


@pytest.fixture
def made(ilk, tmp_path):
    """The folder of a deployment."""
    folder = tmp_path / "fed"
    assert (
        ilk("deploy", "init", folder, "--clients", "north, south", "--host", "localhost", "--port", "19876").code == 0
    )
    return folder


def refused(ended, *fragments):
    assert ended.code == 2, ended
    assert "mistake in ilk" not in ended.err
    for fragment in fragments:
        assert fragment in ended.err


def test_folders_are_made_checked_and_added_to(ilk, made):
    assert "nothing is wrong" in ilk("deploy", "check", made).out
    assert "east" in ilk("deploy", "add", made, "east").out
    (made / "east" / "tls.key").chmod(0o644)
    (made / "north" / "node.key").chmod(0o644)
    refused(ilk("deploy", "check", made), "2 things are wrong", "chmod 600", "east", "north")


def test_what_is_wrong_on_the_command_line_is_said(ilk, made, tmp_path):
    refused(ilk("deploy", "init", tmp_path / "x", "--clients", " , ", "--host", "h"), "--clients is empty")
    refused(ilk("deploy", "init", made, "--clients", "a", "--host", "h"), "is not empty")
    refused(ilk("deploy", "check", tmp_path), "is no deployment")
    refused(ilk("serve", made), "No method was given")
    refused(ilk("serve", made, "--method", "pacf"), "no method 'pacf'", "pacfl")
    refused(ilk("serve", made, "--method", "pacfl", "--rounds", "0"), "--rounds 0 is not allowed")
    refused(ilk("serve", made, "--method", "pacfl", "--seats", "0"), "--seats 0 is not allowed")
    refused(ilk("serve", made, "--method", "pacfl", "--set", "thresold=1"), "thresold", "threshold")
    refused(ilk("serve", made, "--resume"), "job.json")
    refused(ilk("serve", tmp_path, "--method", "pacfl"), "server.json")
    refused(ilk("status", made), "nothing has been served")
    refused(ilk("client", made / "north", "--data", tmp_path / "none.npz"), "There is no", "none.npz")
    refused(ilk("client", made / "north", "--data", "digits"), "--split FILE.json")
    refused(ilk("client", made, "--data", tmp_path), "client.json")
    np.savez(tmp_path / "north.npz", a=np.zeros(3))
    refused(ilk("client", made / "north", "--data", tmp_path), "needed are x and y")


def test_a_job_is_written_for_those_who_start_flower_themselves(ilk, made):
    line = [
        "--method",
        "pacfl",
        "--rounds",
        "3",
        "--epochs",
        "2",
        "--set",
        "clusters=2",
        "--seats",
        "5",
        "--only-write",
    ]
    assert ilk("serve", made, *line).code == 0
    job = json.loads((made / "server" / "job.json").read_text())
    assert job["experiment"]["methods"] == ["pacfl"]
    assert (job["experiment"]["rounds"], job["experiment"]["epochs"], job["serving"]["seats"]) == (3, 2, 5)
    assert job["experiment"]["set"] == {"clusters": 2}
    assert job["out"] == str(made / "server" / "run")


def test_status_is_a_table_or_json(ilk, made):
    told = {
        **{"method": "pacfl", "phase": "playing", "round": 3, "rounds": 9, "written": 0.0, "bytes": {}},
        "clients": {
            "north": {"connected": True, "cluster": 1, "last_round": 3, "last_seen": 1.0, "left_out": None},
            "south": {"connected": False, "cluster": None, "last_round": None, "last_seen": None, "left_out": "[bold]"},
        },
    }
    (made / "server" / "status.json").write_text(json.dumps(told))
    assert json.loads(ilk("status", made, "--json").out) == told
    shown = ilk("status", made / "server").out
    assert "pacfl: playing, round 3 of 9" in shown
    assert "never" in shown
    assert "[bold]" in shown, "what a client says is text, not markup"


def test_without_flower_the_extra_is_named(ilk, made, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setattr("ilk.cli.serve.find_spec", lambda name: None)
    monkeypatch.setattr("ilk.engines.find_spec", lambda name: None)
    for line in (["serve", made, "--method", "pacfl"], ["status", made], ["deploy", "check", made]):
        refused(ilk(*line), "pip install 'ilk[flower]'")
    refused(ilk("run", "fedavg", "--engine", "flower-sim"), "pip install 'ilk[flower-sim]'")
