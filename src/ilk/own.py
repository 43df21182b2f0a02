"""The user's own ``module:callable``: found in what is installed, or in the folder that they stand in."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from ilk.errors import IlkError


def find(what: str, name: str) -> Any:
    """Import ``module:callable``; `what` says in an error what it is for."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise IlkError(
            f"The {what} '{name}' cannot be imported: {words(error)}. Give it as module:callable, such that "
            f"`from module import callable` works in {here}."
        ) from error


def words(error: BaseException) -> str:
    """Return an exception as a person can use it: its first line and its kind."""
    first = str(error).strip().splitlines()
    return f"{first[0]} ({type(error).__name__})" if first else type(error).__name__
