"""Flower's simulation engine on the same FedAvg rounds as ilk's own engines, and as the bare PyTorch loop on one core."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ilk.bench.common import Busy, Player, arguments, busy_text, experiment, median, setting_of
from ilk.bench.overhead import Bare
from ilk.engines import make_engine, one_thread

ENGINES = ("workers", "flower-sim")


def options(parser: argparse.ArgumentParser) -> None:
    """Add this part's options."""
    arguments(parser, rounds=3)
    parser.add_argument("--workers", type=int, default=2, help="processes of either engine (%(default)s)")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Play the rounds on each engine, in turns; return all figures."""
    setting, players = setting_of(given), {}
    bare, busy = Bare(setting, given), Busy()
    times: dict[str, list[float]] = {name: [] for name in (*ENGINES, "bare")}
    with tempfile.TemporaryDirectory() as folder, one_thread():
        try:
            for name in ENGINES:
                players[name] = Player(make_engine(name, given.workers), setting, given, Path(folder) / name)
                players[name].warm_up()
            for round in range(1, given.rounds + 1):
                for name, player in players.items():
                    began = time.perf_counter()
                    player.round(round)
                    times[name].append(time.perf_counter() - began)
                began = time.perf_counter()
                for k in player.cohort(round):
                    bare.fit(int(k), bare.weights_of(player.state.models[0]), round)
                times["bare"].append(time.perf_counter() - began)
        finally:
            for player in players.values():
                player.close()
    seconds = {name: median(values) for name, values in times.items()}
    ratios = {name: median(np.array(times["bare"]) / np.array(times[name])) for name in ENGINES}
    return {"seconds": seconds, "ratios": ratios, "experiment": experiment(setting, given), "busy": busy()}


def words(found: Mapping[str, Any], given: argparse.Namespace) -> str:
    """Say it in a few lines."""
    lines = [found["experiment"], f"bare loop, one core  {found['seconds']['bare']:8.3f} s a round"]
    lines += [
        f"{name} ({given.workers}){'':<{14 - len(name)}} {found['seconds'][name]:8.3f} s a round: x{ratio:.1f}"
        for name, ratio in found["ratios"].items()
    ]
    return "\n".join([*lines, busy_text(found["busy"])])
