"""The charts as files for a paper: the same as on the page, in the width of a column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import vl_convert

from ilk.errors import IlkError
from ilk.report import numbers
from ilk.report.charts.look import COLUMN, WIDE
from ilk.report.reading import read_all
from ilk.report.sections import sections
from ilk.runs.folder import replace, writing

Format = Literal["pdf", "svg", "png"]
FORMATS: tuple[Format, ...] = get_args(Format)
PNG_SCALE = 300 / 72  # pixels a point: 300 to an inch


def write_figures(paths: Iterable[Path], out: Path, form: Format, wide: bool) -> tuple[list[Path], list[str]]:
    """Write every chart of these runs into a folder. Return the files, and what is missing."""
    readings, missing = read_all(paths)
    figures = sections(readings, numbers.summaries(readings)).figures
    if not figures:
        said = " ".join(missing) or "No run was given."
        raise IlkError(f"There is nothing to draw: no round was measured yet. {said}")
    look, files = WIDE if wide else COLUMN, list[Path]()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            path = _free(out / f"{_file_name(figure.key)}.{form}", files)
            replace(path, rendered(figure.specification(look), form))
            files.append(path)
    return files, missing


def rendered(chart: Mapping[str, Any], form: Format) -> bytes:
    """Return a Vega-Lite chart in this format."""
    spec = {**chart, "background": "white"}
    if form == "pdf":
        return vl_convert.vegalite_to_pdf(spec)
    if form == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    return vl_convert.vegalite_to_png(spec, scale=PNG_SCALE, ppi=72)


def _file_name(key: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.=-]+", "_", key).strip("_.")[:80] or "figure"


def _free(path: Path, taken: list[Path]) -> Path:
    """Return the path, with a number where another figure of this time has it."""
    names = {other.name.lower() for other in taken}
    tries = (path if n == 1 else path.with_stem(f"{path.stem}_{n}") for n in range(1, len(taken) + 2))
    return next(one for one in tries if one.name.lower() not in names)
