"""How membership flows from round to round: bands between columns of clusters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ilk.clusters.linkage import keep_numbers
from ilk.report.charts.look import OTHERS, shown_clusters
from ilk.report.numbers import Table
from ilk.report.reading import Reading

COLUMNS = 10  # rounds that are drawn
STEPS = 12  # straight pieces of a bent band


def memberships(reading: Reading) -> dict[int, NDArray[np.int64]]:
    """Return everybody's cluster in each measured round, numbered so that clusters keep the number they end with."""
    found: dict[int, NDArray[np.int64]] = {}
    after: NDArray[np.int64] | None = None
    for row in reversed(reading.evaluated):
        now = np.asarray(row["cluster_by_client"], dtype=np.int64)
        after = now if after is None else keep_numbers(now, after)
        found[int(row["round"])] = after
    return dict(sorted(found.items()))


def changes(at: dict[int, NDArray[np.int64]]) -> dict[int, int]:
    """Return for each round after the first how many clients are in another cluster than in the round before."""
    rounds = list(at)
    return {now: int((at[now] != at[then]).sum()) for then, now in pairwise(rounds)}


def flow_tables(at: dict[int, NDArray[np.int64]]) -> tuple[Table, Table, str]:
    """Return bands, columns, and what was left out: the rounds in which most clients moved are drawn."""
    rounds, moved = list(at), changes(at)
    telling = sorted((r for r in moved if moved[r]), key=lambda r: (-moved[r], r))
    before = {rounds[rounds.index(r) - 1] for r in telling[: COLUMNS // 2]}
    chosen = sorted({rounds[0], rounds[-1], *before, *telling[: COLUMNS // 2]})
    numbers = [int(z) for r in chosen for z in at[r]]
    shown = np.array(shown_clusters([z + 1 for z in numbers])).reshape(len(chosen), -1)
    columns: Table = []
    bands: Table = []
    for x, round in enumerate(chosen):
        columns += [{"x": x, "round": round, **part} for part in _stack(shown[x].tolist())]
    for x in range(len(chosen) - 1):
        bands += _between(x, shown[x].tolist(), shown[x + 1].tolist())
    left_out = len(rounds) - len(chosen)
    note = f"{len(chosen)} of {len(rounds)} measured rounds are drawn: where most moved." if left_out else ""
    return bands, columns, note


def _rank(name: str) -> int:
    return 10**9 if name == OTHERS else int(name)


def _stack(names: list[str]) -> Table:
    rows: Table = []
    low = 0
    for name in sorted(set(names), key=_rank):
        high = low + names.count(name)
        rows.append({"shown": name, "low": low, "high": high, "clients": high - low})
        low = high
    return rows


def _between(x: int, before: list[str], after: list[str]) -> Table:
    """Return the bands from one column to the next, bent as a smooth step."""
    left = {row["shown"]: row["low"] for row in _stack(before)}
    right = {row["shown"]: row["low"] for row in _stack(after)}
    pairs = list(zip(before, after, strict=True))
    rows: Table = []
    for one, other in sorted(set(pairs), key=lambda pair: (_rank(pair[0]), _rank(pair[1]))):
        clients = pairs.count((one, other))
        for step in range(STEPS + 1):
            t = step / STEPS
            low = left[one] + (right[other] - left[one]) * t * t * (3 - 2 * t)
            place = {"band": f"{x}/{one}/{other}", "x": x + t, "low": low, "high": low + clients}
            rows.append({**place, "shown": one, "before": one, "after": other, "clients": clients})
        left[one] += clients
        right[other] += clients
    return rows
