"""How clustering grows with the clients, what a larger federation costs each client asked, and how much memory a run takes.

Three measurements. Clustering: PACFL's distances and linkage as its start() does them, from signatures that are there
already (a few groups of random spaces), from 100 to 10,000 clients, each size and distance in a process of its own, so
that the peak memory is its own. Federation: CPU time of a round for each client asked, all of it but evaluation, with 100
clients of which 10 are asked, and with ten times as many of both. Memory: proportional set size of all processes of a run
with worker processes, at its peak (Linux).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

import ilk
from ilk.bench.common import Busy, arguments, busy_text, fedavg, federation_of, median
from ilk.client import Message
from ilk.engines import Inline, one_thread
from ilk.methods.pacfl import PACFL
from ilk.server import Answers, Server

GIB = 2**30
PROMISES = {"seconds_1000": 3.0, "seconds_10000": 300.0, "gib_10000": 6.0, "slope": 2.0, "ratio": 1.0, "pss_gib": 1.5}
GROUPS = 20
OURSELVES = (sys.executable, "-m", "ilk.cli", "bench", "scale", "--json")


class Signed:
    """A server all of whose clients have answered already, with made-up signatures."""

    def __init__(self, clients: int, dimensions: int, vectors: int, weighted: bool) -> None:
        random = np.random.default_rng(0)
        groups = random.standard_normal((GROUPS, dimensions, vectors))
        self.ids, self.everyone = tuple(map(str, range(clients))), np.arange(clients)
        self.sizes, self.initial_model = np.full(clients, 100), np.zeros(1000, np.float32)
        messages: list[Message] = []
        for k in range(clients):
            basis = np.linalg.qr(groups[k % GROUPS] + 0.3 * random.standard_normal((dimensions, vectors)))[0]
            signature = basis * vectors**-0.25 if weighted else basis  # so that |B B'| = 1
            messages.append(
                {"signature": signature.astype(np.float32), "noise": np.array(0.28 if weighted else 30, np.float32)}
            )
        self.answers = Answers(self.everyone, self.sizes, tuple(messages))

    def ask(self, *_: Any) -> Answers:
        """Return what came."""
        return self.answers


def cluster(clients: int, distance: Any, given: argparse.Namespace) -> dict[str, Any]:
    """Cluster once, in this process; return time and memory."""
    weighted = distance == "overlap"
    server = Signed(clients, given.dimensions, given.vectors, weighted)
    method = PACFL(distance=distance, vectors=given.vectors)
    before = _peak()
    with one_thread():
        wall, cpu = time.perf_counter(), time.process_time()
        state = method.start(cast(Server, server))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {"clients": clients, "distance": distance, "seconds": wall, "seconds_cpu": cpu, "gib": _peak()}
    return found | {"gib_before": before, "clusters": int(state.cluster.max()) + 1}


def clustering(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Cluster every number of clients by every distance, each in a fresh process."""
    found = []
    for distance in given.distances:
        for clients in given.sizes:
            only = ["--only", f"{distance}:{clients}"]
            shape = ["--dimensions", str(given.dimensions), "--vectors", str(given.vectors)]
            done = subprocess.run([*OURSELVES, *only, *shape], check=True, capture_output=True, text=True)
            found.append(json.loads(done.stdout))
    return found


def slope(rows: list[dict[str, Any]], kind: str) -> float | None:
    """Return the slope of time or memory over clients, on logarithmic scales, from 1,000 clients on."""
    large = [row for row in rows if row["clients"] >= 1000]
    if len(large) < 2:
        return None
    amount = [max(row[kind] - (row["gib_before"] if kind == "gib" else 0.0), 1e-9) for row in large]
    return float(np.polyfit(np.log([row["clients"] for row in large]), np.log(amount), 1)[0])


