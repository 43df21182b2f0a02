"""What a checkpoint keeps that the report draws: small arrays of the method's state, read without the method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy.spatial.distance import squareform

from ilk.clusters.agreement import inference_agreement
from ilk.runs.folder import CHECKPOINT

Matrix = NDArray[np.float64]
DRAWN = ("distance", "predictions")  # fields of a state; models and signatures are large and stay on disk


@dataclass(frozen=True)
class Kept:
    """Of a state: the arrays that are drawn, and its plain values."""

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)


def kept_of(folder: Path) -> tuple[Kept, list[str]]:
    """Read them from a run's checkpoint; also say what is wrong with it."""
    path = folder / CHECKPOINT
    if not path.exists():
        return Kept(), [f"{path.name} is missing: no matrix of distances"]
    try:
        with safe_open(path, "numpy") as file:
            plain = json.loads(file.metadata()["ilk"])["plain"]
            there = set(file.keys())
            arrays = {name: file.get_tensor(f"state/{name}") for name in DRAWN if f"state/{name}" in there}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        return Kept(), [f"{path.name} cannot be read ({error}): no matrix of distances"]
    return Kept(arrays, plain), []


def distance_of(kept: Kept, clients: int) -> tuple[Matrix, str] | None:
    """Return what the method measured between clients, and what it is; None where it keeps no such matrix.

    NaN stands where somebody was not measured. A matrix may be kept square or condensed (the upper triangle as a row).
    """
    if "distance" in kept.arrays:
        kept_as = np.asarray(kept.arrays["distance"], dtype=np.float64)
        if kept_as.shape == (clients * (clients - 1) // 2,):
            return np.asarray(squareform(kept_as, checks=False), dtype=np.float64), "distance between data signatures"
        if kept_as.shape == (clients, clients):
            return kept_as, "distance between data signatures"
    if "predictions" in kept.arrays and len(kept.arrays["predictions"]) == clients:
        said = np.asarray(kept.arrays["predictions"], dtype=np.int64)
        came = (said >= 0).all(axis=1)
        distance = np.full((clients, clients), np.nan)
        distance[np.ix_(came, came)] = 1.0 - inference_agreement(said[came])
        return distance, "share of the server's samples on which two first models disagree"
    return None
