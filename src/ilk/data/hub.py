"""Data sets from the Hugging Face hub, through the `datasets` library (the extra `ilk[hub]`).

The network is used only when the user asked for it, and never when one of Hugging Face's own offline switches is on.
What came from the hub once is kept in ilk's cache like any other source, and is then found without network, without
permission and without the library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from ilk.data.formats import Expected, Split, Splits, checked, reading, require


@dataclass(frozen=True)
class HubCopy:
    """Where on the hub a data set lies: parquet files ``folder/train-*`` and ``folder/test-*``, and their columns.

    The repository may also be a local folder that holds the same files.
    """

    repository: str
    folder: str
    image: str = "image"
    label: str = "label"

    @property
    def origin(self) -> str:
        """Where the data came from, for people."""
        return f"Hugging Face hub: {self.repository}"


HUB = {
    "mnist": HubCopy("ylecun/mnist", "mnist"),
    "fashion-mnist": HubCopy("zalando-datasets/fashion_mnist", "fashion_mnist"),
    "cifar10": HubCopy("uoft-cs/cifar10", "plain_text", image="img"),
    "cifar100": HubCopy("uoft-cs/cifar100", "cifar100", image="img", label="fine_label"),
    "svhn": HubCopy("ufldl-stanford/svhn", "cropped_digits"),
    "usps": HubCopy("flwrlabs/usps", "data"),
}


def refusal(download: bool) -> str | None:
    """Say why the hub must not be asked now, or None if it may be."""
    if not (download or _is_on("ILK_DOWNLOAD")):
        return "no download was allowed"
    if switch := next(filter(_is_on, ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")), None):
        return f"{switch} is set"
    return None if find_spec("datasets") else "the `datasets` library is not installed"


def from_hub(copy: HubCopy, expected: Expected) -> Splits:
    """Load both splits, from the hub or from a local folder with the same files.

    The files are named one by one because a whole configuration can hold more than is wanted: SVHN's has the "extra"
    split, five times the size of all the rest.
    """
    with reading(copy.origin, f"parquet files {copy.folder}/train-* and test-*, read by `datasets` and Pillow"):
        import datasets

        files = {name: f"{copy.folder}/{name}-*.parquet" for name in ("train", "test")}
        loaded = datasets.load_dataset(copy.repository, data_files=files)
        return _part(loaded["train"], copy, expected), _part(loaded["test"], copy, expected)


def _part(rows: Any, copy: HubCopy, expected: Expected) -> Split:
    import datasets

    missing = {copy.image, copy.label} - set(rows.column_names)
    require(not missing, f"{copy.origin} has no column {', '.join(missing)}; it has {', '.join(rows.column_names)}.")
    # Without the hub's metadata, parquet images arrive as {"bytes", "path"}: naming the type decodes both kinds.
    rows = rows.cast_column(copy.image, datasets.Image())
    mode = "L" if expected.shape[0] == 1 else "RGB"
    images, labels = [], []
    for row in rows:
        images.append(np.asarray(row[copy.image].convert(mode)))
        labels.append(row[copy.label])
        require(
            images[-1].shape == expected.image,
            f"{copy.origin} has an image of {images[-1].shape}, expected {expected.image}.",
        )
    require(len(images) > 0, f"{copy.origin} has no images.")
    return checked(np.stack(images), np.asarray(labels), expected, copy.origin, copy.origin)


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}
