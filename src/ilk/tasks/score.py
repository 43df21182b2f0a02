"""How good a model is on some samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ilk.params import Net, Vector

CHUNK = 1000  # samples a forward pass: large enough to be fast, small enough for the cache and for memory


@dataclass(frozen=True)
class Score:
    """One model on one set of samples."""

    accuracy: float
    f1: float  # macro average over the labels that occur in the truth or in the predictions
    loss: float  # mean cross-entropy


def forward(net: Net, model: Vector, x: Tensor) -> Tensor:
    """Return the model's outputs (logits) for all samples."""
    if net.native:
        return torch.from_numpy(net.native.forward(model, x.numpy()))
    net.load(model)
    net.module.eval()
    with torch.inference_mode():
        return torch.cat([net.module(part) for part in torch.split(x, CHUNK)])


def predict(net: Net, model: Vector, x: Tensor) -> NDArray[np.int64]:
    """Return the class that the model gives to each sample."""
    labels: NDArray[np.int64] = forward(net, model, x).argmax(dim=1).numpy()
    return labels


def loss_of(net: Net, model: Vector, x: Tensor, y: Tensor) -> float:
    """Return the mean cross-entropy; a model that does not give finite numbers is worse than any that does."""
    loss = float(cross_entropy(forward(net, model, x), y))
    return loss if np.isfinite(loss) else np.inf


def score(net: Net, model: Vector, x: Tensor, y: Tensor) -> Score:
    """Return accuracy, macro-F1 and loss."""
    return score_of(forward(net, model, x), y)


def score_of(logits: Tensor, y: Tensor) -> Score:
    """Return accuracy, macro-F1 and loss of a model's outputs."""
    predicted, truth = logits.argmax(dim=1).numpy(), y.numpy()
    return Score(
        accuracy=float((predicted == truth).mean()),
        f1=macro_f1(truth, predicted),
        loss=float(cross_entropy(logits, y)),
    )


def macro_f1(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> float:
    """Return the mean F1 over the labels that occur in the truth or in the predictions.

    scikit-learn's `f1_score`, by counting: hundreds of clients are scored each round, and its checks cost more than a
    small network's forward pass.
    """
    labels = int(max(truth.max(), predicted.max())) + 1
    right = np.bincount(truth[truth == predicted], minlength=labels)
    named = np.bincount(truth, minlength=labels) + np.bincount(predicted, minlength=labels)
    return float(np.mean(2 * right[named > 0] / named[named > 0]))
