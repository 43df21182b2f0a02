"""What a person reads at the end: one table, and who is with whom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from ilk.cli.console import console
from ilk.protocols import MEANING, POLICY
from ilk.runs.result import Run


def show(runs: Sequence[Run], as_json: bool, several: bool, report: Path | None = None) -> None:
    """Print the results: for people on stdout; with `as_json` for programs there, and for people on stderr."""
    out = console(stderr=as_json)
    out.print(results(runs, out.width))
    out.print(Text(protocol_in_words(runs[0].config)))
    for leak in dict.fromkeys(f"{run.config['method']}: {leak}" for run in runs for leak in run.config["leaks"]):
        out.print(Text(f"Too high, for test data leak. {leak}."))
    for line in who_is_with_whom(runs):
        out.print(Text(line), overflow="fold")
    out.print()
    for run in runs:
        if run.folder:
            out.print(Text(f"{run.config['method']:<10} {run.folder}"), soft_wrap=True)
    if report:
        out.print(Text(f"{'report':<10} {report}"), soft_wrap=True)
    if as_json:
        found = [run.result() for run in runs]
        print(json.dumps({"runs": found} if several else found[0]), flush=True)


def results(runs: Sequence[Run], width: int) -> Table:
    """Return one row a run: what was reached, over how many clusters, at what cost. Narrow terminals get fewer columns."""
    config = runs[0].config
    title = f"{config['data']}, {config['split']}, {len(runs[0].ids)} clients, {config['rounds']} rounds"
    rows = [_row(run) for run in runs]
    if len({run.config["seed"] for run in runs}) > 1:
        for row, run in zip(rows, runs, strict=True):
            row["method"] += f" seed {run.config['seed']}"
        rows += [_mean(name, runs) for name in dict.fromkeys(run.config["method"] for run in runs)]
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row.get(c, "")) for row in rows)) for c in columns}
    while len(columns) > 2 and sum(widths[c] + 3 for c in columns) > width:
        columns.pop()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row.get(column, "") for column in columns))
    return table


def _row(run: Run) -> dict[str, str]:
    row = run.last
    return {
        "method": str(run.config["method"]),
        "accuracy": f"{100 * row['accuracy']:.1f} %",
        "worst": f"{100 * row['accuracy_worst']:.1f} %",
        "F1": f"{row['f1']:.3f}",
        "clusters": str(row["clusters"]),
        "ARI": "-" if row["ari"] is None else f"{row['ari']:.2f}",
        "MB up": f"{run.ledger.total('up') / 1e6:,.1f}",
        "MB down": f"{run.ledger.total('down') / 1e6:,.1f}",
        "seconds": f"{sum(r['seconds'] for r in run.history):,.1f}",
    }


def _mean(method: str, runs: Sequence[Run]) -> dict[str, str]:
    """Return the mean over seeds, with the standard deviation in the next column."""
    accuracies = [100 * run.accuracy for run in runs if run.config["method"] == method]
    deviation = f"± {np.std(accuracies, ddof=1):.1f}" if len(accuracies) > 1 else ""
    return {"method": f"{method} mean", "accuracy": f"{np.mean(accuracies):.1f} %", "worst": deviation}


def protocol_in_words(config: Mapping[str, Any]) -> str:
    """Say what an accuracy in the table is."""
    words = f"Accuracy: mean over all clients; protocol '{config['protocol']}': {MEANING[config['protocol']]}."
    if config["protocol"] == "global":
        return words
    return f"{words} Test data: '{config['test_policy']}': {POLICY[config['test_policy']]}."


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
