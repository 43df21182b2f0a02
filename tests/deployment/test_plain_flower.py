"""For operators who know Flower: its own programs and `flwr run`, with the folders and the app of this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ilk.engines.flower
from ilk.engines.flower.quiet import OFF
from ilk.engines.flower.run import JOB

from .conftest import PROGRAM
from .test_runs import inline

pytestmark = pytest.mark.deployment
BIN = Path(sys.executable).parent
APP = Path(ilk.engines.flower.__path__[0]) / "app"


def test_flwr_run_plays_the_job_that_serve_writes(federation, monkeypatch):
    here = federation("a", "b")
    dep, server = here.folder / "dep", here.folder / "dep" / "server"
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FLWR_HOME", str(here.folder / "home"))
    (here.folder / "home").mkdir()
    (here.folder / "home" / "config.toml").write_text(
        f'[superlink.link]\naddress = "127.0.0.1:{here.port}"\nroot-certificates = "{server / "ca.crt"}"\n'
    )

    def flwr(*line):
        done = subprocess.run(
            [str(BIN / "flwr"), *line],
            cwd=here.folder,
            env={**os.environ, **OFF},
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    serve = [*PROGRAM, "serve", "dep", "--method", "fedavg", "--rounds", "1", "--epochs", "1", "--only-write"]
    subprocess.run(serve, cwd=here.folder, check=True, timeout=60)
    assert (server / JOB).exists()
    certified = [
        "--ssl-certfile",
        server / "tls.crt",
        "--ssl-keyfile",
        server / "tls.key",
        "--ssl-ca-certfile",
        server / "ca.crt",
    ]
    here.start("link", [BIN / "flower-superlink", "--enable-supernode-auth", "--port", str(here.port), *certified])
    here.until(
        lambda: "Uvicorn running" in here.told("link") or "startup complete" in here.told("link"), 60, "Flower is up"
    )
    for k, name in enumerate(here.names):
        flwr("supernode", "register", str(server / "clients" / f"{name}.pub"), "link")
        config = f'name="{name}" data="{here.folder / "data"}" folder="{dep / name}"'
        where = ["--superlink", f"127.0.0.1:{here.port}", "--port", str(here.port + 1 + k)]
        key = ["--auth-supernode-private-key", dep / name / "node.key", "--root-certificates", dep / name / "ca.crt"]
        here.start(name, [BIN / "flower-supernode", *where, *key, "--node-config", config])
    flwr("run", str(APP), "link", "--run-config", f'folder="{server}"')
    here.until((server / "outcome.json").exists, 200, "the run ends")
    run = ilk.Run.load(server / "run")
    same = inline(here, "fedavg", rounds=1)
    assert run.model_digest == same.model_digest
    assert run.ledger.entries == same.ledger.entries
