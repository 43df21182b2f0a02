"""Who is with whom: the matrix as a heat map beside its tree; a map; labels by client; membership over rounds."""

from __future__ import annotations

import altair as alt

from ilk.report.charts.look import LINE, NAME_PIXELS, SCHEME, Chart, Look, data, dressed, of_clusters, squared
from ilk.report.numbers import Table

SHARES = (0.62, 0.38)  # of the width: heat map and tree


def matrix_and_tree(cells: Table, branches: Table, leaves: Table, cut: float | None, title: str, look: Look) -> Chart:
    """Draw cells (row, column, value; in the tree's order), branches (merge, step, height, at) and leaves (at, shown).

    The line is drawn at the height `cut`.
    """
    order = [row["name"] for row in leaves]
    longest = max(len(name) for name in order) * look.font * 0.62
    beside = round(min(longest, NAME_PIXELS)) + 26
    count, room = len(order), look.width - beside
    height = round(min(max(12 * count, 220), 460) * look.scale)
    legend = alt.Legend(title=title, titleLimit=room * SHARES[0] * 0.8, gradientLength=round(room * 0.3))
    heat = (
        alt.Chart(data(cells))
        .mark_rect()
        .encode(
            x=alt.X("column:O", sort=order, axis=None),
            y=alt.Y("row:O", sort=order, title=None, axis=alt.Axis(labelOverlap=True, ticks=False, grid=False)),
            color=alt.Color("value:Q", scale=alt.Scale(scheme=SCHEME, reverse=True, zero=True), legend=legend),
            tooltip=[alt.Tooltip("row:N"), alt.Tooltip("column:N"), alt.Tooltip("value:Q", format=".3f")],
        )
        .properties(width=round(room * SHARES[0]), height=height)
    )
    y = alt.Y("at:Q", scale=alt.Scale(domain=[count, 0], nice=False, zero=False), axis=None)
    x = alt.X("height:Q", title="height of merge")
    lines = alt.Chart(data(branches)).mark_line(strokeWidth=1.2, color=LINE)
    tree = lines.encode(x=x, y=y, detail="merge:N", order="step:O")
    ends = alt.Chart(data({**row, "height": 0} for row in leaves)).mark_point(
        filled=True, size=45 * look.scale, opacity=1
    )
    clusters = of_clusters(row["shown"] for row in leaves)
    tree += ends.encode(x=x, y=y, tooltip=["name:N", "cluster:N"], **clusters)
    if cut is not None:
        line = alt.Chart(data([{"height": cut}])).mark_rule(strokeDash=[5, 3], strokeWidth=1.6, color="#d55e00")
        tree += line.encode(x=x, tooltip=[alt.Tooltip("height:Q", title="cut at", format=".4g")])
    tree = tree.properties(width=round(room * SHARES[1]), height=height)
    both = alt.hconcat(heat, tree, spacing=6, bounds="flush", usermeta={"shares": list(SHARES), "room": beside})
    return dressed(both.resolve_scale(color="independent", shape="independent"), look)


def plane(points: Table, look: Look) -> Chart:
    """Draw rows of client, x, y, cluster and shown as a map: near is alike, the axes mean nothing."""
    span = max((abs(row[axis]) for row in points for axis in ("x", "y")), default=1.0) * 1.08 or 1.0
    scale = alt.Scale(domain=[-span, span], nice=False)
    dots = alt.Chart(data(points)).mark_point(filled=True, size=70 * look.scale, opacity=0.85)
    dots = dots.encode(
        x=alt.X("x:Q", scale=scale, axis=None),
        y=alt.Y("y:Q", scale=scale, axis=None),
        tooltip=["client:N", "cluster:N"],
        **of_clusters(row["shown"] for row in points),
    )
    return squared(dots, look)


def labels(rows: Table, look: Look) -> Chart:
    """Draw rows of name, label and share: what each client (or cluster) has, in the order of the rows."""
    order = list(dict.fromkeys(row["name"] for row in rows))
    heat = alt.Chart(data(rows)).mark_rect()
    few = alt.Legend(tickCount=3, format="%")
    heat = heat.encode(
        x=alt.X("label:O", title="label", axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False)),
        y=alt.Y("name:O", sort=order, title=None, axis=alt.Axis(labelOverlap=True, ticks=False, grid=False)),
        color=alt.Color(
            "share:Q", scale=alt.Scale(scheme=SCHEME, reverse=True, zero=True), title="share of samples", legend=few
        ),
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("label:N"), alt.Tooltip("share:Q", format=".1%")],
    )
    return dressed(heat, look, min(max(12 * len(order), 120), 620) + 90)


def flow(bands: Table, columns: Table, look: Look) -> Chart:
    """Draw how membership flows: bands (band, x, low, high, shown) between columns (x, round, low, high, shown)."""
    clusters = of_clusters(row["shown"] for row in columns)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(nice=False, zero=False))
    y = alt.Y("low:Q", title="clients", scale=alt.Scale(nice=False))
    area = alt.Chart(data(bands)).mark_area(opacity=0.45, line=False, interpolate="linear")
    tips = [alt.Tooltip("clients:Q"), alt.Tooltip("before:N", title="from cluster"), alt.Tooltip("after:N", title="to")]
    area = area.encode(x=x, y=y, y2="high:Q", detail="band:N", color=clusters["color"], tooltip=tips)
    bars = alt.Chart(data(columns)).mark_bar(width=max(round(7 * look.scale), 3))
    bars = bars.encode(x=x, y=y, y2="high:Q", color=clusters["color"], tooltip=["round:Q", "shown:N", "clients:Q"])
    rounds = {row["x"]: row for row in columns if row["low"] == 0}
    top = max(row["high"] for row in columns)
    words = alt.Chart(data({"x": at, "low": top, "said": str(row["round"])} for at, row in rounds.items()))
    names = words.mark_text(dy=-8).encode(x=x, y=y, text="said:N")
    return dressed(area + bars + names, look, 340)
