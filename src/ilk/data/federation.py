"""A federation: clients, what each of them owns, and the data sets that this is cut from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ilk.data import datasets
from ilk.data.auxiliary import from_file, from_test, wanted
from ilk.data.datasets import Dataset
from ilk.data.partition import Partition, Share, check
from ilk.data.splits import Labels, TestPolicy, partition, sources_of
from ilk.errors import IlkError

Part = Literal["train", "validation", "test", "train+validation"]
Samples = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class Federation:
    """Clients with their data. Everything that a run does with data goes through here."""

    sources: Mapping[str, Dataset]
    partition: Partition
    server_inputs: NDArray[Any] | None = None  # of a file: instead of the partition's auxiliary samples

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
        for source in self.sources.values():
            for images in (source.x_train, source.x_test):
                sample = images[:: max(len(images) // 1000, 1)]  # a thousand of each split: cheap, and a change shows
                total.update(f"{images.shape}{images.dtype}".encode() + np.ascontiguousarray(sample).tobytes())
        for share in self.partition.shares:
            total.update(repr((share.id, share.source, share.test_from, share.turns, share.labels)).encode())
            for positions in (share.train, share.validation, share.test):
                total.update(np.asarray(positions, np.int64).tobytes() + b"|")
        total.update(np.asarray(self.partition.auxiliary, np.int64).tobytes())
        if self.partition.auxiliary_from != "train":
            total.update(self.partition.auxiliary_from.encode())
        if self.server_inputs is not None:
            total.update(
                f"{self.server_inputs.shape}{self.server_inputs.dtype}".encode() + self.server_inputs.tobytes()
            )
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
        self.require_test()
        shifts = {share.source: share.labels for share in self.partition.shares if len(self.sources) > 1}
        parts = [
            self._view(source, "test", np.arange(len(source.y_test)), Share.plain(name, shifts.get(name)))
            for name, source in self.sources.items()
        ]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    def label_counts(self) -> NDArray[np.int64]:
        """Return how many training samples of each label each client has: a row a client."""
        counts = np.zeros((len(self.ids), self.classes), dtype=np.int64)
        for row, share in zip(counts, self.partition.shares, strict=True):
            labels = self._labels(self.sources[share.source].y_train[share.train], share)
            row += np.bincount(labels, minlength=self.classes)
        return counts

    def require_test(self) -> None:
        """Refuse a federation that has no test set of its own."""
        if not all(len(source.y_test) for source in self.sources.values()):
            raise IlkError(
                "The protocol 'global' needs a test set that belongs to no client, and this federation has none. "
                "Give one (test=(x, y) in Python, _test.npz in a folder), or use the protocol 'served'."
            )

    def require_auxiliary(self, who: str = "This method") -> None:
        """Refuse a federation whose server owns no data, in the name of who needs it."""
        if not self.auxiliary_count:
            raise IlkError(
                f"{who} compares models on data that the server owns, and this federation has none. Hold some out of "
                "training before the split (--auxiliary 100; auxiliary=100 in ilk.federation), or give your own "
                "(--auxiliary FILE.npz; auxiliary=x in ilk.from_arrays; _auxiliary.npz in a folder)."
            )

    def read_auxiliary(self) -> NDArray[np.float32]:
        """Return the server's own, unlabelled inputs."""
        name, source = next(iter(self.sources.items()))
        if self.server_inputs is not None:
            return self._prepared(self.server_inputs, source)
        return self._view(source, self.partition.auxiliary_from, self.partition.auxiliary, Share.plain(name))[0]

    @property
    def auxiliary_count(self) -> int:
        """How many inputs the server owns."""
        return len(self.partition.auxiliary if self.server_inputs is None else self.server_inputs)

    @property
    def auxiliary_from(self) -> str:
        """Where the server's inputs come from: train (held out before the split), test (a leak), or file."""
        return self.partition.auxiliary_from if self.server_inputs is None else "file"

    def _view(
        self, source: Dataset, split: str, positions: NDArray[np.int64], share: Share, normalised: bool = True
    ) -> Samples:
        images, labels = (source.x_train, source.y_train) if split == "train" else (source.x_test, source.y_test)
        x = self._prepared(images[positions], source, normalised)
        if share.turns:
            x = np.rot90(x, share.turns, axes=(2, 3))
        return np.ascontiguousarray(x), self._labels(labels[positions], share)

    def _labels(self, labels: NDArray[Any], share: Share) -> NDArray[np.int64]:
        """Return a source's labels as this client calls them."""
        y = np.asarray(labels, dtype=np.int64)
        return y if share.labels is None else np.asarray(share.labels, dtype=np.int64)[y]

    def _prepared(self, images: NDArray[Any], source: Dataset, normalised: bool = True) -> NDArray[np.float32]:
        """Return a source's inputs as its networks see them."""
        x: NDArray[Any] = np.array(images, dtype=np.float32)
        if x.ndim == 4:
            x = _fit_to(x, self.shape)
        x /= np.float32(source.scale)
        if normalised and source.mean:
            axes = (1, len(source.mean), *(1,) * (x.ndim - 2))
            x = (x - np.reshape(source.mean, axes).astype(np.float32)) / np.reshape(source.std, axes).astype(np.float32)
        return x


def federation(
    data: str = "digits",
    *,
    split: str | Path = "rotate:4",
    clients: int = 40,
    seed: int = 0,
    test_policy: TestPolicy = "own",
    auxiliary: int | str | Path = 0,
    data_dir: str | Path | None = None,
    download: bool = False,
) -> Federation:
    """Cut a named data set into clients, or take a frozen partition file as `split`.

    `auxiliary` are the server's inputs: a number of samples held out of training, "test:2500", or an .npz file.
    """
    own = wanted(auxiliary)
    if str(split).endswith(".json"):
        frozen = Partition.load(Path(split))
        sources = _load(sources_of(frozen.data), data_dir, download)
        check(frozen, labels_of(sources))
    else:
        name = "mix4" if str(split).lower() == "mix4" else data
        sources = _load(sources_of(name), data_dir, download)
        held_out = own.count if own.split == "train" else 0
        frozen = partition(name, str(split), labels_of(sources), clients, seed, test_policy, auxiliary=held_out)
        if own.split == "test":
            if len(sources) > 1:
                raise IlkError(
                    f"'{name}' keeps no auxiliary samples for the server; {auxiliary} was given. Give a file."
                )
            first = sources[next(iter(sources))]
            positions = from_test(first.y_test, first.classes, own.count)
            frozen = replace(frozen, auxiliary=positions, auxiliary_from="test")
    inputs = from_file(own.file, sources[next(iter(sources))]) if own.file else None
    return Federation(sources, frozen, inputs)


def _load(names: Sequence[str], data_dir: str | Path | None, download: bool) -> dict[str, Dataset]:
    return {name: datasets.load(name, data_dir, download=download) for name in names}


def labels_of(sources: Mapping[str, Dataset]) -> dict[str, Labels]:
    """Return what a split may look at of each data set."""
    return {name: Labels(s.y_train, s.y_test, s.classes) for name, s in sources.items()}


def _fit_to(x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Pad images to this height and width and repeat a grey channel, as MIX-4 needs it; before normalisation."""
    channels, height, width = shape
    if x.shape[2:] != (height, width):
        rows, columns = (height - x.shape[2]) // 2, (width - x.shape[3]) // 2
        x = np.pad(x, ((0, 0), (0, 0), (rows, height - x.shape[2] - rows), (columns, width - x.shape[3] - columns)))
    return x if x.shape[1] == channels else np.repeat(x, channels, axis=1)
