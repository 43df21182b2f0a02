"""What native training gains: the same batches by the kernels and by a bare PyTorch loop, in turns, on one core.

First client by client for three networks, on every instruction set that the machine has; then whole rounds on the engine
`workers` with two processes, against the bare loop that trains the same clients on one core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ilk
from ilk import models
from ilk.bench.common import Busy, Player, arguments, busy_text, fedavg, median, setting_of
from ilk.bench.overhead import SAME, Bare
from ilk.client import Place
from ilk.engines import Workers, one_thread
from ilk.errors import IlkError
from ilk.native.choose import HOW_TO_BUILD, NOT_BUILT, VARIABLE, sets
from ilk.params import Vector


@dataclass(frozen=True)
class Case:
    """A network and the data that it is for, with what is promised."""

    title: str
    data: str
    model: str
    clients: int
    promise: float


CASES = (
    Case("LeNet-5, 28x28x1", "fashion-mnist", "lenet5", 100, 5),
    Case("LeNet-5, 32x32x3", "cifar10", "lenet5", 100, 4),
    Case("MLP 64-64-10", "digits", "mlp", 40, 5),
)
PROMISE_ROUND = 9.0  # of two workers, over the bare loop on one core


@contextmanager
def instructions(name: str) -> Iterator[None]:
    """Use this instruction set."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = name
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def of_case(case: Case, given: argparse.Namespace) -> argparse.Namespace:
    """Return the options of this case."""
    own = {"data": case.data, "model": case.model, "clients": case.clients, "compute": "native"}
    return argparse.Namespace(**{**vars(given), **own})


def steps(case: Case, given: argparse.Namespace, repeats: int) -> dict[str, Any]:
    """Train some clients in turns by the bare loop and on every instruction set; return seconds a step and their ratios.

    That both do the same is looked at after one epoch: in many, one maximum that two roundings find in two places is
    enough for them to part, as PyTorch parts from itself in double precision.
    """
    asked = of_case(case, given)
    setting, local = setting_of(asked), fedavg(asked).local
    bare, places = Bare(setting, asked), {}
    for name in sets():
        with instructions(name):
            places[name] = Place(setting)
    start = models.build(setting.model, setting.federation.shape, setting.federation.classes, setting.seed).read()
    times: dict[str, list[float]] = {name: [] for name in ("bare", *places)}
    differences = []

    def train(who: str, client: int, round: int, local: ilk.LocalSGD) -> tuple[Vector, float]:
        bare.given, weights = argparse.Namespace(**{**vars(asked), "epochs": local.epochs}), bare.weights_of(start)
        began = time.perf_counter()
        if who != "bare":
            return local.train(places[who].client(client, round, {}), start), time.perf_counter() - began
        weights = bare.fit(client, weights, round)
        return torch.cat([t.reshape(-1) for t in weights]).numpy(), time.perf_counter() - began

    for repeat in range(repeats):
        client = repeat % len(bare.sizes)
        once = {who: train(who, client, repeat, replace(local, epochs=1))[0] for who in times}
        differences += [float(np.abs(once[name] - once["bare"]).max()) for name in places]
        for who, seconds in times.items():
            seconds.append(train(who, client, repeat, local)[1] / local.steps(bare.sizes[client]))
    return {
        "title": case.title,
        "promise": case.promise,
        "seconds": {name: median(values) for name, values in times.items()},
        "ratios": {name: median(np.array(times["bare"]) / np.array(times[name])) for name in places},
        "difference": median(differences),
        "largest_difference": max(differences),
    }


def rounds(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play whole rounds on two workers, in turns with the bare loop over the same clients on one core."""
    setting = setting_of(argparse.Namespace(**{**vars(given), "compute": "native"}))
    bare, player = Bare(setting, given), Player(Workers(given.workers), setting, given, folder)
    took = []
    try:
        player.warm_up()
        for round in range(1, given.rounds + 1):
            weights, began = bare.weights_of(player.state.models[0]), time.perf_counter()
            player.round(round)
            ilk_seconds, began = time.perf_counter() - began, time.perf_counter()
            for k in player.cohort(round):
                bare.fit(int(k), weights, round)
            took.append((ilk_seconds, time.perf_counter() - began))
    finally:
        player.close()
    seconds = np.array(took)
    return {
        "workers": given.workers,
        "promise": PROMISE_ROUND,
        "seconds_workers": median(seconds[:, 0]),
        "seconds_bare": median(seconds[:, 1]),
        "ratio": median(seconds[:, 1] / seconds[:, 0]),
    }


def words(found: Mapping[str, Any], given: argparse.Namespace) -> str:
    """Say it in a few lines."""
    lines = []
    for case in found["cases"]:
        seconds = case["seconds"]
        sets = ", ".join(
            f"{name} {1e6 * seconds[name]:.1f} µs (x{ratio:.1f})" for name, ratio in case["ratios"].items()
        )
        lines += [
            f"{case['title']}: a step of the bare loop {1e6 * seconds['bare']:.0f} µs, of {sets}",
            f"    promised: x{case['promise']:g}; after an epoch the models differ by {case['difference']:.0e}, at most "
            f"{case['largest_difference']:.0e}",
        ]
    whole = found["round"]
    lines.append(
        f"a round on {whole['workers']} workers {whole['seconds_workers']:.3f} s, by the bare loop on one core "
        f"{whole['seconds_bare']:.3f} s: x{whole['ratio']:.1f}; promised: x{whole['promise']:g}"
    )
    return "\n".join([*lines, busy_text(found["busy"])])


def options(parser: argparse.ArgumentParser) -> None:
    """Add this part's options."""
    arguments(parser, rounds=5)
    parser.add_argument("--workers", type=int, default=2, help="worker processes (%(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="clients trained of each case (%(default)s)")
    titles = [case.title for case in CASES]
    parser.add_argument("--cases", nargs="+", default=titles, choices=titles, help="networks (all)")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Measure all of it."""
    if not sets():
        raise IlkError(f"{NOT_BUILT}: there is nothing to measure. {HOW_TO_BUILD}.")
    with tempfile.TemporaryDirectory() as folder, one_thread():
        busy = Busy()
        cases = [steps(case, given, given.repeats) for case in CASES if case.title in given.cases]
        found = {"cases": cases, "round": rounds(given, Path(folder) / "run"), "busy": busy()}
    parted = max(case["difference"] for case in cases)
    if not parted <= SAME:  # a few may be further apart: a kink of the loss, met at another rounding
        raise IlkError(f"The two did not do the same: their models differ by {parted:.1e}.")
    return found
