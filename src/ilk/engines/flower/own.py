"""A client's own data: read here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ilk.data.datasets import FACTS
from ilk.data.federation import Federation, federation
from ilk.data.silos import from_file
from ilk.errors import IlkError

Source = Callable[[int], Federation]  # of a seed: which samples are held out depends on it


def source(name: str, data: str, split: str | None = None, data_dir: str | None = None) -> Source:
    """Return where this client's data come from: a file, its file in a folder, or its share of a named data set."""
    if data in FACTS or split:
        if not split:
            raise IlkError(
                f"--data {data} is a data set for everybody; give --split FILE.json too: the partition that says which "
                f"samples are {name}'s (`ilk data split` makes one)."
            )
        return lambda seed: share_of(name, federation(data, split=split, data_dir=data_dir))
    path = Path(data) / f"{name}.npz" if Path(data).is_dir() else Path(data)
    if not path.exists():
        raise IlkError(
            f"There is no {path}. --data takes an .npz file, a folder with {name}.npz, or a data set's name."
        )
    return lambda seed: from_file(path, name, seed)


def share_of(name: str, whole: Federation) -> Federation:
    """Return the federation that has this client only."""
    shares = tuple(share for share in whole.partition.shares if share.id == name)
    if not shares:
        raise IlkError(f"The partition has no client '{name}'. It has: {', '.join(whole.ids[:20])}.")
    return Federation(whole.sources, replace(whole.partition, shares=shares, auxiliary=np.empty(0, np.int64)))
