"""FLIS: how alike models are, by what they say about the same samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 25  # bytes of one-hot labels that are held at a time


def inference_agreement(predictions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the similarity matrix: the fraction of samples to which two models give the same class.

    `predictions` holds a row for each model. With one-hot labels B this is <B_i, B_j> / (|B_i| |B_j|): 1 on the diagonal.
    """
    return agreement_between(predictions, predictions)


def agreement_between(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the agreement of each model of one group with each of another.

    The product is summed over blocks of samples, for one-hot labels are large: 1,000 models, 2,500 samples and 100 classes
    are 1 GB. Counts are whole numbers, so blocks change no bit.
    """
    classes = np.arange(max(rows.max(initial=0), columns.max(initial=0)) + 1)
    agreed = np.zeros((len(rows), len(columns)))
    block = max(BLOCK // (4 * len(classes) * max(len(rows), len(columns), 1)), 1)
    for start in range(0, rows.shape[1], block):
        one = _one_hot(rows[:, start : start + block], classes)
        other = one if columns is rows else _one_hot(columns[:, start : start + block], classes)
        agreed += one @ other.T  # with itself: NumPy computes one half of a symmetric product
    agreed /= rows.shape[1]
    return agreed


def _one_hot(said: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.float32]:
    hot: NDArray[np.float32] = (said[:, :, None] == classes).reshape(len(said), -1).astype(np.float32)
    return hot
