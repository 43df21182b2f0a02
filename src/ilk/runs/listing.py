"""Runs in a folder as a table: what each is, how far it got, what it reached; filtered and sorted."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ilk.errors import IlkError, unknown
from ilk.runs.folder import HISTORY, RESULT, RUN, read_json, read_lines, worked_on

Row = dict[str, Any]
SHOWN = (
    *("method", "data", "split", "clients", "seed", "played", "rounds", "accuracy", "worst", "clusters", "ari", "mb"),
    *("seconds", "state", "run"),
)
COMPARISON = re.compile(r"^([\w.-]+?)\s*(!=|>=|<=|=|>|<)\s*(.*)$", re.DOTALL)
SIGNS = {"=": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def find(below: Path) -> list[Path]:
    """Return the folders of all runs in a folder, this one included, in the order of their names."""
    if not below.is_dir():
        raise IlkError(f"There is no folder {below}. Give one with runs in it: ilk runs FOLDER.")
    return sorted(path.parent for path in below.rglob(RUN))


def row_of(folder: Path) -> Row:
    """Return a run as a row; a damaged one says so in its column `state`, and has what could be read."""
    row: Row = dict.fromkeys(SHOWN) | {"run": str(folder)}
    try:
        record = read_json(folder / RUN)
        config = record["config"]
        row |= {name: config.get(name) for name in ("method", "data", "split", "clients", "seed", "rounds")}
        row |= {"begun": record.get("begun"), "protocol": config.get("protocol")} | _flat(
            config.get("options") or {}, "options."
        )
        history = read_lines(folder / HISTORY)
        measured: Row = next((line for line in reversed(history) if "accuracy" in line), {})
        row |= {name: measured.get(name) for name in ("accuracy", "clusters", "ari")}
        row["worst"], row["played"] = measured.get("accuracy_worst"), history[-1]["round"] if history else 0
        row["mb"] = (history[-1]["bytes_up"] + history[-1]["bytes_down"]) / 1e6 if history else 0.0
        row["seconds"] = sum(line["seconds"] for line in history)
    except (IlkError, KeyError, TypeError, AttributeError):
        return row | {"state": "damaged"}
    if (folder / RESULT).exists():
        return row | {"state": "finished"}
    return row | {"state": "running" if worked_on(folder) else "unfinished"}


def _flat(options: Mapping[str, Any], before: str = "") -> Row:
    flat: Row = {}
    for name, value in options.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return flat


def where(rows: Iterable[Row], conditions: Sequence[str]) -> list[Row]:
    """Return the rows that meet all conditions, such as method=pacfl or accuracy>=0.9."""
    kept = list(rows)
    for condition in conditions:
        read = COMPARISON.match(condition.strip())
        if not read:
            raise IlkError(f"--where {condition} is not understood. Write COLUMN=VALUE; also !=, <, >, <=, >=.")
        column, sign, value = read.groups()
        name = _known(column, kept)
        kept = [row for row in kept if _meets(row.get(name), sign, value)]
    return kept


def _meets(has: Any, sign: str, value: str) -> bool:
    """Compare as numbers where both are, else as texts; what a row does not have is only unlike everything."""
    if has is None:
        return (sign == "=" and value.lower() == "none") or (sign == "!=" and value.lower() != "none")
    try:
        return bool(SIGNS[sign](float(has), float(value)))
    except (TypeError, ValueError):
        return bool(SIGNS[sign](str(has).lower(), value.lower()))


def by(rows: Sequence[Row], column: str, reverse: bool = False) -> list[Row]:
    """Return the rows sorted: numbers from the largest, texts from A, or the other way; what is missing last."""
    column = _known(column, rows)
    there = [row for row in rows if row.get(column) is not None]
    numeric = all(isinstance(row[column], int | float) for row in there)
    there.sort(key=lambda row: row[column] if numeric else str(row[column]).lower(), reverse=numeric != reverse)
    return there + [row for row in rows if row.get(column) is None]


def _known(column: str, rows: Sequence[Row]) -> str:
    """Return the name of a column: options of methods may be named without what stands before them."""
    names = {name for row in rows for name in row} | set(SHOWN)
    found = next((name for name in (column, f"options.{column}") if name in names), None)
    if found is None:
        raise unknown("column", column, names)
    return found
