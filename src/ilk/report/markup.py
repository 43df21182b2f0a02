"""HTML from plain values. Every text that is not ours goes through `text`; nothing else may write a name."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LONG = 40  # letters; a longer text in a table is set as text
# What an HTML parser, or an old JavaScript one, could take for something else than a part of a JSON text.
RISKY = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def text(value: Any) -> str:
    """Return a text so that HTML shows it as it is."""
    return html.escape(str(value).encode("utf-8", "replace").decode())


def script_json(value: Any) -> str:
    """Return JSON that can stand in a script element: no character in it can end the element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(RISKY)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values at their places, in one pass, so that no value is searched for places."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)


def sortable(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], losses: bool = False) -> str:
    """Return a table whose columns can be sorted by the buttons in their headers; a cell is a text or (number, format).

    With `losses`, numbers below zero are marked.
    """
    heads = "".join(f'<th scope="col"><button type="button">{text(name)}</button></th>' for name in columns)
    body = "".join(f"<tr>{''.join(_cell(value, losses) for value in row)}</tr>" for row in rows)
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
    table = f'<table aria-label="{text(caption)}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return f'<p class="soft title">{text(caption)}</p>{scroll}{table}</div>'


def _cell(value: Any, losses: bool) -> str:
    if not isinstance(value, tuple):
        return f'<td class="long">{text(value)}</td>' if len(str(value)) > LONG else f"<td>{text(value)}</td>"
    number, form = value
    if number is None or number != number:
        return '<td data-value="">-</td>'
    mark = ' class="loss"' if losses and number < 0 else ""
    return f'<td{mark} data-value="{float(number)!r}">{text(format(number, form))}</td>'


def paragraphs(sentences: Iterable[str]) -> str:
    """Return a paragraph for each."""
    return "".join(f"<p>{text(sentence)}</p>" for sentence in sentences)


def listed(items: Iterable[str]) -> str:
    """Return a list."""
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"