def per_client_asked(given: argparse.Namespace, clients: int, asked: int, folder: Path) -> list[float]:
    """Return the CPU seconds of each round, divided by the clients that were asked."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((10, 64))

    def drawn() -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(200) % 10
        return (centres[y] + random.standard_normal((200, 64))).astype(np.float32), y

    federation = ilk.from_arrays({f"c{k}": drawn() for k in range(clients)})
    ends: list[float] = []
    ilk.run(
        PACFL(local=fedavg(given).local),
        federation,
        rounds=given.rounds + 2,
        cohort=asked,
        eval_every=given.rounds + 2,
        engine=Inline(),
        out=folder / f"{clients}-{len(list(folder.iterdir()))}",
        on_round=lambda row: ends.append(time.process_time()),
    )
    return list(np.diff(ends[:-1]) / asked)  # the last round is evaluated, the first includes the start


def federation_size(given: argparse.Namespace) -> dict[str, Any]:
    """Measure a small federation and one of ten times the clients in turns; a tenth is asked."""
    clients, asked = given.small, max(given.small // 10, 1)
    small: list[float] = []
    large: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            small += per_client_asked(given, clients, asked, Path(folder))
            large += per_client_asked(given, 10 * clients, 10 * asked, Path(folder))
    return {"seconds_small": median(small), "seconds_large": median(large), "ratio": median(large) / median(small)}


class Pss:
    """The proportional set size of this process and its children, watched from a thread."""

    def __init__(self) -> None:
        self.peak, self.at_peak, self._end = 0, [0], threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch while this lasts."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            now = [_pss(pid) for pid in _family()]
            if sum(now) > self.peak:
                self.peak, self.at_peak = sum(now), now


def memory(given: argparse.Namespace) -> dict[str, Any]:
    """Play a run with worker processes in a fresh process tree; return its peak."""
    federation = federation_of(given, test_policy="label-set")
    pss = Pss()
    with tempfile.TemporaryDirectory() as folder, pss.watched():
        ilk.run(
            PACFL(local=fedavg(given).local),
            federation,
            rounds=given.rounds,
            cohort=given.cohort,
            model=given.model,
            engine="workers",
            workers=given.workers,
            out=Path(folder) / "run",
        )
    return {"pss_gib": pss.peak / GIB, "pss_by_process": [size / GIB for size in pss.at_peak]}


def _peak() -> float:
    """Most memory that this process has had, in GiB. (By `getrusage` a new program begins with its parent's.)"""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) * 1024 / GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def _family() -> list[str]:
    """This process and its children (they have none)."""
    children = Path("/proc/self/task").glob("*/children")
    return ["self", *(pid for path in children for pid in path.read_text().split())]


def _pss(pid: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def options(parser: argparse.ArgumentParser) -> None:
    """Add this part's options."""
    arguments(parser, rounds=3)
    parser.add_argument("--workers", type=int, default=2, help="worker processes (%(default)s)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000], help="clients (%(default)s)"
    )
    parser.add_argument("--distances", nargs="+", default=["overlap", "principal"], help="of PACFL (%(default)s)")
    parser.add_argument("--dimensions", type=int, default=784, help="values of an input (%(default)s)")
    parser.add_argument("--vectors", type=int, default=6, help="vectors of a signature (%(default)s)")
    parser.add_argument("--small", type=int, default=100, help="clients of the small federation (%(default)s)")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # what a process of its own is to measure


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Return all figures; or one, in a process that was begun for it."""
    if given.only:
        distance, _, clients = given.only.partition(":")
        return memory(given) if distance == "memory" else cluster(int(clients), distance, given)
    busy = Busy()
    found: dict[str, Any] = {"promises": PROMISES, "clustering": clustering(given)}
    by_distance = {d: [row for row in found["clustering"] if row["distance"] == d] for d in given.distances}
    found["slopes"] = {
        d: {kind: slope(rows, kind) for kind in ("seconds_cpu", "gib")} for d, rows in by_distance.items()
    }
    found["federation"] = federation_size(given)
    child = [*OURSELVES, "--only", "memory", *_same(given)]
    found["memory"] = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    return found | {"busy": busy()}


def _same(given: argparse.Namespace) -> list[str]:
    names = ("data", "split", "clients", "cohort", "model", "epochs", "batch_size", "rounds", "seed", "workers")
    return [text for name in names for text in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]


def words(found: Mapping[str, Any], given: argparse.Namespace) -> str:
    """Say it in a few lines."""
    lines = [f"PACFL's start from signatures of {given.vectors} vectors in {given.dimensions} dimensions"]
    lines += [
        f"{row['distance']:10} {row['clients']:6d} clients {row['seconds']:8.2f} s ({row['seconds_cpu']:.2f} s CPU), "
        f"peak {row['gib']:.2f} GiB, of which {row['gib_before']:.2f} before; {row['clusters']} clusters"
        for row in found["clustering"]
    ]
    for distance, slopes in found["slopes"].items():
        if None not in slopes.values():
            lines.append(
                f"{distance}: from 1,000 clients on CPU time grows as clients^{slopes['seconds_cpu']:.2f}, "
                f"memory as clients^{slopes['gib']:.2f}; promised: at most 2"
            )
    federation, memory = found["federation"], found["memory"]
    lines += [
        "promised: 1,000 clients in under 3 s; 10,000 in under 5 minutes and 6 GiB on two cores",
        f"a round for each client asked: {1000 * federation['seconds_small']:.2f} ms CPU with {given.small} clients, "
        f"{1000 * federation['seconds_large']:.2f} ms with ten times as many: ratio {federation['ratio']:.2f}; "
        "promised: no more",
        f"{given.data}, {given.clients} clients, {given.workers} workers: {memory['pss_gib']:.2f} GiB over all processes "
        f"({', '.join(f'{size:.2f}' for size in memory['pss_by_process'])}); promised: at most 1.5",
        busy_text(found["busy"]),
    ]
    return "\n".join(lines)
