"""Decoded data sets, kept as .npy files that every process maps instead of reading.

A data set has one folder for each state of its source files: when they change, the name of the folder changes, and the
old one is simply no longer used (all of them may be deleted at any time). A folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_dir

from ilk.data.formats import Expected, Split, Splits

_FORMAT = "1"  # raise it when what lies in the folders changes
_ABANDONED = 24 * 3600  # seconds after which an unfinished folder is what a killed process left behind


def folder_of(name: str, identity: tuple[str, ...]) -> Path:
    """Return the folder for the decoded copy of a data set from a source of this identity; it need not exist."""
    root = Path(os.environ.get("ILK_CACHE") or user_cache_dir("ilk")).expanduser().absolute()
    key = hashlib.sha256(json.dumps([_FORMAT, name, *identity]).encode()).hexdigest()[:16]
    return root / "datasets" / f"{name}-{key}"


def open_copy(folder: Path, expected: Expected) -> tuple[Splits, str] | None:
    """Map a decoded copy and return it with its origin, or None if there is none or it is damaged."""
    try:
        origin = str(json.loads((folder / "origin.json").read_text())["origin"])
        return (_open_split(folder, "train", expected), _open_split(folder, "test", expected)), origin
    except (OSError, ValueError, EOFError, KeyError, TypeError):
        return None


def store_copy(folder: Path, splits: Splits, origin: str, expected: Expected) -> Splits:
    """Keep a decoded copy and return it mapped. Whatever keeps it from being written is an OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".part", dir=folder.parent))
    try:
        for part, split in zip(("train", "test"), splits, strict=True):
            np.save(unfinished / f"x_{part}.npy", split.images)
            np.save(unfinished / f"y_{part}.npy", split.labels)
        (unfinished / "origin.json").write_text(json.dumps({"origin": origin}))
        _install(unfinished, folder, expected)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    stored = open_copy(folder, expected)
    if stored is None:
        raise OSError("what was written does not read back")
    return stored[0]


def _install(unfinished: Path, folder: Path, expected: Expected) -> None:
    """Give the folder its name. If that is taken: by another process's copy, which is as good, or by a damaged one."""
    try:
        unfinished.rename(folder)
    except OSError:
        if open_copy(folder, expected) is None:
            with suppress(FileNotFoundError):
                folder.rename(unfinished / "damaged")
                shutil.rmtree(unfinished / "damaged")
            unfinished.rename(folder)


def _open_split(folder: Path, part: str, expected: Expected) -> Split:
    images: NDArray[np.uint8] = np.load(folder / f"x_{part}.npy", mmap_mode="r", allow_pickle=False)
    labels: NDArray[np.int64] = np.load(folder / f"y_{part}.npy", mmap_mode="r", allow_pickle=False)
    whole = images.dtype == np.uint8 and labels.dtype == np.int64 and images.shape == (len(labels), *expected.shape)
    if not whole:
        raise ValueError("not the arrays of this data set")
    return Split(images, labels)


def _sweep(parent: Path) -> None:
    for left in parent.glob(".*.part"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)
