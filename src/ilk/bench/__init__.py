"""What ilk promises about speed and size, measured here: ratios side by side in one run, and the machine beside them."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ilk.errors import IlkError

PARTS = {
    "native": "compiled training against a bare PyTorch loop, by step and by round",
    "workers": "worker processes against one",
    "overhead": "what a round costs beside training",
    "scale": "clustering of 100 to 10,000 clients, large federations, memory",
    "flower": "Flower's simulation engine on the same rounds, where it is installed",
}
QUICK = {"rounds": 1, "repeats": 3, "sizes": [100, 300, 1000]}


def main(arguments: Sequence[str]) -> None:
    """Measure one part, or all; print the figures, and put them between their markers in a page if that was asked for."""
    given = _parser().parse_args(arguments)
    chosen = [given.part] if given.part else list(PARTS)
    results, texts = {}, {}
    for part in chosen:
        module = importlib.import_module(f"ilk.bench.{part}")
        asked = given if given.part else _defaults(part, given)
        try:
            found = module.measure(asked)
        except IlkError as missing:
            if given.part:
                raise
            results[part], texts[part] = {"missing": str(missing)}, f"not measured: {missing}"
        else:
            results[part], texts[part] = found, found.get("text") or _words(module, found, asked)
        if not given.json:
            print(f"{part}: {PARTS[part]}\n\n{texts[part]}\n", flush=True)
    from ilk.bench.common import processor

    stamp = {"date": datetime.now(UTC).isoformat(timespec="minutes"), "machine": processor()}
    if given.json:
        print(json.dumps({**results[given.part], **stamp} if given.part else {"parts": results, **stamp}))
    else:
        print(f"{stamp['date']}  {stamp['machine']}")
    if given.write:
        for part, text in texts.items():
            put(given.write, part, f"{stamp['date']}  {stamp['machine']}\n{text}")
    if given.chart:
        from ilk.bench.chart import draw

        draw(results, given.chart)


def _words(module: Any, found: dict[str, Any], asked: argparse.Namespace) -> str:
    return "" if getattr(asked, "only", None) else str(module.words(found, asked))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ilk bench", description=__doc__, epilog="`ilk bench PART --help`: its options."
    )
    parser.add_argument("--quick", action="store_true", help="few repeats: for a look, not for a record")
    _output(parser)
    parts = parser.add_subparsers(dest="part", metavar="PART", help="measure this only (all of them)")
    for part, text in PARTS.items():
        own = parts.add_parser(part, help=text, description=text)
        importlib.import_module(f"ilk.bench.{part}").options(own)
        _output(own)
    return parser


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the results between their markers in this page")
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="draw the results")


def _defaults(part: str, given: argparse.Namespace) -> argparse.Namespace:
    """Return a part's own options, as few as can be with --quick."""
    asked = _parser().parse_args([part])
    if given.quick:
        for name in QUICK.keys() & vars(asked).keys():
            setattr(asked, name, QUICK[name])
    return asked


def put(page: Path, part: str, text: str) -> None:
    """Replace what stands between a part's two markers."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise IlkError(f"{page} has no lines {begin} and {end}.")
    page.write_text(f"{before}{begin}\n```text\n{text}\n```\n{end}{after}")
