"""Names of clients, data sets and files are somebody else's text: made fit to be shown, wherever they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# Signs that turn the direction of text, and control characters: a name must not reorder the page around it.
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
LONGEST = 200


def clean(value: Any) -> str:
    """Return a text of somebody else's as one that can be shown: no unseen signs, not endless."""
    seen = UNSEEN.sub("\ufffd", str(value).encode("utf-8", "replace").decode())
    return seen if len(seen) <= LONGEST else seen[: LONGEST - 1] + "…"


def distinct(values: Iterable[Any]) -> list[str]:
    """Return clean texts, told apart by a number where cleaning made two the same."""
    seen: dict[str, int] = {}
    result = []
    for value in values:
        name = clean(value)
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result
