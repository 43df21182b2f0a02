"""A client's view of a data set: its samples as its network sees them, and what its labels mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.data.datasets import Dataset
from ilk.data.partition import Share

Positions = NDArray[np.int64] | slice


def inputs_of(
    source: Dataset, split: str, positions: Positions, share: Share, shape: tuple[int, ...], normalised: bool = True
) -> NDArray[np.float32]:
    """Return the inputs at these positions as the owner of `share` sees them."""
    images = source.x_train if split == "train" else source.x_test
    x = prepared(images[positions], source, shape, normalised)
    return np.ascontiguousarray(np.rot90(x, share.turns, axes=(2, 3)) if share.turns else x)


def labels_seen(source: Dataset, split: str, positions: Positions, share: Share) -> NDArray[np.int64]:
    """Return the labels at these positions as the owner of `share` calls them."""
    labels = source.y_train if split == "train" else source.y_test
    y = np.asarray(labels[positions], dtype=np.int64)
    return y if share.labels is None else np.asarray(share.labels, dtype=np.int64)[y]


def prepared(
    images: NDArray[Any], source: Dataset, shape: tuple[int, ...], normalised: bool = True
) -> NDArray[np.float32]:
    """Return a source's inputs as networks see them; not `normalised`: images from 0 to 1."""
    x: NDArray[Any] = np.array(images, dtype=np.float32)
    if x.ndim == 4:
        x = _fit_to(x, shape)
    x /= np.float32(source.scale)
    if normalised and source.mean:
        axes = (1, len(source.mean), *(1,) * (x.ndim - 2))
        x = (x - np.reshape(source.mean, axes).astype(np.float32)) / np.reshape(source.std, axes).astype(np.float32)
    return x


def _fit_to(x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Pad images to this height and width and repeat a grey channel, as MIX-4 needs it; before normalisation."""
    channels, height, width = shape
    if x.shape[2:] != (height, width):
        rows, columns = (height - x.shape[2]) // 2, (width - x.shape[3]) // 2
        x = np.pad(x, ((0, 0), (0, 0), (rows, height - x.shape[2] - rows), (columns, width - x.shape[3] - columns)))
    return x if x.shape[1] == channels else np.repeat(x, channels, axis=1)
