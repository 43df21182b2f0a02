"""How charts look: sizes for the page and for paper; colours that the colour-blind and a grey printer tell apart.

Colour never stands alone: lines also have dashes, dots shapes, clusters numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

Chart = Any  # Altair has a class for each way to combine charts, and no common one that has all that they share

# Okabe and Ito's colours without black and yellow, which vanish on dark and on light; then a grey for all the rest.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7570b3", "#a6761d")
REST = "#8c8c8c"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [10, 3], [1, 3], [6, 2, 1, 2, 1, 2])
SCHEME: Literal["cividis"] = "cividis"  # of the heat maps: as light as it is much, in grey too
LINE = "#8c8c8c"
OTHERS = "others"
NAME_PIXELS = 90
SQUARE = 520  # at most, of charts whose two axes are in the same unit


@dataclass(frozen=True)
class Look:
    """Size of a chart in pixels (on paper: points, 1/72 inch), and of its text."""

    width: int = 680
    font: int = 12
    scale: float = 1.0  # of heights, dots and strokes


SCREEN = Look()
COLUMN = Look(252, 7, 0.55)  # one column of a paper with two: 3.5 inches
WIDE = Look(516, 8, 0.75)  # both columns


def dressed(chart: Chart, look: Look, height: int | None = None) -> Chart:
    """Return a chart of one view, its axes included in its width, with fonts and lines as everywhere."""
    if height is not None:
        size = alt.AutoSizeParams(type="fit", contains="padding")
        chart = chart.properties(width=look.width, height=round(height * look.scale), autosize=size)
    common = {"labelFontSize": look.font, "titleFontSize": look.font, "titleFontWeight": "normal"}
    legend = {
        **common,
        "orient": "bottom",
        "columns": max(look.width // (12 * look.font), 2),
        "labelLimit": 180,
        "symbolLimit": 40,
    }
    axis = {
        **common,
        "grid": True,
        "gridOpacity": 0.25,
        "domainColor": LINE,
        "tickColor": LINE,
        "labelLimit": NAME_PIXELS,
    }
    return chart.configure(  # in one call: each copies the chart with its data
        font="system-ui, 'Liberation Sans', Arial, sans-serif",
        background="transparent",
        padding=2,
        aria=False,  # a chart has one description, not one for each dot
        view={"stroke": None},
        axis=axis,
        legend={**legend, "symbolSize": 90 * look.scale, "symbolOpacity": 1},
        line={"strokeWidth": 2.2 * look.scale},
        text={"fontSize": look.font},
    )


def squared(chart: Chart, look: Look) -> Chart:
    """Return a chart whose two axes are in the same unit, so about as high as it is wide."""
    side = min(look.width, SQUARE)
    drawn = dressed(chart, look, round((side + 40 * look.scale) / look.scale))
    return drawn.properties(width=side, usermeta={"square": SQUARE})


def of_series(names: Iterable[str]) -> dict[str, Any]:
    """Return colour and dash of lines, one of each a series."""
    domain = list(dict.fromkeys(names))
    colour = alt.Scale(domain=domain, range=_cycled(COLOURS, len(domain)))
    dash = alt.Scale(domain=domain, range=_cycled(DASHES, len(domain)))
    stroke = alt.Legend(symbolType="stroke", symbolStrokeWidth=2.5, symbolFillColor="transparent", symbolOpacity=1)
    return {
        "color": alt.Color("series:N", scale=colour, title=None, legend=stroke),
        "strokeDash": alt.StrokeDash("series:N", scale=dash, title=None, legend=stroke),
    }


def of_clusters(shown: Iterable[str]) -> dict[str, Any]:
    """Return colour and shape of dots, one of each a cluster."""
    present = set(shown)
    domain = sorted(present - {OTHERS}, key=lambda name: int(name)) + ([OTHERS] if OTHERS in present else [])
    colours = [REST if name == OTHERS else COLOURS[k % len(COLOURS)] for k, name in enumerate(domain)]
    shapes = ["circle" if name == OTHERS else SHAPES[k % len(SHAPES)] for k, name in enumerate(domain)]
    return {
        "color": alt.Color("shown:N", scale=alt.Scale(domain=domain, range=colours), title="cluster"),
        "shape": alt.Shape("shown:N", scale=alt.Scale(domain=domain, range=shapes), title="cluster"),
    }


def shown_clusters(clusters: Sequence[int], most: int = len(COLOURS)) -> list[str]:
    """Return what each client's cluster is called in a chart: its number, or "others" beyond the largest few."""
    counts: dict[int, int] = {}
    for cluster in clusters:
        counts[cluster] = counts.get(cluster, 0) + 1
    largest = set(sorted(counts, key=lambda cluster: (-counts[cluster], cluster))[:most])
    return [str(cluster) if cluster in largest else OTHERS for cluster in clusters]


def data(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    """Return rows as the chart's own data; what is no number is missing, for JSON has no word for it."""
    return alt.InlineData(values=[{name: _number(value) for name, value in row.items()} for row in rows])


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cycled(values: Sequence[Any], count: int) -> list[Any]:
    return [values[k % len(values)] for k in range(count)]
