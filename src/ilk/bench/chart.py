"""The results as one picture: how many times as fast as the bare PyTorch loop, and how clustering grows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ilk.errors import IlkError


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw what was measured into a file (.svg, .png, .pdf or .html)."""
    import altair as alt

    charts: list[Any] = []
    if rows := ratios(results):
        bars = alt.Chart(alt.InlineData(values=rows), title="Times as fast as a bare PyTorch loop on one core").encode(
            y=alt.Y("what:N", sort=None, title=None, axis=alt.Axis(labelLimit=300)),
            x=alt.X("ratio:Q", title="times as fast"),
        )
        charts.append(
            bars.mark_bar() + bars.mark_text(align="left", dx=4).encode(text=alt.Text("ratio:Q", format=".1f"))
        )
    if rows := growth(results):
        lines = alt.Chart(alt.InlineData(values=rows), title="Clustering: PACFL's distances and linkage").encode(
            x=alt.X("clients:Q", scale=alt.Scale(type="log"), title="clients"),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="seconds"),
            strokeDash=alt.StrokeDash("distance:N", title="distance"),
            color=alt.Color("distance:N", title="distance"),
        )
        charts.append(lines.mark_line(point=True))
    if not charts:
        raise IlkError("Nothing was measured that could be drawn.")
    whole: Any = alt.vconcat(*(chart.properties(width=480) for chart in charts)).resolve_scale(
        color="independent", strokeDash="independent"
    )
    whole.save(str(path))


def ratios(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a bar for each network and each way to play a round."""
    native, flower = results.get("native", {}), results.get("flower", {})
    rows = [
        {"what": f"a step, {case['title']}, {name}", "ratio": ratio}
        for case in native.get("cases", [])
        for name, ratio in case["ratios"].items()
    ]
    if "round" in native:
        rows.append({"what": f"a round, {native['round']['workers']} workers", "ratio": native["round"]["ratio"]})
    return rows + [{"what": f"a round, {name}", "ratio": ratio} for name, ratio in flower.get("ratios", {}).items()]


def growth(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a point for each number of clients and each distance."""
    names = ("clients", "seconds", "distance")
    return [{name: row[name] for name in names} for row in results.get("scale", {}).get("clustering", [])]
