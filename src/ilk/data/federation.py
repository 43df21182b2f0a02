"""A federation: clients, what each of them owns, and the data sets that this is cut from."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ilk.data import datasets
from ilk.data.datasets import Dataset
from ilk.data.partition import Partition, Share, check
from ilk.data.splits import Labels, TestPolicy, partition, sources_of
from ilk.errors import IlkError
from ilk.randomness import stream

Part = Literal["train", "validation", "test", "train+validation"]
Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class Federation:
    """Clients with their data. Everything that a run does with data goes through here."""

    sources: Mapping[str, Dataset]
    partition: Partition

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The clients' names, in order."""
        return tuple(share.id for share in self.partition.shares)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many samples each client trains on."""
        return np.array([len(share.train) for share in self.partition.shares])

    @cached_property
    def groups(self) -> NDArray[np.int64] | None:
        """The true group of each client, where the split knows it."""
        groups = [share.group for share in self.partition.shares]
        return None if None in groups else np.array(groups, dtype=np.int64)

    @property
    def classes(self) -> int:
        """How many labels there are."""
        return self.partition.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input as a network receives it."""
        shapes = [source.shape for source in self.sources.values()]
        return tuple(np.max(shapes, axis=0).tolist())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over who owns what, so that a resumed run is known to be on the same data."""
        total = hashlib.sha256(repr(sorted(self.partition.fingerprints.items())).encode())
        for share in self.partition.shares:
            total.update(repr((share.id, share.source, share.test_from, share.turns, share.labels)).encode())
            for positions in (share.train, share.validation, share.test):
                total.update(np.asarray(positions, np.int64).tobytes() + b"|")
        total.update(np.asarray(self.partition.auxiliary, np.int64).tobytes())
        return total.hexdigest()

    def read(self, client: int, part: Part, normalised: bool = True) -> Samples:
        """Return one client's samples as its network sees them; not `normalised`: images from 0 to 1."""
        share = self.partition.shares[client]
        split, positions = share.test_from if part == "test" else "train", share.train
        if part == "test":
            positions = share.test
        elif part == "train+validation":
            positions = np.concatenate([share.train, share.validation])
        elif part == "validation" and len(share.validation):  # a very small client has none, and uses its train part
            positions = share.validation
        return self._view(self.sources[share.source], split, positions, share, normalised)

    def read_test(self) -> Samples:
        """Return the global test set: every source's own test split, with the labels of this federation."""
        if not all(len(source.y_test) for source in self.sources.values()):
            raise IlkError(
                "The protocol 'global' needs a test set that belongs to no client, and this federation has none. "
                "Give one (test=(x, y) in Python), or use the protocol 'served'."
            )
        shifts = {share.source: share.labels for share in self.partition.shares if len(self.sources) > 1}
        parts = [
            self._view(source, "test", np.arange(len(source.y_test)), Share.plain(name, shifts.get(name)))
            for name, source in self.sources.items()
        ]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    def read_auxiliary(self) -> NDArray[np.float32]:
        """Return the server's own, unlabelled inputs: samples held out of training before the split."""
        name = next(iter(self.sources))
        x, _ = self._view(self.sources[name], "train", self.partition.auxiliary, Share.plain(name))
        return x

    def _view(
        self, source: Dataset, split: str, positions: NDArray[np.int64], share: Share, normalised: bool = True
    ) -> Samples:
        images, labels = (source.x_train, source.y_train) if split == "train" else (source.x_test, source.y_test)
        x: NDArray[Any] = np.asarray(images[positions], dtype=np.float32)
        if x.ndim == 4:
            x = _fit_to(x, self.shape)
        x /= np.float32(source.scale)
        if normalised and source.mean:
            axes = (1, len(source.mean), *(1,) * (x.ndim - 2))
            x = (x - np.reshape(source.mean, axes).astype(np.float32)) / np.reshape(source.std, axes).astype(np.float32)
        if share.turns:
            x = np.rot90(x, share.turns, axes=(2, 3))
        y = np.asarray(labels[positions], dtype=np.int64)
        if share.labels is not None:
            y = np.asarray(share.labels, dtype=np.int64)[y]
        return np.ascontiguousarray(x), y


