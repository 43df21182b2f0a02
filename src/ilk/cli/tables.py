"""What a person reads at the end: one table, and who is with whom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from ilk.cli.console import console
from ilk.runs.result import Run
from ilk.tasks.evaluate import MEANING, POLICY


def show(runs: Sequence[Run], as_json: bool, several: bool) -> None:
    """Print the results: for people on stdout; with `as_json` for programs there, and for people on stderr."""
    out = console(stderr=as_json)
    out.print(results(runs))
    out.print(Text(protocol_in_words(runs[0].config)))
    for line in who_is_with_whom(runs):
        out.print(Text(line), overflow="fold")
    out.print()
    for run in runs:
        if run.folder:
            out.print(Text(f"{run.config['method']:<10} {run.folder}"), soft_wrap=True)
    if as_json:
        found = [run.result() for run in runs]
        print(json.dumps({"runs": found} if several else found[0]), flush=True)


def results(runs: Sequence[Run]) -> Table:
    """Return one row a run: what was reached, over how many clusters, at what cost."""
    config = runs[0].config
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"{config['data']}, {config['split']}, {len(runs[0].ids)} clients, {config['rounds']} rounds",
    )
    table.title_justify = "left"
    table.caption_justify = "left"
    columns = ("method", "accuracy", "worst", "F1", "clusters", "ARI", "MB up", "MB down", "seconds")
    for name in columns:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    seeds = len({run.config["seed"] for run in runs}) > 1
    for run in runs:
        row = run.last
        name = f"{run.config['method']} seed {run.config['seed']}" if seeds else run.config["method"]
        table.add_row(
            name,
            f"{100 * row['accuracy']:.1f} %",
            f"{100 * row['accuracy_worst']:.1f} %",
            f"{row['f1']:.3f}",
            str(row["clusters"]),
            "-" if row["ari"] is None else f"{row['ari']:.2f}",
            f"{run.ledger.total('up') / 1e6:,.1f}",
            f"{run.ledger.total('down') / 1e6:,.1f}",
            f"{sum(r['seconds'] for r in run.history):,.1f}",
        )
    if seeds:
        for name in dict.fromkeys(run.config["method"] for run in runs):
            accuracies = [100 * run.accuracy for run in runs if run.config["method"] == name]
            spread = f"± {np.std(accuracies, ddof=1):.1f}"
            table.add_row(f"{name} mean", f"{np.mean(accuracies):.1f} %", spread, *[""] * 6, style="bold")
    return table


def protocol_in_words(config: Mapping[str, Any]) -> str:
    """Say what an accuracy in the table is."""
    return (
        f"Accuracy: mean over all clients; protocol '{config['protocol']}': {MEANING[config['protocol']]}. "
        f"Test data: '{config['test_policy']}': {POLICY[config['test_policy']]}."
    )


def who_is_with_whom(runs: Sequence[Run], most: int = 8) -> list[str]:
    """Name the clusters of every run that found some: more than one, fewer than clients."""
    lines = []
    for run in runs:
        clusters = run.clusters
        if not 1 < len(clusters) < len(run.ids):
            continue
        truth = run.true_groups
        exact = truth is not None and sorted(map(sorted, truth)) == sorted(map(sorted, clusters))
        found = f": exactly the {len(truth or [])} true groups" if exact else ""
        lines.append(f"\n{run.config['method']} (seed {run.config['seed']}): {len(clusters)} clusters{found}")
        lines += [f"  {i + 1}: {' '.join(members)}" for i, members in enumerate(clusters[:most])]
        if len(clusters) > most:
            lines.append(f"  and {len(clusters) - most} more: see --json")
    return lines
