"""What ilk costs: a FedAvg round on the engine `inline` against a bare PyTorch loop over the very same batches.

Both train client by client in turns, in one process and on one thread, so that a busy machine slows both. ilk's round is
all of it: reading data, training, averaging, ledger, checkpoint. The bare loop has its tensors ready and only trains.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ilk import models
from ilk.bench.common import Busy, Player, arguments, busy_text, experiment, median, setting_of
from ilk.client import Message, Setting
from ilk.engines import Inline, one_thread
from ilk.errors import IlkError
from ilk.evaluate import evaluate
from ilk.native import Native
from ilk.params import Vector
from ilk.randomness import stream
from ilk.server import Answer
from ilk.tasks import Evaluate
from ilk.tasks.task import Task

PROMISE, SAME = 1.10, 1e-5
MOST = 0.10  # of a native round may be something else than the fit


class Bare:
    """Local training as a good PyTorch user writes it: tensors prepared once, the stock optimiser, no ``.item()``."""

    def __init__(self, setting: Setting, given: argparse.Namespace) -> None:
        federation = setting.federation
        self.setting, self.given, self.ids = setting, given, federation.ids
        read = (federation.read(k, "train") for k in range(len(federation.ids)))
        self.data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in read]
        self.sizes = [len(y) for _, y in self.data]
        net = models.build(setting.model, federation.shape, federation.classes, setting.seed)
        self.module: nn.Module = net.module
        for parameter in self.module.parameters():  # not views into one vector, as an ordinary module's are not
            parameter.data, parameter.grad = parameter.data.clone(), None

    def fit(self, client: int, start: list[torch.Tensor], round: int) -> list[torch.Tensor]:
        """Train one client from these weights; return those that it ends with."""
        x, y = self.data[client]
        order = stream(self.setting.seed, "batches", round, self.ids[client])
        module, size = self.module, self.given.batch_size
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), start, strict=True):
                parameter.copy_(value)
        optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.5)
        module.train()
        for _ in range(self.given.epochs):
            shuffled = torch.from_numpy(order.permutation(len(y)))
            for inputs, labels in zip(torch.split(x[shuffled], size), torch.split(y[shuffled], size), strict=True):
                optimiser.zero_grad(set_to_none=True)
                loss = cross_entropy(module(inputs), labels)
                loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves backward without types
                optimiser.step()
        return [parameter.detach().clone() for parameter in module.parameters()]

    def steps(self, client: int) -> int:
        """How many SGD steps a fit of this client takes."""
        return int(self.given.epochs * -(-self.sizes[client] // self.given.batch_size))

    def weights_of(self, model: Vector) -> list[torch.Tensor]:
        """Return a flat model as this loop's weights."""
        parts = torch.split(torch.from_numpy(model), [p.numel() for p in self.module.parameters()])
        return [part.view(p.shape) for part, p in zip(parts, self.module.parameters(), strict=True)]


class Timed:
    """Native training that adds up how long it takes; in the place of `net.native`."""

    def __init__(self, native: Native) -> None:
        self.native, self.seconds = native, 0.0

    def fit(self, *arguments: Any, **options: Any) -> Any:
        """Train, and take the time."""
        began = time.perf_counter()
        result = self.native.fit(*arguments, **options)
        self.seconds += time.perf_counter() - began
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


class InTurns(Inline):
    """The engine `inline` that lets the bare loop train each client too, before or after, and keeps both times."""

    def __init__(self, bare: Bare) -> None:
        self.bare = bare
        self.slices: list[tuple[tuple[float, float], tuple[float, float]]] = []  # ilk's, the bare loop's: (wall, CPU)
        self.differences: list[float] = []  # between the two models of a client

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterator[Answer]:
        """Answer for one client after the other, in turns with the bare loop; evaluation is for ilk alone."""
        if isinstance(task, Evaluate):
            yield from super().ask(task, messages, round)
            return
        for index, message in messages.items():
            took, weights = {}, self.bare.weights_of(message["models"][0])
            for who in ("ilk", "bare") if len(self.slices) % 2 else ("bare", "ilk"):
                wall, cpu = time.perf_counter(), time.process_time()
                if who == "ilk":
                    [answer] = super().ask(task, {index: message}, round)
                else:
                    trained = self.bare.fit(index, weights, round)
                took[who] = time.perf_counter() - wall, time.process_time() - cpu
            self.slices.append((took["ilk"], took["bare"]))
            apart = torch.cat([weight.reshape(-1) for weight in trained]).numpy() - answer.message["model"]
            self.differences.append(float(np.abs(apart).max()))
            yield answer


