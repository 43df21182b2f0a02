"""``ilk report`` and ``ilk figures``: runs as a page, and as charts for a paper."""

from __future__ import annotations

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from ilk.errors import IlkError

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or of whole comparisons.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path("report.html"),
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    json: Json = False,
) -> None:
    """Write one HTML file about runs that needs no network."""
    from ilk.report.page import write_report

    path = write_report(runs, out)
    print(jsonlib.dumps({"report": str(path)}) if json else f"The report: {path}")
    if open_:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            raise IlkError(f"There is no browser to show it in. Open it yourself: {path.resolve()}")


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder for the files.")] = Path("figures"),
    format: Annotated[str, typer.Option(help="pdf, svg or png (300 to an inch).")] = "pdf",
    wide: Annotated[bool, typer.Option("--wide", help="As wide as two columns (7.2 inches, else 3.5).")] = False,
    json: Json = False,
) -> None:
    """Write every chart of a report as a file, sized for a paper's column."""
    from ilk.report.figures import FORMATS, write_figures

    form = next((known for known in FORMATS if known == format.lower()), None)
    if form is None:
        raise IlkError(f"--format {format} is not allowed. Allowed: {', '.join(FORMATS)}; default pdf.")
    files, missing = write_figures(runs, out, form, wide)
    for what in missing:
        print(f"Missing: {what}", file=sys.stderr)
    print(jsonlib.dumps({"figures": [str(file) for file in files]}) if json else "\n".join(map(str, files)))


def after(folder: Path) -> Path | None:
    """Write the report of what has just been played into its folder. That it fails must not take the results along."""
    try:
        from ilk.report.page import write_report

        return write_report([folder], folder / "report.html")
    except Exception as error:
        said = str(error) if isinstance(error, IlkError) else f"{type(error).__name__}: {error}"
        print(
            f"The report could not be written ({said}). The runs are whole; try: ilk report {folder}", file=sys.stderr
        )
        return None
