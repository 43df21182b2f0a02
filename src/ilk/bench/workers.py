"""What worker processes gain: the same FedAvg rounds on the engine `workers` and on `inline`, in turns, in one run.

Both end in the same bits, which is checked. On cores that others use too, two workers cannot be twice as fast; how much
others used is measured and printed beside the ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ilk.bench.common import Busy, Player, arguments, busy_text, experiment, median, setting_of
from ilk.engines import Inline, Workers, one_thread
from ilk.errors import IlkError

PROMISE = 1.7  # of two workers on two idle cores


def longest_path(used: Sequence[float]) -> float:
    """CPU seconds of this process and then of the busiest worker: what a round would take if nobody had to wait."""
    return used[0] + max(used[1:], default=0.0) if used else 0.0


def options(parser: argparse.ArgumentParser) -> None:
    """Add this part's options."""
    arguments(parser, rounds=5)
    parser.add_argument("--workers", type=int, default=2, help="worker processes (%(default)s)")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Play the rounds on both engines; return all figures."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        return _measure(given, Path(folder))


def _measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    setting = setting_of(given)
    inline = Player(Inline(), setting, given, folder / "inline")
    began = time.perf_counter()
    workers = Player(Workers(given.workers), setting, given, folder / "workers")
    startup = time.perf_counter() - began
    times: dict[Player, list[float]] = {inline: [], workers: []}
    others: dict[Player, list[float | None]] = {inline: [], workers: []}
    cpu: dict[Player, list[float]] = {inline: [], workers: []}
    try:
        for player in times:
            player.warm_up()
        busy = Busy()
        for round in range(1, given.rounds + 1):
            for player in (inline, workers) if round % 2 else (workers, inline):
                meanwhile, began = Busy(), time.perf_counter()
                player.round(round)
                times[player].append(time.perf_counter() - began)
                others[player].append(meanwhile()["others_used_cores"])
                cpu[player].append(longest_path(meanwhile.ours_by_process()))
            if not np.array_equal(inline.state.models, workers.state.models):
                raise IlkError(f"The two engines do not end round {round} in the same bits.")
        found = {
            "ratio": median(np.array(times[inline]) / np.array(times[workers])),
            "ratio_cpu": median(cpu[inline]) / median(cpu[workers]) if any(cpu[workers]) else None,
            "promise": PROMISE,
            "ratios": (np.array(times[inline]) / np.array(times[workers])).tolist(),
            "seconds_inline": median(times[inline]),
            "seconds_workers": median(times[workers]),
            "seconds_startup": startup,
            "workers": given.workers,
            "others_used_cores_inline": others[inline],
            "others_used_cores_workers": others[workers],
            "experiment": experiment(setting, given),
            "busy": busy(),
        }
    finally:
        inline.close()
        workers.close()
    return found


def words(found: Mapping[str, Any], given: argparse.Namespace) -> str:
    """Say it in a few lines."""
    return "\n".join(
        (
            found["experiment"],
            f"inline      {found['seconds_inline']:8.3f} s a round",
            f"workers ({given.workers}) {found['seconds_workers']:8.3f} s a round (and {found['seconds_startup']:.1f} s to "
            "start them, once a run)",
            f"inline / workers {found['ratio']:.2f} ({min(found['ratios']):.2f} to {max(found['ratios']):.2f} over rounds); "
            f"promised of two on two idle cores: at least {PROMISE:.1f}",
            *([f"by CPU time {found['ratio_cpu']:.2f}: an estimate for idle cores"] if found["ratio_cpu"] else []),
            f"other processes used {_mean(found['others_used_cores_inline'])} cores during inline rounds, "
            f"{_mean(found['others_used_cores_workers'])} during workers rounds",
            busy_text(found["busy"]),
        )
    )


def _mean(used: Sequence[float | None]) -> str:
    known = [value for value in used if value is not None]
    return f"{np.mean(known):.2f}" if known else "an unknown number of"