def options(parser: argparse.ArgumentParser) -> None:
    """Add this part's options."""
    arguments(parser, rounds=5)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Play the rounds; return all figures."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        found = _measure(given, Path(folder) / "run")
    if not found["difference"] <= SAME:  # a few may be further apart: a kink of the loss, met at another rounding
        raise IlkError(f"The two did not do the same: their models differ by {found['difference']:.1e}.")
    return found


def _measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    setting = setting_of(given)
    bare = Bare(setting, given)
    engine = InTurns(bare)
    player = Player(engine, setting, given, folder)
    player.warm_up()
    native = engine.place.net.native
    timed = Timed(native) if native else None
    engine.place.net.native = cast(Any, timed)
    engine.differences = []
    busy, fits, rests, evaluations = Busy(), [], [], []
    played = range(1, given.rounds + 1)
    for round in played:
        engine.slices = []
        began = np.array([time.perf_counter(), time.process_time()])
        player.round(round)
        whole = np.array([time.perf_counter(), time.process_time()]) - began
        fits.append(engine.slices)
        rests.append(whole - np.sum(engine.slices, axis=(0, 1)))  # what no client did: averaging, ledger, disk
        evaluated = time.perf_counter()
        evaluate(engine, player.method, player.state, "served", round)
        evaluations.append(time.perf_counter() - evaluated)
    player.close()
    times = np.array(fits)  # rounds x clients x (ilk, bare) x (wall, CPU)
    bare_round = times[:, :, 1].sum(axis=1).mean(axis=0)
    overheads = [median(rest) / whole for rest, whole in zip(np.transpose(rests), bare_round, strict=True)]
    ratios = np.median(times[:, :, 0] / times[:, :, 1], axis=(0, 1)) + overheads
    ilk_round = float(times[..., 0, 0].sum(axis=1).mean() + median([rest[0] for rest in rests]))
    quartiles = np.percentile(times[..., 0, 0] / times[..., 1, 0], [25, 75])
    return {
        "ratio": float(ratios[0]),
        "ratio_cpu": float(ratios[1]),
        "promise": PROMISE,
        "ratio_quartiles": quartiles.tolist(),
        "seconds_ilk": ilk_round,
        "share_beside_fit": 1 - timed.seconds / given.rounds / ilk_round if timed else None,
        "seconds_bare": float(bare_round[0]),
        "seconds_outside_clients": median([rest[0] for rest in rests]),
        "seconds_evaluation": median(evaluations),
        "steps_per_round": float(np.mean([sum(bare.steps(int(k)) for k in player.cohort(r)) for r in played])),
        "difference": median(engine.differences),
        "largest_difference": max(engine.differences),
        "experiment": experiment(setting, given),
        "busy": busy(),
    }


def words(found: Mapping[str, Any], given: argparse.Namespace) -> str:
    """Say it in a few lines."""
    low, high = found["ratio_quartiles"]
    native = found["share_beside_fit"]
    return "\n".join(
        (
            found["experiment"],
            f"ilk   {found['seconds_ilk']:8.3f} s a round, of which {found['seconds_outside_clients']:.3f} s outside the "
            "clients (averaging, ledger, checkpoint)",
            f"bare  {found['seconds_bare']:8.3f} s a round ({found['steps_per_round']:.0f} SGD steps)",
            f"ratio {found['ratio']:8.3f} by the clock (quartiles over clients {low:.3f} to {high:.3f}), "
            f"{found['ratio_cpu']:.3f} in CPU time; "
            + (f"{1 / found['ratio']:.1f} times as fast" if native else f"promised: at most {PROMISE:.2f}"),
            *([f"of a round {native:.1%} is not the fit; promised: at most {MOST:.0%}"] if native else []),
            f"evaluation of all {given.clients} clients, policy label-set: {found['seconds_evaluation']:.3f} s, "
            f"{found['seconds_evaluation'] / found['seconds_ilk']:.0%} of the round; promised natively: at most 20 %",
            f"largest difference between a client's two models: {found['difference']:.1e} (median over fits; at most "
            f"{found['largest_difference']:.1e})",
            busy_text(found["busy"]),
        )
    )
