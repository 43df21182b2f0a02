"""On how many federations does PACFL's default rule find the true groups exactly? And what does it do under label skew?

Two tables for docs/split-half.md. The first asks clients of many federations with known groups (federations.py) to sign, and
groups them, as PACFL does at its start: by the default rule, and by the one that came first (three vectors, the smallest
principal angle, WPGMA, one threshold for all), in two readings. No model is trained. The second (--label-skew) trains.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import ilk
from federations import Cell, limits, make, plan
from ilk.bench.common import processor
from ilk.client import Setting
from ilk.clusters import linkage, split_half
from ilk.engines import Inline, one_thread
from ilk.methods.fedavg import FedAvg
from ilk.methods.pacfl import PACFL, PACFLState
from ilk.methods.solo import Solo
from ilk.server import Server
from ilk.tasks import Sign

PAGE = Path(__file__).parent.parent / "docs" / "split-half.md"
FRESH = 1000  # lower seeds were used while the rule was made and first judged
FIRST = PACFL(vectors=3, distance="principal", linkage="wpgma")
RULES = {"default": "default", "first": "first rule", "options": "first rule by options"}
FOLD = "<details>\n<summary>Every family of the summary</summary>"
SKEWS = ("label-skew:0.2", "label-skew:0.5")  # two and five of ten labels a client


@dataclass
class Tally:
    """What came out of a cell."""

    cell: Cell
    tried: int = 0
    right: Counter[str] = field(default_factory=Counter)
    found: dict[str, list[int]] = field(default_factory=dict)  # numbers of clusters, where wrong or where no truth
    skipped: str = ""

    def count(self, rule: str, cluster: np.ndarray, groups: np.ndarray | None) -> None:
        """Note what a rule found."""
        exact = groups is not None and adjusted_rand_score(groups, cluster) == 1
        self.right[rule] += exact
        if not exact:
            self.found.setdefault(rule, []).append(len(np.unique(cluster)))


def cells(given: argparse.Namespace) -> list[Cell]:
    """Return what was asked for."""
    wanted = [cell for cell in (*plan(), *limits()) if re.search(given.families, cell.family.name)]
    if not wanted:
        raise SystemExit(f"--families {given.families!r} fits no family, such as: {next(plan()).family.name}")
    return [replace(cell, seeds=1) for cell in wanted] if given.quick else wanted


def group(federation: ilk.Federation, seed: int) -> dict[str, np.ndarray]:
    """Let the clients sign, and return the cluster that each rule puts each into, before the first round."""
    engine, setting = Inline(), Setting(federation, "mlp", seed)
    engine.open(setting)
    server = Server(setting, engine)
    first = FIRST.start(server)
    return {"default": PACFL().start(server).cluster, "first": first_rule(server, first), "options": first.cluster}


def first_rule(server: Server, signed: PACFLState) -> np.ndarray:
    """Cut the tree at 0.85 times the 90th percentile over all clients and all their halves.

    PACFL's clients send the mean over their halves only, and the percentile of means is a lower one. So they are asked
    for one pair of halves at a time, in rounds of their own.
    """
    task, angles = Sign("whole", 3, "principal", repeats=1), []
    for server.round in range(1, FIRST.repeats + 1):
        angles.append(server.ask(task, server.everyone, {})["noise"])
    merges = linkage.tree(signed.distance, FIRST.linkage)
    return linkage.cut_at(merges, split_half.angle_threshold(np.concatenate(angles)))


def judge(cell: Cell, first: int) -> Tally:
    """Try the rules on a cell's federations."""
    tally = Tally(cell)
    for seed in range(first, first + cell.seeds):
        try:
            federation = make(cell.family, seed)
        except ilk.IlkError as error:
            tally.skipped = str(error).splitlines()[0]
            return tally
        tally.tried += 1
        for rule, cluster in group(federation, seed).items():
            tally.count(rule, cluster, federation.groups)
    return tally


def measure(given: argparse.Namespace) -> list[Tally]:
    """Fill the table, and say on stderr how far it is."""
    tallies, began = [], time.perf_counter()
    for cell in cells(given):
        tallies.append(tally := judge(cell, given.seeds))
        what = tally.skipped or f"{tally.tried} tried, right: {dict(tally.right)}"
        print(f"{time.perf_counter() - began:5.0f} s  {cell.family.name}: {what}", file=sys.stderr, flush=True)
    return tallies


def summary(tallies: Sequence[Tally]) -> dict[tuple[str, str], Counter[str]]:
    """Count by chapter and kind of structure, then all; only what was planned, not the known limits."""
    planned = {cell.family for cell in plan()}
    lines: dict[tuple[str, str], Counter[str]] = {}
    everything: Counter[str] = Counter()
    for tally in tallies:
        if tally.cell.family in planned and tally.tried:
            counted = Counter({"tried": tally.tried, **tally.right})
            lines.setdefault(tally.cell.heading, Counter()).update(counted)
            everything.update(counted)
    order = list(dict.fromkeys(cell.chapter for cell in plan()))
    lines = {key: lines[key] for key in sorted(lines, key=lambda key: order.index(key[0]))}  # a stable sort
    return {**lines, ("**all**", ""): everything} if lines else {}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def text_of(tallies: Sequence[Tally]) -> str:
    """The summary, the known limits, and every family."""
    short = [(*key, line["tried"], *(line[rule] for rule in RULES)) for key, line in summary(tallies).items()]
    skipped = sorted({f"{tally.cell.family.data} left out: {tally.skipped}" for tally in tallies if tally.skipped})
    planned = {cell.family for cell in plan()}
    usual = [tally for tally in tallies if tally.tried and tally.cell.family in planned]
    beyond = [tally for tally in tallies if tally.tried and tally.cell.family not in planned]
    head = ("federation", "tried", *RULES.values(), "clusters where the default was wrong")
    blocks = [
        table(("clients", "groups", "tried", *RULES.values()), short) if short else "",
        *skipped,
        f"Known limits, not counted above:\n\n{table(head, [row(tally) for tally in beyond])}" if beyond else "",
        f"{FOLD}\n\n{table(head, [row(tally) for tally in usual])}\n\n</details>" if usual else "",
    ]
    return "\n\n".join(block for block in blocks if block)


