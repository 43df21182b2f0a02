"""How it learned: accuracy against rounds and traffic; and what a method watched while it decided when to cluster."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from ilk.report.charts.look import COLOURS, LINE, Chart, Look, data, dressed, of_series
from ilk.report.numbers import Table

ROUNDS = 400  # points of a line; of more rounds an even choice is drawn
MARK = "#d55e00"


def over_rounds(rows: Table, look: Look) -> Chart:
    """Draw rows of series, round, accuracy, low and high."""
    return _lines(rows, "round", "round", look)


def over_megabytes(rows: Table, look: Look) -> Chart:
    """Draw rows of series, megabytes, accuracy, low and high. What moves nothing is a level line at its last accuracy."""
    most = max((row["megabytes"] for row in rows), default=0.0)
    moving: Table = []
    for series in dict.fromkeys(row["series"] for row in rows):
        own = [row for row in rows if row["series"] == series]
        still = own[-1]["megabytes"] == 0
        moving += [{**own[-1], "megabytes": end} for end in (0.0, most)] if still else own
    return _lines(moving, "megabytes", "megabytes moved, up and down", look)


def _lines(rows: Table, along: str, title: str, look: Look) -> Chart:
    drawn: Table = []
    names = list(dict.fromkeys(row["series"] for row in rows))
    for series in names:
        own = [row for row in rows if row["series"] == series]
        step = -(-len(own) // ROUNDS)
        drawn += own[:-1:step] + own[-1:]
    chart = alt.Chart(data(drawn))
    x = alt.X(f"{along}:Q", title=title, scale=alt.Scale(nice=False))
    y = alt.Y("accuracy:Q", title="mean accuracy (%)", scale=alt.Scale(zero=False))
    marks = of_series(names)
    tips = [alt.Tooltip("series:N"), alt.Tooltip("round:Q"), alt.Tooltip("accuracy:Q", format=".2f")]
    tips += [alt.Tooltip("megabytes:Q", format=",.1f"), alt.Tooltip("seeds:Q")]
    pick = alt.selection_point(fields=["series"], bind="legend")
    bright = alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.15))
    band = chart.mark_area(opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=marks["color"])
    line = chart.mark_line().encode(x=x, y=y, opacity=bright, **marks).add_params(pick)
    dots = chart.mark_point(filled=True, size=16 * look.scale).encode(x=x, y=y, color=marks["color"], tooltip=tips)
    return dressed(band + line + dots, look, 340)


def watched(rows: Table, marked: Sequence[int], title: str, levels: Table, look: Look) -> Chart:
    """Draw rows of round, series and value; rules at the rounds of clustering, level lines at the method's bounds."""
    names = list(dict.fromkeys(row["series"] for row in rows))
    rounds = sorted({row["round"] for row in rows})
    ticks = rounds[:: -(-len(rounds) // 10)]  # whole rounds: with two of them the chart's own ticks are halves
    x = alt.X("round:Q", title="round", axis=alt.Axis(values=ticks, format="d"))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    tips = ["series:N", "round:Q", alt.Tooltip("value:Q", format=".4g")]
    drawn = alt.Chart(data(rows)).mark_line(point=True).encode(x=x, y=y, tooltip=tips, **of_series(names))
    if marked:
        rule = alt.Chart(data({"round": round, "said": "clustered"} for round in marked))
        drawn += rule.mark_rule(color=MARK, strokeWidth=1.6, strokeDash=[5, 3]).encode(
            x=x, tooltip=["said:N", "round:Q"]
        )
    if levels:
        level = alt.Chart(data(levels))
        drawn += level.mark_rule(color=LINE, strokeDash=[2, 3]).encode(y=y)
        drawn += level.mark_text(align="left", dy=-5, dx=4).encode(y=y, x=alt.value(0), text="said:N")
    return dressed(drawn, look, 280)


def clusters_by_threshold(steps: Table, cut: float | None, look: Look) -> Chart:
    """Draw rows of threshold and clusters as stairs, and the line where the tree was cut."""
    x = alt.X("threshold:Q", title="threshold (height of the cut)", scale=alt.Scale(zero=False))
    y = alt.Y("clusters:Q", title="clusters", axis=alt.Axis(tickMinStep=1))
    stairs = alt.Chart(data(steps)).mark_line(interpolate="step-after", color=COLOURS[0])
    drawn = stairs.encode(x=x, y=y, tooltip=[alt.Tooltip("threshold:Q", format=".4g"), "clusters:Q"])
    if cut is not None:
        rule = alt.Chart(data([{"threshold": cut}])).mark_rule(color=MARK, strokeDash=[5, 3], strokeWidth=1.6)
        drawn += rule.encode(x=x, tooltip=[alt.Tooltip("threshold:Q", title="cut at", format=".4g")])
    return dressed(drawn, look, 260)


def accuracy_by_threshold(rows: Table, look: Look) -> Chart:
    """Draw what was measured: rows of threshold, accuracy and clusters, one a run."""
    x = alt.X("threshold:Q", title="threshold", scale=alt.Scale(zero=False))
    title, scale = "mean accuracy (%)", alt.Scale(zero=False)
    y = alt.Y("accuracy:Q", title=title, scale=scale)
    tips = [alt.Tooltip("threshold:Q", format=".4g"), alt.Tooltip("accuracy:Q", format=".2f"), "clusters:Q", "seed:Q"]
    chart = alt.Chart(data(rows))
    line = chart.mark_line(color=COLOURS[0]).encode(x=x, y=alt.Y("mean(accuracy):Q", title=title, scale=scale))
    dots = chart.mark_point(filled=True, size=60 * look.scale, color=COLOURS[0]).encode(x=x, y=y, tooltip=tips)
    counts = chart.mark_text(dy=-10).encode(x=x, y=y, text="clusters:Q")
    return dressed(line + dots + counts, look, 260)
