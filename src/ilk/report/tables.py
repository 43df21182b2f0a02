"""The page's tables: methods, clients, targets, traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ilk.report import numbers
from ilk.report.markup import sortable
from ilk.report.numbers import Summary
from ilk.report.reading import Reading

COMPARED = 4  # methods in the table of clients
LISTED = 2000  # clients in it


def of_methods(found: Sequence[Summary]) -> str:
    """Return each method in numbers."""
    if not found:
        return ""
    columns = ("method", "accuracy %", "± seeds", "worst %", "better", "worse", "clusters", "ARI", "MB", "seconds")
    rows = [
        [
            one.series,
            (one.accuracy, ".1f"),
            (one.deviation, ".1f"),
            (one.worst, ".1f"),
            (len(one.better) if one.gains else None, "d"),
            (len(one.worse) if one.gains else None, "d"),
            (one.clusters, "d"),
            (one.ari, ".2f"),
            (one.megabytes, ",.1f"),
            (one.seconds, ",.1f"),
        ]
        for one in found
    ]
    caption = "Each method in numbers; the buttons sort. Better, worse: clients, against training alone."
    if any(len(one.runs) > 1 for one in found):
        caption += " Clusters, better and worse are of the first seed, all else is a mean over seeds."
    return sortable(caption, columns, rows)


def of_clients(found: Sequence[Summary]) -> str:
    """Return every client's accuracy alone, and with each of the best methods."""
    with_gains = sorted((one for one in found if one.gains), key=lambda one: -one.accuracy)[:COMPARED]
    if not with_gains:
        return ""
    lead, own = with_gains[0], [{row["client"]: row for row in one.gains} for one in with_gains]
    columns = ["client", "cluster", "samples", "alone %"]
    columns += [name for one in with_gains for name in (f"{one.series} %", f"{one.series} gain")]
    rows: list[Sequence[Any]] = []
    for client, row in sorted(own[0].items(), key=lambda item: item[1]["gain"])[:LISTED]:
        cells: list[Any] = [client, (row["cluster"], "d"), (row["samples"], ",d"), (row["alone"], ".1f")]
        for table in own:
            cells += [(table.get(client, {}).get("together"), ".1f"), (table.get(client, {}).get("gain"), "+.1f")]
        rows.append(cells)
    caption = f"Every client; the buttons sort. Clusters are those of {lead.series}, gains are points against alone."
    if len(own[0]) > LISTED:
        caption += f" The {LISTED:,} that gain least of {len(own[0]):,}."
    if len(lead.runs) > 1:
        caption += f" Seed {lead.runs[0].seed}."
    return sortable(caption, columns, rows, losses=True)


def of_targets(readings: Sequence[Reading]) -> str:
    """Return when each method first reached an accuracy."""
    rows = numbers.targets(numbers.learning(readings))
    if not rows:
        return ""
    reached = list(dict.fromkeys(row["target"] for row in rows))
    columns = ["method", *(name for target in reached for name in (f"{target:g} %: round", f"{target:g} %: MB"))]
    table = []
    for series in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == series]
        table.append([series, *(cell for row in own for cell in ((row["round"], "d"), (row["megabytes"], ",.1f")))])
    return sortable("When each method first reached an accuracy (mean over clients); - is never.", columns, table)


def of_traffic(readings: Sequence[Reading]) -> str:
    """Return megabytes by kind and direction."""
    rows = [
        [row["series"], row["kind"], row["direction"], (row["megabytes"], ",.3f")] for row in numbers.traffic(readings)
    ]
    if not rows:
        return ""
    return sortable("Megabytes by kind and direction (up: from clients).", ("method", "kind", "direction", "MB"), rows)
