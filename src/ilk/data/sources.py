"""Where a data set is found: in a folder of the user's, else on the Hugging Face hub if the user allowed it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ilk.data.formats import (
    Expected,
    Reader,
    Splits,
    content,
    read_cifar,
    read_idx_files,
    read_npz,
    read_svhn,
    read_usps,
    reading,
)
from ilk.data.hub import HUB, from_hub, refusal
from ilk.errors import IlkError


@dataclass(frozen=True)
class Source:
    """One place that a data set can be read from; nothing is read before it is asked for."""

    origin: str  # for people
    identity: tuple[str, ...]  # changes when the data may have changed
    read: Callable[[], Splits]


@dataclass(frozen=True)
class Layout:
    """The files that hold a data set on disk."""

    npz: str
    files: tuple[tuple[str, ...], ...]  # the original files, each under the names it goes by; .gz may follow
    folders: tuple[str, ...]  # usual names of a folder for them, in lower case without - and _
    read: Reader


_IDX = tuple(
    (f"{part}-{kind}-ubyte", f"{part}-{kind.replace('-', '.')}-ubyte")
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
_CIFAR10 = (*((f"data_batch_{batch}.bin",) for batch in range(1, 6)), ("test_batch.bin",))

LAYOUTS = {
    "mnist": Layout("mnist.npz", _IDX, ("mnist",), read_idx_files),
    "fashion-mnist": Layout("fashion_mnist.npz", _IDX, ("fashionmnist", "fmnist"), read_idx_files),
    "cifar10": Layout("cifar10.npz", _CIFAR10, ("cifar10", "cifar10batchesbin"), read_cifar),
    "cifar100": Layout("cifar100.npz", (("train.bin",), ("test.bin",)), ("cifar100", "cifar100binary"), read_cifar),
    "svhn": Layout("svhn.npz", (("train_32x32.mat",), ("test_32x32.mat",)), ("svhn",), read_svhn),
    "usps": Layout("usps.npz", (("zip.train",), ("zip.test",)), ("usps",), read_usps),
}

# MNIST and Fashion-MNIST have files of the same names and sizes. How the train labels begin tells them apart.
FIRST_LABELS = {"mnist": b"\5\0\4\1\x09\2\1\3\1\4", "fashion-mnist": b"\x09\0\0\3\0\2\7\2\5\5"}


def data_folder(data_dir: Path | str | None) -> Path | None:
    """Return the folder to look in: the one given, else the one that ILK_DATA names, else none."""
    given, by = (data_dir, "given as data folder") if data_dir else (os.environ.get("ILK_DATA"), "named by ILK_DATA")
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "does not exist"
        raise IlkError(f"{folder}, {by}, {problem}. Give a folder that holds the data sets' files.")
    return folder


def in_folder(name: str, folder: Path, expected: Expected) -> Source | None:
    """Find a data set in a folder: its .npz archive, else its original files there or in a sub-folder of its name."""
    layout = LAYOUTS[name]
    archive = folder / layout.npz
    with reading(folder, "a folder whose files may be read"):
        if archive.is_file():
            return _from_files(str(archive), (archive,), read_npz, expected)
        for place, files in _originals(layout, folder):
            whole = [file for file in files if file]
            if len(whole) == len(files) and not _is_another(name, whole):
                return _from_files(f"{place} (original files)", tuple(whole), layout.read, expected)
    return None


def on_hub(name: str, expected: Expected, folder: Path | None, download: bool) -> Source:
    """Return the hub as a source. Where it may not be asked, reading says that the data set was not found anywhere."""

    def read() -> Splits:
        if reason := refusal(download):
            raise IlkError(_not_found(name, folder, reason))
        return from_hub(HUB[name], expected)

    return Source(HUB[name].origin, ("hub", HUB[name].repository), read)


def find(name: str, expected: Expected, data_dir: Path | str | None, download: bool) -> Source:
    """Return the first source of a data set: the user's folder, then the hub."""
    folder = data_folder(data_dir)
    found = in_folder(name, folder, expected) if folder else None
    return found or on_hub(name, expected, folder, download)


def how_to_get(name: str) -> str:
    """Say in one sentence what a person can do to have this data set."""
    layout = LAYOUTS[name]
    originals = ", ".join(names[0] for names in layout.files)
    return (
        f"Set ILK_DATA or --data-dir to a folder with {layout.npz}, or with the original files {originals} (plain or "
        f".gz, in the folder or in its sub-folder '{name}'); or install `pip install 'ilk[hub]'` and allow the "
        f"download of {HUB[name].repository} from the Hugging Face hub with --download or ILK_DOWNLOAD=1."
    )


def _not_found(name: str, folder: Path | None, hub_refusal: str) -> str:
    looked = "No data folder was given" if folder is None else f"It is not in {folder}{_near_misses(name, folder)}"
    return f"The data set '{name}' was not found. {looked}; the hub was not asked: {hub_refusal}. {how_to_get(name)}"


def _near_misses(name: str, folder: Path) -> str:
    """Say where only some of the original files are, or files of the same names that hold another data set."""
    layout = LAYOUTS[name]
    misses = []
    for place, files in _originals(layout, folder):
        lacking = [names[0] for names, file in zip(layout.files, files, strict=True) if file is None]
        if not lacking:
            misses.append(f"the files in {place} are another data set's")
        elif len(lacking) < len(files):
            misses.append(f"{place} lacks {', '.join(lacking)}")
    return f" ({'; '.join(misses)})" if misses else ""


def _from_files(origin: str, files: tuple[Path, ...], read: Reader, expected: Expected) -> Source:
    facts = [(file.resolve(), file.stat()) for file in files]
    identity = tuple(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in facts)
    return Source(origin, identity, lambda: read(files, expected))


def _originals(layout: Layout, folder: Path) -> Iterator[tuple[Path, list[Path | None]]]:
    """Go through the folders that can hold the original files, and give what each has of them.

    Sub-folders with a telling name come first; `raw` is torchvision's.
    """

    def named(parent: Path) -> list[Path]:
        names = (*layout.folders, "raw")
        spelt = {child: child.name.lower().replace("-", "").replace("_", "") for child in parent.iterdir()}
        return sorted((child for child in spelt if spelt[child] in names and child.is_dir()), key=str)

    def present(place: Path, names: tuple[str, ...]) -> Path | None:
        candidates = (place / f"{name}{suffix}" for name in names for suffix in ("", ".gz"))
        return next((path for path in candidates if path.is_file()), None)

    below = named(folder)
    for place in (*(deeper for child in below for deeper in named(child)), *below, folder):
        yield place, [present(place, names) for names in layout.files]


def _is_another(name: str, files: list[Path]) -> bool:
    if name not in FIRST_LABELS:
        return False
    try:
        with reading(files[1], "labels"):
            first = content(files[1])[8:18]
    except IlkError:
        return False  # whoever reads the file in earnest will say what is wrong
    return any(first == labels for other, labels in FIRST_LABELS.items() if other != name)
