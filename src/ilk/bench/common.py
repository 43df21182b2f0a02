"""What the benchmarks share: the experiment, a round as `ilk run` plays it, and how a machine and its load are described."""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import ilk
from ilk import models
from ilk.client import Setting
from ilk.data import datasets
from ilk.data.federation import Federation
from ilk.engines import Engine, cores
from ilk.ledger import Ledger
from ilk.methods.fedavg import FedAvg
from ilk.native import instruction_set, resolve
from ilk.runs.folder import RunFolder
from ilk.runs.run import cohort_of
from ilk.server import Server

MADE = {"fashion-mnist": (1, 28, 28), "mnist": (1, 28, 28), "cifar10": (3, 32, 32), "svhn": (3, 32, 32)}
EACH = 600  # training samples of a client with made images


def arguments(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add the options that all rounds of FedAvg have."""
    parser.add_argument(
        "--data", default="fashion-mnist", help="data set; made images where it is not here (%(default)s)"
    )
    parser.add_argument("--split", default="label-skew:0.2", help="how it is split (%(default)s)")
    parser.add_argument("--clients", type=int, default=100, help="clients (%(default)s)")
    parser.add_argument("--cohort", type=float, default=0.1, help="fraction asked each round (%(default)s)")
    parser.add_argument("--model", default="auto", help="lenet5, mlp or auto (%(default)s)")
    parser.add_argument(
        "--compute", choices=("auto", "native", "torch"), default="auto", help="what trains (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=10, help="local epochs (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=10, help="samples a step (%(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds measured (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")


def setting_of(given: argparse.Namespace) -> Setting:
    """Return the experiment that was asked for."""
    federation = federation_of(given, test_policy="label-set")  # the one with most to evaluate
    model = models.choose(given.model, federation.shape)
    net = models.build(model, federation.shape, federation.classes, given.seed)
    return Setting(federation, model, given.seed, compute=resolve(net, federation.shape, given.compute))


def federation_of(given: argparse.Namespace, **more: Any) -> Federation:
    """Return the federation that was asked for; where the files of its data set are not here, one of made images."""
    here = {listing.name for listing in datasets.catalogue() if listing.available_from}
    if given.data in MADE and given.data not in here:
        return _made(MADE[given.data], given)
    return ilk.federation(given.data, split=given.split, clients=given.clients, seed=given.seed, **more)


def _made(shape: tuple[int, ...], given: argparse.Namespace) -> Federation:
    """Return clients with images of two classes each, half of whose pixels are dark, as in Fashion-MNIST."""
    random = np.random.default_rng(given.seed)
    means = np.maximum(random.normal(size=(10, *shape)), 0).astype(np.float32)

    def draw(client: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        y = (client + random.integers(2, size=count)) % 10
        return np.maximum(means[y] + random.normal(size=(count, *shape), scale=0.3).astype(np.float32), 0), y

    each = max(EACH * 100 // 90, 10)  # a tenth is for validation
    return ilk.from_arrays({f"c{k:02d}": (*draw(k, each), *draw(k, 100)) for k in range(given.clients)})


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
    data = (
        f"{given.data}, {given.split}" if setting.federation.partition.data != "arrays" else f"made {given.data} images"
    )
    return (
        f"FedAvg, {data}, {given.clients} clients, cohort {given.cohort:g}, {setting.model}, "
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
