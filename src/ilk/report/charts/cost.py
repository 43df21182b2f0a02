"""What it cost: bytes by kind, seconds by phase."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from ilk.report.charts.look import Chart, Look, data, dressed
from ilk.report.numbers import Table

SHADES = (
    "#0b4f7a",
    "#e6a23c",
    "#a8d8f5",
    "#8c8c8c",
)  # of different lightness, so that grey paper tells them apart, too
KINDS = ("models", "signatures", "histograms", "control")
PHASES = ("beginning", "rounds", "measuring")


def traffic_by_kind(rows: Table, look: Look) -> Chart:
    """Draw rows of series, kind, direction and megabytes as bars."""
    return _bars(rows, "kind", KINDS, "megabytes", "megabytes, up and down", ["direction:N"], look)


def seconds_by_phase(rows: Table, look: Look) -> Chart:
    """Draw rows of series, phase and seconds as bars."""
    return _bars(rows, "phase", PHASES, "seconds", "seconds", [], look)


def _bars(rows: Table, part: str, parts: Sequence[str], size: str, title: str, tips: list[str], look: Look) -> Chart:
    order = list(dict.fromkeys(row["series"] for row in rows))
    present = [name for name in parts if any(row[part] == name for row in rows)]
    shades = [SHADES[parts.index(name)] for name in present]
    rank = [{**row, "rank": parts.index(row[part])} for row in rows]
    bars = alt.Chart(data(rank)).mark_bar(stroke="white", strokeWidth=0.5)
    bars = bars.encode(
        x=alt.X(f"{size}:Q", title=title),
        y=alt.Y("series:N", sort=order, title=None, axis=alt.Axis(grid=False, ticks=False)),
        color=alt.Color(f"{part}:N", scale=alt.Scale(domain=present, range=shades), title=None),
        order="rank:O",
        tooltip=["series:N", f"{part}:N", *tips, alt.Tooltip(f"{size}:Q", format=",.3f")],
    )
    return dressed(bars, look, 34 * len(order) + 90)
