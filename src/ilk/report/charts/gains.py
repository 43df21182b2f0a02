"""Who gains: every client as a dot, accuracy alone against accuracy with its cluster."""

from __future__ import annotations

import altair as alt

from ilk.report.charts.look import LINE, Chart, Look, data, of_clusters, shown_clusters, squared
from ilk.report.numbers import Table, choice

MOST = 1500  # dots; of more clients an even choice is drawn
LOSERS = 5


def who_gains(rows: Table, look: Look) -> Chart:
    """Draw rows of client, cluster, alone, together and gain; above the diagonal is better than alone."""
    chosen = thinned(rows)
    shown = shown_clusters([row["cluster"] for row in chosen])
    dots = [{**row, "shown": name} for row, name in zip(chosen, shown, strict=True)]
    losers = _named(sorted((row for row in dots if row["gain"] < 0), key=lambda row: float(row["gain"]))[:LOSERS])
    values = [row[axis] for row in rows for axis in ("alone", "together")]
    low, high = min(values), max(values)
    room = max((high - low) * 0.06, 1.0)
    ends = [max(low - room, 0.0), min(high + room, 100.0)]
    scale = alt.Scale(domain=ends, nice=False)
    x = alt.X("alone:Q", scale=scale, title="accuracy alone (%)")
    y = alt.Y("together:Q", scale=scale, title="accuracy with its cluster (%)")
    tips = [alt.Tooltip("client:N"), alt.Tooltip("cluster:N"), alt.Tooltip("alone:Q", format=".1f")]
    tips += [alt.Tooltip("together:Q", format=".1f"), alt.Tooltip("gain:Q", format="+.1f")]
    pick = alt.selection_point(fields=["shown"], bind="legend")
    diagonal = alt.Chart(data({"alone": end, "together": end} for end in ends))
    drawn = diagonal.mark_line(color=LINE, strokeDash=[4, 4], strokeWidth=1.2).encode(x=x, y=y)
    points = alt.Chart(data(dots)).mark_point(filled=True, size=70 * look.scale, strokeWidth=1)
    opacity = alt.when(pick).then(alt.value(0.85)).otherwise(alt.value(0.12))
    points = points.encode(x=x, y=y, opacity=opacity, tooltip=tips, **of_clusters(shown)).add_params(pick)
    names = alt.Chart(data(losers)).mark_text(align="left", dx=7, dy=5, limit=120).encode(x=x, y=y, text="names:N")
    return squared(drawn + points + names, look)


def thinned(rows: Table) -> Table:
    """Return a random choice of the rows, where there are too many to draw; those who lose most are always in it."""
    if len(rows) <= MOST:
        return rows
    worst = sorted(range(len(rows)), key=lambda k: float(rows[k]["gain"]))[:LOSERS]
    return [rows[k] for k in sorted({*worst, *choice(len(rows), MOST)})]


def _named(losers: Table) -> Table:
    """Return one row a place: dots that lie on each other share a line of names."""
    places: dict[tuple[float, float], list[str]] = {}
    for row in losers:
        places.setdefault((row["alone"], row["together"]), []).append(row["client"])
    return [{"alone": x, "together": y, "names": ", ".join(names)} for (x, y), names in places.items()]
