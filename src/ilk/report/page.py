"""The page: one HTML file that holds everything it needs and asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import vl_convert

from ilk.engines import one_thread
from ilk.errors import IlkError
from ilk.report import again, numbers, tables
from ilk.report.answer import answer, protocol_in_plain_words
from ilk.report.charts.look import SCREEN
from ilk.report.figure import Figure, Part
from ilk.report.markup import fill, listed, paragraphs, script_json, sortable, text
from ilk.report.names import clean
from ilk.report.numbers import Summary
from ilk.report.reading import Reading, read_all
from ilk.report.sections import sections
from ilk.runs.folder import replace, writing


def write_report(paths: Iterable[Path], out: Path) -> Path:
    """Write the page of these runs, or of whole experiments, to a file; return its path."""
    with one_thread():  # many threads are not faster here, and much slower beside a run
        readings, missing = read_all(paths)
        content = page(readings, missing)
    with writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            raise IlkError(f"{out} is a folder. Give a file: -o {out / 'report.html'}.")
        replace(out, content.encode())
    return out


def page(readings: Sequence[Reading], missing: Sequence[str]) -> str:
    """Return the page as text."""
    found = numbers.summaries(readings)
    specs: list[str] = []
    body, contents = "", ""
    for key, title, content in _content(readings, found, missing, specs):
        body += f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>{content}</section>\n'
        contents += f'<a href="#{key}">{title}</a>'
    library, script = _library(), _own("page.js")
    what = list(dict.fromkeys(_what(reading) for reading in readings))
    values = {
        "policy": _policy(library, script),
        "title": text("Report: " + (what[0] if len(what) == 1 else f"{len(readings)} runs")),
        "subtitle": text(" · ".join(dict.fromkeys(r.series for r in readings)) or "No run could be read."),
        "style": _own("page.css"),
        "contents": contents,
        "body": body + "".join(specs),
        "footer": text(f"Written by ilk {version('ilk')}. This file holds everything that it shows."),
        "library": library,
        "script": script,
    }
    return fill(_own("page.html"), values)


def _content(
    readings: Sequence[Reading], found: Sequence[Summary], missing: Sequence[str], specs: list[str]
) -> list[tuple[str, str, str]]:
    parts = sections(readings, found)
    first = f'<div class="answer">{paragraphs(answer(found))}</div>' + paragraphs(_protocols(readings))
    warnings = [*_not_comparable(readings), *missing]
    if warnings:
        first += f'<div class="missing"><h3>What is missing here</h3>{listed(map(clean, warnings))}</div>'
    content = [("answer", "The answer", first + tables.of_methods(found))]
    if found:
        content += [
            ("gains", "Who gains", _grid(parts.gains, specs) + tables.of_clients(found)),
            ("together", "Who is with whom", _grid(parts.together, specs)),
            ("learned", "How it learned", _grid(parts.learned, specs) + tables.of_targets(readings)),
            ("cost", "What it cost", _grid(parts.costs, specs) + tables.of_traffic(readings)),
            ("threshold", "What threshold", _grid(parts.threshold, specs) or paragraphs([_NO_THRESHOLD])),
        ]
    if readings:
        content.append(("again", "How to get this again", _again(readings)))
    return [part for part in content if part[2]]


_NO_THRESHOLD = "None of these methods cuts a tree that it keeps, so there is no threshold to vary."


def _what(reading: Reading) -> str:
    config = reading.config
    return clean(f"{config['data']}, {config['split']}, {len(reading.ids)} clients, {config['rounds']} rounds")


def _protocols(readings: Sequence[Reading]) -> list[str]:
    return list(dict.fromkeys(clean(protocol_in_plain_words(reading.config)) for reading in readings))


def _not_comparable(readings: Sequence[Reading]) -> list[str]:
    if len({reading.setting for reading in readings}) < 2:
        return []
    return ["These runs differ in data, split, clients, test policy or protocol: their accuracies are not comparable."]


def _grid(parts: Sequence[Part], specs: list[str]) -> str:
    shown = "".join(_figure(p, specs) if isinstance(p, Figure) else f'<p class="soft">{text(p)}</p>' for p in parts)
    return f'<div class="figures">{shown}</div>' if shown else ""


def _figure(figure: Figure, specs: list[str]) -> str:
    """Return a figure's place on the page, and put its specification with the others."""
    key = f"spec-{len(specs)}"
    spec = figure.specification(SCREEN)
    specs.append(f'<script type="application/json" id="{key}">{script_json(spec)}</script>\n')
    words = f"<figcaption>{text(figure.caption)}</figcaption>"
    place = f'<div class="chart" role="img" aria-label="{text(figure.title)}"></div>'
    return f'<figure data-spec="{key}"><h3>{text(figure.title)}</h3>{place}{words}</figure>'


def _again(readings: Sequence[Reading]) -> str:
    lines = "".join(f"<pre>{text(command)}</pre>" for command in again.commands(readings))
    body = "".join(
        f'<tr><th scope="row">{text(name)}</th><td>{text(value)}</td></tr>' for name, value in again.facts(readings)
    )
    columns = ("method", "seed", "options", "begun", "folder", "who owns what")
    runs = sortable("The runs.", columns, again.runs_table(readings))
    meant = "".join(f"<dt>{text(name)}</dt><dd>{text(means)}</dd>" for name, means in again.DEFINITIONS.items())
    return f'{lines}<table class="words"><tbody>{body}</tbody></table>{runs}<h3>What every number means</h3><dl>{meant}</dl>'


def _policy(*scripts: str) -> str:
    """Return the page's policy: these scripts and no others, nothing from anywhere else."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that cannot end the element that it stands in."""
    bundle = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]  # all three; its stub forgets the default
    return bundle.replace("</script", "<\\/script")


@cache
def _own(name: str) -> str:
    return files("ilk.report").joinpath(name).read_text(encoding="utf-8")
