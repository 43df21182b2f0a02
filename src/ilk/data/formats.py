"""The file formats in which the image data sets are published, each read into the same arrays.

A reader takes the files of a data set and what its images must look like, and gives the train and the test split. What
is wrong with a file is found here, before anything is kept of it, and told with the name of the file.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from ilk.errors import IlkError


@dataclass(frozen=True)
class Expected:
    """What the images and labels of a data set must look like."""

    shape: tuple[int, int, int]  # channels, height, width
    classes: int

    @property
    def image(self) -> tuple[int, ...]:
        """The shape of one image in a file: height and width, and the channels last if there are several."""
        channels, *size = self.shape
        return tuple(size) if channels == 1 else (*size, channels)


class Split(NamedTuple):
    """Images, channel first, with their labels."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


Splits = tuple[Split, Split]
Reader = Callable[[Sequence[Path], Expected], Splits]


@contextmanager
def reading(what: Path | str, expected: str) -> Iterator[None]:
    """Turn whatever a decoder raises into one error that says which file is bad and what was expected of it.

    On damaged files NumPy, zlib, lzma, zipfile and SciPy raise exceptions with no common base, so all are caught.
    """
    try:
        yield
    except IlkError:
        raise
    except Exception as error:
        problem = (str(error) or type(error).__name__).rstrip(".")
        raise IlkError(f"{what} cannot be read: {problem}. Expected: {expected}.") from error


def require(holds: bool, message: str) -> None:
    """Raise an error with this message unless the condition holds."""
    if not holds:
        raise IlkError(message)


def checked(
    images: NDArray[Any], labels: NDArray[Any], expected: Expected, images_from: Path | str, labels_from: Path | str
) -> Split:
    """Return one split, channel first, after checking all that can be checked of images with their channels last."""
    require(images.dtype == np.uint8, f"{images_from} has numbers of type {images.dtype}, expected uint8.")
    require(
        images.shape[1:] == expected.image,
        f"{images_from} has the shape {_times(images.shape)}, expected N x {_times(expected.image)}.",
    )
    require(
        labels.dtype.kind in "iu" and labels.ndim == 1,
        f"{labels_from} has the shape {_times(labels.shape)} and the type {labels.dtype}, expected N whole numbers.",
    )
    require(
        len(images) == len(labels), f"{images_from} has {len(images)} images, but {labels_from} {len(labels)} labels."
    )
    require(len(images) > 0, f"{images_from} has no images.")
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= 0 and high < expected.classes,
        f"{labels_from} has labels from {low} to {high}, expected 0 to {expected.classes - 1}.",
    )
    channels, height, width = expected.shape
    channel_last = images.reshape(-1, height, width, channels)
    return Split(np.ascontiguousarray(np.moveaxis(channel_last, -1, 1)), labels.astype(np.int64))


def content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip-compressed: its first bytes tell, whatever its name."""
    data = path.read_bytes()
    require(len(data) > 0, f"{path} is empty.")
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def read_npz(files: Sequence[Path], expected: Expected) -> Splits:
    """Read one NumPy archive with x_train, y_train, x_test, y_test: N x H x W, or N x H x W x 3."""
    (path,) = files
    with reading(path, "a NumPy archive with x_train, y_train, x_test and y_test"):
        require(path.stat().st_size > 0, f"{path} is empty.")
        require(zipfile.is_zipfile(path), f"{path} is not a whole .npz archive: no zip file at all, or cut short.")
        with np.load(path, allow_pickle=False) as archive:

            def part(name: str) -> Split:
                missing = [array for array in (f"x_{name}", f"y_{name}") if array not in archive]
                require(not missing, f"{path} has no {' and no '.join(missing)}; it has {', '.join(archive.files)}.")
                images, labels = np.asarray(archive[f"x_{name}"]), np.asarray(archive[f"y_{name}"])
                return checked(images, labels, expected, f"{path}: x_{name}", f"{path}: y_{name}")

            return part("train"), part("test")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one array in the IDX format of MNIST: a magic number, the size of each axis (big-endian), then bytes."""
    with reading(path, "an IDX file"):
        data = content(path)
        zeros, kind, axes = struct.unpack_from(">HBB", data)
        require(
            zeros == 0 and kind == 8 and axes > 0,
            f"{path} begins with the bytes {data[:4].hex(' ')}; an IDX file of bytes begins with 00 00 08.",
        )
        shape = struct.unpack_from(f">{axes}I", data, 4)
        values = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
        require(
            values.size == math.prod(shape),
            f"{path} has {values.size} values, but its header says {_times(shape)}: it is cut short or damaged.",
        )
        return values.reshape(shape)


