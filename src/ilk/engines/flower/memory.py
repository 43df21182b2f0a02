"""What a client remembers between rounds, on its own disk: versions by the digest of their content.

Answer and memory must not drift apart, whatever dies when. So a new version is written before the answer is sent, and is
not used until the server names it: each message says which version the server has accepted last (`use`), and which one its
last checkpoint knows (`safe`), to which it would return after a crash. Everything else is of no use any more, and is
deleted. A version is a file named by the digest of what is in it: written twice it is the same, half written it is
found out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from ilk.engines.engine import memory_digest
from ilk.runs.folder import replace

NAME = re.compile(r"[0-9a-f]{64}")
Arrays = dict[str, NDArray[Any]]


class Lost(Exception):
    """The version that the server names is not here, or not whole."""


class Memory:
    """One client's memory in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def settle(self, use: str, safe: str) -> Arrays:
        """Return the version that the server has accepted last ("" is: nothing), and forget all but this and `safe`."""
        arrays = self._read(use)
        for path in self.folder.iterdir():
            if path.name not in {f"{use}.safetensors", f"{safe}.safetensors"}:
                path.unlink(missing_ok=True)
        return arrays

    def stage(self, arrays: Mapping[str, NDArray[Any]]) -> str:
        """Write a version, synced; return its name."""
        name = memory_digest(arrays)
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            replace(path, safetensors.numpy.save(dict(arrays)))
        return name

    def _read(self, name: str) -> Arrays:
        if not name:
            return {}
        if not NAME.fullmatch(name):
            raise Lost("no version has such a name")
        path = self.folder / f"{name}.safetensors"
        try:
            arrays = safetensors.numpy.load(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise Lost(f"{name[:12]} cannot be read: {error}") from None
        if memory_digest(arrays) != name:
            path.unlink()  # damaged: it would be taken for the version when it is staged anew
            raise Lost(f"{name[:12]} does not hold what its name says")
        return arrays
