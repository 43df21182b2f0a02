"""A figure: a chart that can be drawn in any size, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from altair.utils.schemapi import debug_mode

from ilk.report.charts.look import Chart, Look
from ilk.report.numbers import Summary


@dataclass(frozen=True)
class Figure:
    """A chart that can be drawn in any size, and what it shows."""

    key: str
    title: str
    caption: str
    draw: Callable[[Look], Chart]

    def specification(self, look: Look) -> dict[str, Any]:
        """Return the chart as Vega-Lite. Altair's checks are for those who write charts: the tests have them on."""
        with debug_mode(False):
            made: dict[str, Any] = self.draw(look).to_dict(validate=False)
        return made


Part = Figure | str  # a figure, or a sentence where there is nothing to draw


def which_seed(one: Summary) -> str:
    """Say which of several seeds is drawn."""
    return f" Of {len(one.runs)} seeds, seed {one.runs[0].seed} is drawn." if len(one.runs) > 1 else ""