def read_idx_files(files: Sequence[Path], expected: Expected) -> Splits:
    """Read MNIST's four files: train images, train labels, test images, test labels."""
    x_train, y_train, x_test, y_test = files
    return (
        checked(read_idx(x_train), read_idx(y_train), expected, x_train, y_train),
        checked(read_idx(x_test), read_idx(y_test), expected, x_test, y_test),
    )


def read_cifar(files: Sequence[Path], expected: Expected) -> Splits:
    """Read CIFAR's binary batches, the last of which is the test split.

    A record is the label and then the red, the green and the blue plane. CIFAR-100 has two labels: the first is the
    coarse one (20 super-classes), the second the fine one, which is the label here.
    """
    label_bytes = 1 if expected.classes == 10 else 2
    record = label_bytes + math.prod(expected.shape)

    def batch(path: Path) -> Split:
        with reading(path, f"records of {record} bytes"):
            data = content(path)
            require(
                len(data) % record == 0,
                f"{path} has {len(data)} bytes, expected a multiple of {record}: it is cut short or another format.",
            )
            table = np.frombuffer(data, np.uint8).reshape(-1, record)
            planes = table[:, label_bytes:].reshape(-1, *expected.shape)
            return checked(np.moveaxis(planes, 1, -1), table[:, label_bytes - 1], expected, path, path)

    *train, test = map(batch, files)
    return Split(np.concatenate([part.images for part in train]), np.concatenate([part.labels for part in train])), test


def read_svhn(files: Sequence[Path], expected: Expected) -> Splits:
    """Read SVHN's two MATLAB files: images as H x W x 3 x N, and the digit 0 under the label 10."""

    def part(path: Path) -> Split:
        with reading(path, "a MATLAB file (version 5) with X and y"):
            arrays = loadmat(io.BytesIO(content(path)))
            require({"X", "y"} <= arrays.keys(), f"{path} has no X and y; these are the variables of SVHN's format 2.")
            images, labels = arrays["X"], arrays["y"].ravel()
            require(images.ndim == 4, f"{path}: X has the shape {_times(images.shape)}, expected 32 x 32 x 3 x N.")
            labels = np.where(labels == 10, np.zeros_like(labels), labels)
            return checked(np.moveaxis(images, 3, 0), labels, expected, f"{path}: X", f"{path}: y")

    train, test = files
    return part(train), part(test)


def read_usps(files: Sequence[Path], expected: Expected) -> Splits:
    """Read USPS's zip.train and zip.test: a line an image, its label and then its values from -1 to 1."""

    def part(path: Path) -> Split:
        columns = 1 + math.prod(expected.shape)
        with reading(path, f"lines of {columns} numbers"):
            table = np.loadtxt(io.BytesIO(content(path)), ndmin=2)
            require(table.shape[1] == columns, f"{path} has lines of {table.shape[1]} numbers, expected {columns}.")
            labels, values = table[:, 0], table[:, 1:]
            require(bool(np.all(np.abs(values) <= 1)), f"{path} has values outside -1 to 1.")
            require(bool(np.all(labels == np.rint(labels))), f"{path} has labels that are not whole numbers.")
            images = np.rint((values + 1) / 2 * 255).astype(np.uint8).reshape(-1, *expected.image)
            return checked(images, labels.astype(np.int64), expected, path, path)

    train, test = files
    return part(train), part(test)


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "()"
