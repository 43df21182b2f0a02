"""FLIS: how alike models are, by what they say about the same samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def inference_agreement(predictions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the similarity matrix: the fraction of samples to which two models give the same class.

    `predictions` holds a row for each model. With one-hot labels B this is <B_i, B_j> / (|B_i| |B_j|): 1 on the diagonal.
    """
    models, samples = predictions.shape
    classes = np.arange(predictions.max(initial=0) + 1)
    one_hot = (predictions[:, :, None] == classes).reshape(models, -1).astype(np.float32)
    agreed: NDArray[np.float64] = (one_hot @ one_hot.T).astype(np.float64) / samples
    return agreed