def federation(
    data: str = "digits",
    *,
    split: str | Path = "rotate:4",
    clients: int = 40,
    seed: int = 0,
    test_policy: TestPolicy = "own",
    auxiliary: int = 0,
    data_dir: str | Path | None = None,
    download: bool = False,
) -> Federation:
    """Cut a named data set into clients, or take a frozen partition file as `split`."""
    if str(split).endswith(".json"):
        frozen = Partition.load(Path(split))
        sources = _load(sources_of(frozen.data), data_dir, download)
        check(frozen, _labels(sources))
        return Federation(sources, frozen)
    sources = _load(sources_of("mix4" if str(split) == "mix4" else data), data_dir, download)
    name = "mix4" if str(split) == "mix4" else data
    return Federation(
        sources, partition(name, str(split), _labels(sources), clients, seed, test_policy, auxiliary=auxiliary)
    )


def from_arrays(
    clients: Mapping[str, Sequence[ArrayLike]],
    *,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    auxiliary: ArrayLike | None = None,
    groups: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Federation:
    """Make a federation of the caller's own arrays.

    `clients` maps each client's name to ``(x, y)`` or ``(x_train, y_train, x_test, y_test)``; labels are integers from
    0, inputs are used as they are (scale them first). Of a client that brings no test data, 30 % are held out.
    `test` is a test set that belongs to nobody (protocol "global"), `auxiliary` inputs that the server owns (FLIS).
    """
    if not clients:
        raise IlkError("A federation needs at least one client; the mapping given is empty.")
    xs, ys, shares, start = [], [], [], 0
    for name, arrays in clients.items():
        x, y, test_count = _own_arrays(str(name), arrays)
        positions = np.arange(start, start + len(y))
        train, held = positions[: len(y) - test_count], positions[len(y) - test_count :]
        random = stream(seed, "arrays", str(name))
        train = random.permutation(train)
        if not test_count:
            held, train = np.split(train, [round(0.3 * len(train))])
        validation, train = np.split(train, [max(round(0.1 * len(train)), 1) if len(train) > 1 else 0])
        if not len(train) or not len(held):
            raise IlkError(f"Client '{name}' has {len(y)} samples; it needs at least one to train on and one to test.")
        group = None if groups is None else groups.get(str(name))
        shares.append(Share(str(name), "arrays", train, validation, held, test_from="train", group=group))
        xs.append(x)
        ys.append(y)
        start += len(y)
    if len({x.shape[1:] for x in xs}) > 1:
        odd = {name: x.shape[1:] for name, x in zip(clients, xs, strict=True)}
        raise IlkError(f"All clients must have inputs of one shape; these differ: {odd}.")
    server = np.empty((0, *xs[0].shape[1:]), np.float32) if auxiliary is None else np.asarray(auxiliary, np.float32)
    x_test, y_test = (server[:0], np.empty(0, np.int64)) if test is None else _own_arrays("test", test)[:2]
    y_train = np.concatenate([*ys, np.zeros(len(server), np.int64)])
    classes = int(max(y_train.max(), y_test.max(initial=0))) + 1
    everything = Dataset(
        name="arrays",
        x_train=np.concatenate([*xs, server]),
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=classes,
        scale=1.0,
        mean=(),
        std=(),
        origin="the caller's arrays",
    )
    labels = _labels({"arrays": everything})["arrays"]
    given = any(len(arrays) == 4 for arrays in clients.values())
    content = hashlib.sha256(everything.x_train.tobytes() + everything.x_test.tobytes()).hexdigest()
    return Federation(
        {"arrays": everything},
        Partition(
            data="arrays",
            split="given",
            test_policy="given" if given else "holdout",
            seed=seed,
            classes=classes,
            shares=tuple(shares),
            auxiliary=np.arange(start, start + len(server)),
            fingerprints={"arrays": labels.fingerprint() + content},
            notes={},
        ),
    )


def from_folder(folder: Path, seed: int = 0) -> Federation:
    """Make a federation of a folder with one .npz file for each client, named after it.

    A file holds x and y, or x_train, y_train, x_test and y_test, as in `from_arrays`. Files that begin with an
    underscore belong to nobody: _test.npz (x, y) is the global test set, _auxiliary.npz (x) the server's data.
    """
    files = sorted(folder.glob("*.npz"))
    read = {path.stem: _read_npz(path) for path in files}
    clients = {name: arrays for name, arrays in read.items() if not name.startswith("_")}
    if not clients:
        raise IlkError(f"The folder {folder} has no .npz file; needed is one for each client, with x and y.")
    order = [("x", "y"), ("x_train", "y_train", "x_test", "y_test")]
    given = {}
    for name, arrays in clients.items():
        names = next((names for names in order if set(names) <= set(arrays)), None)
        if names is None:
            raise IlkError(
                f"{folder / name}.npz holds {', '.join(arrays) or 'nothing'}; needed are x and y, "
                "or x_train, y_train, x_test and y_test."
            )
        given[name] = tuple(arrays[key] for key in names)
    test, auxiliary = read.get("_test"), read.get("_auxiliary", {}).get("x")
    return from_arrays(given, test=(test["x"], test["y"]) if test else None, auxiliary=auxiliary, seed=seed)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise IlkError(f"{path} cannot be read as an .npz file of plain arrays: {error}.") from None


def _own_arrays(name: str, arrays: Sequence[ArrayLike]) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Check one client's arrays; return inputs, labels, and how many of the last samples are test data."""
    if len(arrays) not in (2, 4):
        raise IlkError(
            f"Client '{name}' gave {len(arrays)} arrays; allowed are (x, y) or (x_train, y_train, x_test, y_test)."
        )
    pairs = [(np.asarray(arrays[i]), np.asarray(arrays[i + 1])) for i in range(0, len(arrays), 2)]
    for x, y in pairs:
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            raise IlkError(
                f"Client '{name}' has inputs of shape {x.shape} and labels of shape {y.shape}; "
                "needed are n x features (or n x channels x height x width) and n."
            )
        if not np.issubdtype(x.dtype, np.number) or not np.isfinite(x).all():
            raise IlkError(f"Client '{name}' has inputs that are not finite numbers; clean or impute them first.")
        if not np.issubdtype(y.dtype, np.integer) or (len(y) and y.min() < 0):
            raise IlkError(f"Client '{name}' has labels of type {y.dtype}; needed are integers 0, 1, 2, ...")
    x = np.concatenate([x for x, _ in pairs]).astype(np.float32)
    y = np.concatenate([y for _, y in pairs]).astype(np.int64)
    return x, y, len(pairs[1][1]) if len(pairs) == 2 else 0


def _load(names: Sequence[str], data_dir: str | Path | None, download: bool) -> dict[str, Dataset]:
    return {name: datasets.load(name, data_dir, download=download) for name in names}


def _labels(sources: Mapping[str, Dataset]) -> dict[str, Labels]:
    return {name: Labels(s.y_train, s.y_test, s.classes) for name, s in sources.items()}


def _fit_to(x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Pad images to this height and width and repeat a grey channel, as MIX-4 needs it; before normalisation."""
    channels, height, width = shape
    if x.shape[2:] != (height, width):
        rows, columns = (height - x.shape[2]) // 2, (width - x.shape[3]) // 2
        x = np.pad(x, ((0, 0), (0, 0), (rows, height - x.shape[2] - rows), (columns, width - x.shape[3] - columns)))
    return x if x.shape[1] == channels else np.repeat(x, channels, axis=1)
