"""The catalogue of labelled image data sets, and a data set once it is loaded."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from functools import cache
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.data import dataset_cache, sources
from ilk.data.formats import Expected, Split, Splits
from ilk.errors import IlkError, IlkWarning, unknown
from ilk.randomness import stream


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before it is loaded. Mean and deviation are a channel's, after scaling to 0..1."""

    shape: tuple[int, int, int]
    classes: int
    train: int  # samples as published; a copy may hold fewer
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    description: str
    scale: float = 255.0

    @property
    def expected(self) -> Expected:
        """What its files must hold."""
        return Expected(self.shape, self.classes)


_GREY, _RGB = (1, 28, 28), (3, 32, 32)
_MNIST_MEAN, _MNIST_STD = (0.1307,), (0.3081,)
_DIGITS_ORIGIN = "scikit-learn"

# The constants are those of the papers' code. Fashion-MNIST and USPS take MNIST's there, so they do here.
FACTS = {
    "digits": Facts(
        (1, 8, 8), 10, 1437, 360, (0.3053,), (0.3761,), "handwritten digits, small, part of scikit-learn", scale=16.0
    ),
    "mnist": Facts(_GREY, 10, 60_000, 10_000, _MNIST_MEAN, _MNIST_STD, "handwritten digits"),
    "fashion-mnist": Facts(_GREY, 10, 60_000, 10_000, _MNIST_MEAN, _MNIST_STD, "articles of clothing"),
    "cifar10": Facts(
        _RGB, 10, 50_000, 10_000, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), "animals and vehicles"
    ),
    "cifar100": Facts(
        _RGB, 100, 50_000, 10_000, (0.507, 0.487, 0.441), (0.267, 0.256, 0.276), "things of a hundred kinds"
    ),
    "svhn": Facts(
        _RGB,
        10,
        73_257,
        26_032,
        (0.4376821, 0.4437697, 0.47280442),
        (0.19803012, 0.20101562, 0.19703614),
        "house numbers, one digit an image (without the 'extra' split)",
    ),
    "usps": Facts((1, 16, 16), 10, 7_291, 2_007, _MNIST_MEAN, _MNIST_STD, "handwritten digits from envelopes"),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """One labelled data set, decoded once into arrays that are memory-mapped where they lie on disk.

    The arrays are read-only: worker processes share their pages.
    """

    name: str
    x_train: NDArray[Any]  # images, channel first: n x C x H x W
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    classes: int
    scale: float  # the raw value that stands for 1.0
    mean: tuple[float, ...]  # a channel, after scaling
    std: tuple[float, ...]
    origin: str  # where it came from, for people
    folder: Path | None = None  # the cache folder with its .npy files

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return self.x_train.shape[1:]

    def __reduce__(self) -> tuple[Any, ...]:
        """Send only where the arrays lie, so that the other process maps the same pages.

        A changed copy (``dataclasses.replace`` with arrays of one's own) is sent whole.
        """
        if self.name == "digits" and self is _digits():
            return _digits, ()
        arrays = (self.x_train, self.y_train, self.x_test, self.y_test)
        if self.folder is not None and all(isinstance(array.base, mmap) for array in arrays):
            return _reopen, (self.name, self.folder)
        return Dataset, tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Listing:
    """A line of the catalogue."""

    name: str
    shape: tuple[int, int, int]
    classes: int
    train: int  # samples as published
    test: int
    description: str
    how_to_get: str
    available_from: str | None  # where `load` would take it from right now without a download


def load(name: str, data_dir: Path | str | None = None, *, download: bool = False) -> Dataset:
    """Load a data set by name: from ``data_dir``, else from the folder ILK_DATA, else from the Hugging Face hub.

    The hub is asked only with ``download=True`` or ILK_DOWNLOAD=1, if the extra ``ilk[hub]`` is installed and neither
    HF_HUB_OFFLINE nor HF_DATASETS_OFFLINE is set. What was downloaded once is found again without any of these.

    The first load decodes the files into the cache folder (ILK_CACHE, else the user's own); later ones map that copy.
    """
    if name not in FACTS:
        raise unknown("data set", name, FACTS)
    if name == "digits":
        return _digits()
    expected = FACTS[name].expected
    source = sources.find(name, expected, data_dir, download)
    folder = dataset_cache.folder_of(name, source.identity)
    if kept := dataset_cache.open_copy(folder, expected):
        return _dataset(name, *kept, folder)
    splits = source.read()
    try:
        return _dataset(name, dataset_cache.store_copy(folder, splits, source.origin, expected), source.origin, folder)
    except OSError as error:
        warnings.warn(
            f"The decoded copy of {name} cannot be kept in {folder.parent} ({error}), so every process holds it in "
            "memory. Set ILK_CACHE to a folder that can be written.",
            IlkWarning,
            stacklevel=2,
        )
        return _dataset(name, splits, source.origin, None)


def catalogue(data_dir: Path | str | None = None) -> list[Listing]:
    """List every data set that `load` knows, and where it would come from now. Nothing is decoded or downloaded."""
    folder = sources.data_folder(data_dir)

    def listing(name: str, facts: Facts) -> Listing:
        embedded = name == "digits"
        how = "It comes with ilk." if embedded else sources.how_to_get(name)
        place = _DIGITS_ORIGIN if embedded else _available_from(name, facts.expected, folder)
        return Listing(name, facts.shape, facts.classes, facts.train, facts.test, facts.description, how, place)

    return [listing(name, facts) for name, facts in FACTS.items()]


@cache
def _digits() -> Dataset:
    """Return scikit-learn's digits. They have no official split: a fixed shuffle, not stratified, makes one."""
    from sklearn.datasets import load_digits

    bunch, facts = load_digits(), FACTS["digits"]
    order = stream(0, "digits").permutation(len(bunch.target))
    images = bunch.images[order, None].astype(np.uint8)
    labels = bunch.target[order].astype(np.int64)
    train, test = (
        Split(images[: facts.train], labels[: facts.train]),
        Split(images[facts.train :], labels[facts.train :]),
    )
    return _dataset("digits", (train, test), _DIGITS_ORIGIN, None)


def _dataset(name: str, splits: Splits, origin: str, folder: Path | None) -> Dataset:
    (x_train, y_train), (x_test, y_test) = splits
    for array in (x_train, y_train, x_test, y_test):
        array.flags.writeable = False
    facts = FACTS[name]
    return Dataset(
        name=name,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=facts.classes,
        scale=facts.scale,
        mean=facts.mean,
        std=facts.std,
        origin=origin,
        folder=folder,
    )


def _reopen(name: str, folder: Path) -> Dataset:
    kept = dataset_cache.open_copy(folder, FACTS[name].expected)
    if kept is None:
        raise IlkError(f"The decoded copy of {name} in {folder} is gone or damaged. Start again: it is then made anew.")
    return _dataset(name, *kept, folder)


def _available_from(name: str, expected: Expected, folder: Path | None) -> str | None:
    if folder and (source := sources.in_folder(name, folder, expected)):
        return source.origin
    hub = sources.on_hub(name, expected, folder, download=False)
    return hub.origin if dataset_cache.folder_of(name, hub.identity).is_dir() else None