def row(tally: Tally) -> tuple[object, ...]:
    """A family's line in the full table; under label skew, where nothing is right or wrong, the numbers of clusters."""
    family = tally.cell.family
    if family.kind == "skew":
        counts = [", ".join(map(str, sorted(tally.found[rule]))) + " clusters" for rule in RULES]
        return (family.name, tally.tried, *counts, "")
    wrong = Counter(tally.found.get("default", []))
    errors = ", ".join(
        f"{found} for {family.groups}" + (f" ({n} times)" if n > 1 else "") for found, n in wrong.items()
    )
    return (family.name, tally.tried, *(tally.right[rule] for rule in RULES), errors)


def plain(tally: Tally) -> dict[str, Any]:
    """A family's result as plain values."""
    cell = tally.cell
    right = {rule: tally.right[rule] for rule in RULES}
    return {
        "family": cell.family.name,
        "chapter": cell.chapter,
        "groups": None if cell.family.kind == "skew" else cell.family.groups,
        "tried": tally.tried,
        "right": right,
        "clusters_where_not_right": tally.found,
        "skipped": tally.skipped or None,
    }


def compared(local: ilk.LocalSGD) -> dict[str, ilk.Method[Any]]:
    """The methods that are compared under label skew."""
    forced = {f"PACFL, clusters={k}": PACFL(local=local, clusters=k) for k in (1, 2, 4, 10)}
    return {"SOLO": Solo(local=local), "FedAvg": FedAvg(local=local), "PACFL": PACFL(local=local), **forced}


def label_skew(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Train under label skew; return each method's accuracy and number of clusters, a value for each seed."""
    seeds, rounds, epochs = (1, 2, 1) if given.quick else (3, 20, 10)
    found = []
    for split, (name, method) in product(SKEWS, compared(ilk.LocalSGD(epochs=epochs)).items()):
        print(f"{split}: {name}", file=sys.stderr, flush=True)
        runs = [
            ilk.run(method, ilk.federation("digits", split=split, seed=seed), seed=seed, rounds=rounds, engine="inline")
            for seed in range(given.seeds, given.seeds + seeds)
        ]
        accuracy, clusters = [run.accuracy for run in runs], [len(run.clusters) for run in runs]
        asked = {"split": split, "method": name, "rounds": rounds, "epochs": epochs}
        found.append({**asked, "accuracy": accuracy, "clusters": clusters})
    return found


def skew_text(rows: Sequence[Mapping[str, Any]], first: int) -> str:
    """The table of the experiment under label skew, and what was played."""
    lines = []
    for r in rows:
        accuracies = (f"{a:.3f}" for a in (np.mean(r["accuracy"]), *r["accuracy"]))
        lines.append((f"`{r['split']}`", r["method"], ", ".join(map(str, r["clusters"])), *accuracies))
    seeds = [f"seed {first + i}" for i in range(len(rows[0]["accuracy"]))]
    said = (
        f"digits, 40 clients, all asked in each of {rows[0]['rounds']} rounds, MLP, {rows[0]['epochs']} epochs of batches "
        "of 10. Mean accuracy over clients; protocol `served`, test policy `own`."
    )
    return f"{said}\n\n{table(('split', 'method', 'clusters', 'accuracy', *seeds), lines)}"


def arguments() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=FRESH, metavar="FIRST", help="first seed (default: %(default)s)")
    parser.add_argument("--families", default="", metavar="REGEX", help="only families whose names it is found in")
    parser.add_argument(
        "--quick", action="store_true", help="one federation a family; two rounds of one epoch under label skew"
    )
    parser.add_argument("--label-skew", action="store_true", help="the experiment under label skew instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=PAGE, help=f"put the result into a page (default: {PAGE})"
    )
    return parser


def write(page: Path, name: str, text: str) -> None:
    """Replace what is between the two marker lines of a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no lines {begin} and {end}.")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> None:
    """Measure, print, and write if that was asked for."""
    given, began = arguments().parse_args(), time.process_time()
    command = shlex.join(["python", "benchmarks/split_half.py", *sys.argv[1:]])
    with one_thread():
        if given.label_skew:
            name, rows = "label-skew", label_skew(given)
            result, text = {"rows": rows}, skew_text(rows, given.seeds)
        else:
            name, tallies = "split-half", measure(given)
            lines = [{"clients": a, "groups": b, **line} for (a, b), line in summary(tallies).items()]
            result, text = {"families": [plain(tally) for tally in tallies], "summary": lines}, text_of(tallies)
    seconds, date = round(time.process_time() - began), datetime.now(UTC).date().isoformat()
    result |= {"command": command, "first_seed": given.seeds, "date": date, "seconds": seconds, "machine": processor()}
    print(json.dumps(result) if given.json else text)
    if given.write:
        stamp = f"`{command}`, {date}, seeds from {given.seeds}, {seconds} s of CPU time ({processor()})."
        write(given.write, name, f"{stamp}\n\n{text}")


if __name__ == "__main__":
    main()
