"""How much memory OCFL needs for 30 clients and a network of 25 million parameters: all of a run, in one process.

The clients have few samples each, so that it takes a minute; memory does not depend on them. `--write` puts the result into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
from torch import nn

import ilk
from ilk.bench import put
from ilk.bench.common import processor
from ilk.methods.ocfl import OCFL

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
CLIENTS, PROMISE = 30, 4.0


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """25 million parameters, as many as OCFL's own network has, most of them in one layer."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 5000),
        nn.ReLU(),
        nn.Linear(5000, 5000),
        nn.ReLU(),
        nn.Linear(5000, classes),
    )


def clients() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return three groups of clients that call the same things differently."""
    random = np.random.default_rng(0)
    made = {}
    for k in range(CLIENTS):
        y = np.arange(24) % 3
        made[f"c{k:02d}"] = (random.normal(size=(24, 60)).astype(np.float32) + 2 * y[:, None], (y + k % 3) % 3)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--k", type=int, default=3, help="clusters that k-means makes (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    given = parser.parse_args()
    sys.modules["large_models"] = sys.modules["__main__"]  # the network is found by its name
    lines: list[str] = []

    def listen(row) -> None:
        lines.append(f"round {row['round']}: {row['clusters']} clusters, peak so far {peak():.2f} GiB")

    method = OCFL(grouping="kmeans", k=given.k, local=ilk.LocalSGD(epochs=1, lr=0.05))
    with tempfile.TemporaryDirectory() as folder:
        run = ilk.run(
            method,
            ilk.from_arrays(clients()),
            rounds=given.rounds,
            model="large_models:network",
            engine="inline",
            on_round=listen,
            out=Path(folder) / "run",
        )
    size = run.state.models.shape[1]
    text = "\n".join(
        [
            f"{processor()}",
            f"OCFL, {CLIENTS} clients, {size:,} parameters: the updates alone are {CLIENTS * size * 4 / 2**30:.2f} GiB",
            *lines,
            f"promised: {PROMISE:g} GiB for the whole process in the round of clustering",
        ]
    )
    print(text)
    if given.write:
        put(PAGE, "large-models", text)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
