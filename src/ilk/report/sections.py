"""What is drawn of which runs, in the order in which a reader asks. The page and the figures are made from this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ilk.report import numbers
from ilk.report.charts import cost, gains, learning
from ilk.report.figure import Figure, Part, which_seed
from ilk.report.numbers import ALONE, Summary, Table
from ilk.report.proximity import Proximity, clusters_at, proximity_of
from ilk.report.reading import Reading
from ilk.report.together import together

DRAWN = 6  # series that have charts of their own: the most accurate


@dataclass(frozen=True)
class Sections:
    """The parts of each section of the page."""

    gains: list[Part]
    together: list[Part]
    learned: list[Part]
    costs: list[Part]
    threshold: list[Part]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        parts = [*self.gains, *self.together, *self.learned, *self.costs, *self.threshold]
        return [part for part in parts if isinstance(part, Figure)]


def sections(readings: Sequence[Reading], found: Sequence[Summary]) -> Sections:
    """Return everything that can be drawn of these runs."""
    ranked = sorted((one for one in found if one.method != ALONE), key=lambda one: -one.accuracy)
    drawn = ranked[:DRAWN]
    more = [f"Drawn are the {DRAWN} most accurate of {len(ranked)}."] if len(ranked) > DRAWN else []
    near = {one.series: proximity_of(one.runs[0]) for one in drawn}
    return Sections(
        gains=[*more, *(_gain(one) for one in drawn)],
        together=[*more, *(part for one in drawn for part in together(one, near[one.series]))],
        learned=_learned(readings),
        costs=_costs(readings),
        threshold=[part for one in drawn for part in _threshold(one, near[one.series], readings)],
    )


def _gain(one: Summary) -> Part:
    if not one.gains:
        return f"{one.series}: no run in which the same clients train alone was given, so who gains cannot be drawn."
    words = "A dot is a client; above the dashed diagonal it does better than alone. Those that lose most are named."
    if len(one.gains) > gains.MOST:
        words += f" Of {len(one.gains):,} clients a random choice of {len(gains.thinned(one.gains)):,} is drawn."
    return Figure(
        f"gains-{one.series}",
        f"{one.series}: accuracy alone and together",
        words + which_seed(one),
        lambda look: gains.who_gains(one.gains, look),
    )


def _learned(readings: Sequence[Reading]) -> list[Part]:
    rows = numbers.learning(readings)
    if not rows:
        return ["No round was measured yet."]
    several = any(row["seeds"] > 1 for row in rows)
    words = "Mean over clients" + ("; mean and band (one standard deviation) over seeds." if several else "; one seed.")
    still = [
        s
        for s in dict.fromkeys(r["series"] for r in rows)
        if all(r["megabytes"] == 0 for r in rows if r["series"] == s)
    ]
    level = f" Level: {', '.join(still)}, which moves nothing." if still else ""
    return [
        Figure("learning-rounds", "Accuracy against rounds", words, lambda look: learning.over_rounds(rows, look)),
        Figure(
            "learning-megabytes",
            "Accuracy against traffic",
            words + level,
            lambda look: learning.over_megabytes(rows, look),
        ),
    ]


def _costs(readings: Sequence[Reading]) -> list[Part]:
    parts = list[Part]()
    moved, times = numbers.traffic(readings), numbers.phases(readings)
    if moved:
        words = "As the ledger counted: the bytes of every message. Mean over seeds."
        parts.append(Figure("bytes", "Bytes by kind", words, lambda look: cost.traffic_by_kind(moved, look)))
    else:
        parts.append("Nothing crossed between server and clients.")
    if any(row["seconds"] for row in times):
        words = "Beginning: before the first round. Rounds: training and averaging. Measuring: all clients' tests."
        words += " As simulated on this machine; mean over seeds."
        parts.append(Figure("seconds", "Seconds by phase", words, lambda look: cost.seconds_by_phase(times, look)))
    return parts


def _threshold(one: Summary, near: Proximity | None, readings: Sequence[Reading]) -> list[Part]:
    parts = list[Part]()
    if near:
        steps: Table = [{"threshold": height, "clusters": clusters} for height, clusters in clusters_at(near.merges)]
        cut = near.cut if near.consistent else None
        words = "Were the same tree cut at another height." + (" The dashed line is where it was cut." if cut else "")
        title = f"{one.series}: clusters against the threshold"
        draw = lambda look: learning.clusters_by_threshold(steps, cut, look)  # noqa: E731
        parts.append(Figure(f"threshold-{one.series}", title, words + which_seed(one), draw))
    if "threshold" not in one.runs[0].config["options"]:
        return parts
    measured = numbers.measured_thresholds(readings, one.method)
    if len({row["threshold"] for row in measured}) > 1:
        words = "A dot is a run, with its number of clusters; the line is the mean."
        title = f"{one.method}: accuracy against the threshold"
        draw_measured = lambda look: learning.accuracy_by_threshold(measured, look)  # noqa: E731
        figure = Figure(f"accuracy-threshold-{one.method}", title, words, draw_measured)
        return [*parts, figure]
    return [
        *parts,
        f"{one.series}: accuracy at other thresholds was not measured. Run it with several "
        f"(ilk run {one.method} --set threshold=...) and give all their folders to `ilk report`.",
    ]
