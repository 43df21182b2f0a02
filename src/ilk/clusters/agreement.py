"""FLIS: how alike models are, by what they say about the same samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def inference_agreement(predictions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the similarity matrix: the fraction of samples to which two models give the same class.

    `predictions` holds a row for each model. With one-hot labels B this is <B_i, B_j> / (|B_i| |B_j|): 1 on the diagonal.
    """
    return agreement_between(predictions, predictions)


def agreement_between(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the agreement of each model of one group with each of another."""
    classes = np.arange(max(rows.max(initial=0), columns.max(initial=0)) + 1)
    one, other = ((p[:, :, None] == classes).reshape(len(p), -1).astype(np.float32) for p in (rows, columns))
    agreed: NDArray[np.float64] = (one @ other.T).astype(np.float64) / rows.shape[1]
    return agreed
