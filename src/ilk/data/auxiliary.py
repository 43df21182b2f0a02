"""The server's own, unlabelled inputs, and the three places that they can come from.

`2500` samples are held out of training before the split: nobody else sees them (the sound way). A file holds inputs of
the operator's own. `test:2500` takes them from the test split, as the released code of FLIS does: clients are then tested
on samples that the server has decided by, which is a leak, and every run says so.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ilk.data.datasets import Dataset
from ilk.data.formats import reading, require
from ilk.errors import IlkError

AuxiliaryFrom = Literal["train", "test"]
LEAK = "the server decides by samples of the test split (--auxiliary test:N, as in the released code of FLIS)"


@dataclass(frozen=True)
class Wanted:
    """What was asked for: a number of samples of one split, or a file."""

    count: int = 0
    split: AuxiliaryFrom = "train"
    file: Path | None = None


def wanted(given: int | str | Path) -> Wanted:
    """Understand 2500, "test:2500", or the path of an .npz file."""
    text = str(given)
    if re.fullmatch(r"-?\d+", text, re.ASCII):
        return Wanted(int(text))
    if text.endswith(".npz"):
        return Wanted(file=Path(text))
    if found := re.fullmatch(r"test:(\d+)", text, re.ASCII):
        return Wanted(int(found[1]), "test")
    raise IlkError(
        f"--auxiliary {text} is not understood. Allowed: a whole number (>= 0) of training samples, test:NUMBER for "
        "samples of the test split (which leaks), or the path of an .npz file with x."
    )


def from_test(labels: NDArray[np.int64], classes: int, count: int) -> NDArray[np.int64]:
    """Return the positions that the released code takes: of each class as many, the last ones but for the very last."""
    each, rest = divmod(count, classes)
    held = np.bincount(labels, minlength=classes)
    if rest or each >= held.min():
        raise IlkError(
            f"The server cannot have {count} samples of the test split: needed are equally many of each of the {classes} "
            f"classes, and fewer than the smallest has ({held.min()}). Give test:{min(each or 1, held.min() - 1) * classes}."
        )
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[-each - 1 : -1] for c in range(classes)]))


def from_file(path: Path, source: Dataset) -> NDArray[Any]:
    """Return the inputs in a file, channel first, after checking that they are like those of the data set."""
    channels, height, width = source.shape
    last = (height, width) if channels == 1 else (height, width, channels)
    needed = f"x, N images of {' x '.join(map(str, last))}, values from 0 to {source.scale:g} as in '{source.name}'"
    require(path.is_file(), f"There is no file {path}. Needed: {needed}.")
    with reading(path, needed):
        require(zipfile.is_zipfile(path), f"{path} is not a whole .npz archive. Needed: {needed}.")
        with np.load(path, allow_pickle=False) as archive:
            require(
                "x" in archive, f"{path} has no x; it has {', '.join(archive.files) or 'nothing'}. Needed: {needed}."
            )
            x = np.asarray(archive["x"])
    require(
        x.dtype.kind in "uif" and x.shape[1:] == last and len(x) > 0,
        f"{path}: x has the shape {' x '.join(map(str, x.shape))} and the type {x.dtype}. Needed: {needed}.",
    )
    low, high = float(x.min()), float(x.max())
    require(
        low >= 0 and high <= source.scale,  # false for NaN, too
        f"{path}: x has values from {low:g} to {high:g}. Needed: {needed}.",
    )
    require(
        high > 1 or high == 0 or source.scale == 1,
        f"{path}: x has values up to {high:g} only: it looks scaled to 0..1 already. Needed: {needed}.",
    )
    return np.ascontiguousarray(np.moveaxis(x.reshape(-1, height, width, channels), -1, 1))
