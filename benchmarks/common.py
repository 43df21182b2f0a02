"""What the benchmarks share: the experiment, a round as `ilk run` plays it, how busy the machine was, the results page."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ilk
from ilk import models
from ilk.client import Setting
from ilk.engines import Engine, cores
from ilk.ledger import Ledger
from ilk.methods.fedavg import FedAvg
from ilk.native import instruction_set, resolve
from ilk.runs.folder import RunFolder
from ilk.runs.run import cohort_of
from ilk.server import Server

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    """Return the options that both benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--data", default="fashion-mnist", help="data set; digits needs no files (default: %(default)s)"
    )
    parser.add_argument("--split", default="label-skew:0.2", help="default: %(default)s")
    parser.add_argument("--clients", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--cohort", type=float, default=0.1, help="fraction asked each round (default: %(default)s)")
    parser.add_argument(
        "--model", default="auto", help="default: %(default)s (lenet5 for Fashion-MNIST, mlp for digits)"
    )
    parser.add_argument(
        "--compute", choices=("auto", "native", "torch"), default="auto", help="what trains (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds measured (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=PAGE, help=f"put the result into a page (default: {PAGE})"
    )
    return parser


def setting_of(given: argparse.Namespace) -> Setting:
    """Return the experiment that was asked for."""
    federation = ilk.federation(given.data, split=given.split, clients=given.clients, seed=given.seed)
    model = models.choose(given.model, federation.shape)
    net = models.build(model, federation.shape, federation.classes, given.seed)
    return Setting(federation, model, given.seed, compute=resolve(net, federation.shape, given.compute))


def fedavg(given: argparse.Namespace) -> FedAvg:
    """Return FedAvg with the training that was asked for."""
    return FedAvg(local=ilk.LocalSGD(epochs=given.epochs, batch_size=given.batch_size, lr=0.01, momentum=0.5))


class Player:
    """A FedAvg run on one engine that is played round by round, kept in a folder as `ilk run` keeps it."""

    def __init__(self, engine: Engine, setting: Setting, given: argparse.Namespace, folder: Path) -> None:
        self.engine, self.given, self.setting, self.method = engine, given, setting, fedavg(given)
        self.folder = RunFolder.create(folder, {"benchmark": engine.name})
        engine.open(setting)
        self.server = Server(setting, engine)
        self.state = self.method.start(self.server)

    def cohort(self, round: int) -> ilk.Cohort:
        """Return who is asked in this round."""
        return cohort_of(round, len(self.setting.federation.ids), self.given.cohort, self.given.seed)

    def round(self, round: int) -> None:
        """Play one round: ask, train, average, count, and make it safe on disk."""
        before = len(self.server.ledger.entries)
        self.server.round = round
        self.state = self.method.round(self.server, self.state, self.cohort(round))
        entries = self.server.ledger.entries[before:]
        self.folder.commit({"round": round}, entries, self.state, self.engine.memories, round)

    def warm_up(self) -> None:
        """Let every place answer once, and forget it."""
        message = {"models": self.state.models}
        for _ in range(2):
            list(self.engine.ask(self.method.training, {0: message, 1: message}, 0))
        self.server.ledger = Ledger()

    def close(self) -> None:
        """Let go of the engine and of the folder."""
        self.engine.close()
        self.folder.close()


class Busy:
    """How much CPU we, and others, used while something was measured (Linux; elsewhere unknown)."""

    def __init__(self) -> None:
        self.load, self.wall = os.getloadavg()[0], time.perf_counter()
        self.everybody, self.ours = _everybody(), _ours()

    def ours_by_process(self) -> list[float]:
        """CPU seconds of this process, then of each child process, since the beginning."""
        now = _ours()
        return [now[pid] - self.ours.get(pid, 0.0) for pid in sorted(now, key=lambda pid: (pid != os.getpid(), pid))]

    def __call__(self) -> dict[str, Any]:
        """Return the cores that other processes used, on average since the beginning, and the load averages."""
        wall, everybody = time.perf_counter() - self.wall, _everybody()
        others = None
        if everybody is not None and self.everybody is not None:
            others = max(everybody - self.everybody - sum(self.ours_by_process()), 0.0) / wall
        loads = {"load_before": self.load, "load_after": os.getloadavg()[0]}
        return {**loads, "cores": cores(), "others_used_cores": others}


def _everybody() -> float | None:
    """CPU seconds that all processes have used so far, and those that the host of a virtual machine gave to others."""
    if not Path("/proc/stat").exists():
        return None
    first = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _ours() -> dict[int, float]:
    """CPU seconds that this process and each of its child processes have used so far."""
    used = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()  # state, parent, ...
        except OSError:
            continue  # it has ended meanwhile
        if os.getpid() in (pid := int(path.parent.name), int(fields[1])):
            used[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def processor() -> str:
    """Name the machine."""
    about = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", about.read_text()) if about.exists() else None
    name = found[1] if found else platform.processor() or platform.machine()
    return (
        f"{name}, {cores()} cores, {platform.system()}, Python {platform.python_version()}, PyTorch {torch.__version__}"
    )


def median(values: Any) -> float:
    """Return the median as a plain number."""
    return float(np.median(np.asarray(values)))


def computed(setting: Setting) -> str:
    """Say what trains: torch, or native and its instruction set."""
    return f"native ({instruction_set()})" if setting.compute == "native" else "torch"


def experiment(setting: Setting, given: argparse.Namespace) -> str:
    """Say what was played."""
    return (
        f"FedAvg, {given.data}, {given.split}, {given.clients} clients, cohort {given.cohort:g}, {setting.model}, "
        f"{computed(setting)}, {given.epochs} epochs of batches of {given.batch_size}; {given.rounds} rounds"
    )


def busy_text(busy: Mapping[str, Any]) -> str:
    """Say how busy the machine was."""
    others = busy["others_used_cores"]
    used = "an unknown share" if others is None else f"{others:.2f}"
    return (
        f"other processes used {used} of {busy['cores']} cores meanwhile; "
        f"load average {busy['load_before']:.2f} before, {busy['load_after']:.2f} after"
    )


def report(name: str, given: argparse.Namespace, result: dict[str, Any], text: str) -> None:
    """Print the result, and put it between its two markers in the page if that was asked for."""
    asked = {key: value for key, value in vars(given).items() if key not in ("json", "write")}
    result |= {"asked": asked, "date": datetime.now(UTC).isoformat(timespec="minutes"), "machine": processor()}
    print(json.dumps(result) if given.json else text)
    if given.write:
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = given.write.read_text().partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise SystemExit(f"{given.write} has no lines {begin} and {end}.")
        block = f"\n```text\n{result['date']}  {result['machine']}\n{text}\n```\n"
        given.write.write_text(before + begin + block + end + after)
