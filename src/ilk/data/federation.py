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
from ilk.data.views import inputs_of, labels_seen, prepared
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
        source = self.sources[share.source]
        inputs = inputs_of(source, split, positions, share, self.shape, normalised)
        return inputs, labels_seen(source, split, positions, share)

    def read_test_part(self, client: int, which: NDArray[Any]) -> NDArray[np.float32]:
        """Return the inputs of some of a client's test samples, as its network sees them."""
        share = self.partition.shares[client]
        return inputs_of(self.sources[share.source], share.test_from, share.test[which], share, self.shape)

    def test_labels(self, client: int) -> NDArray[np.int64]:
        """Return the labels of a client's test samples, without reading their inputs."""
        share = self.partition.shares[client]
        return labels_seen(self.sources[share.source], share.test_from, share.test, share)

    def test_numbers(self, client: int) -> NDArray[np.int64]:
        """Number a client's test samples so that two clients see the same input under the same number."""
        share = self.partition.shares[client]
        kind = self._kinds.setdefault((share.source, share.test_from, share.turns % 4), len(self._kinds))
        return share.test + (kind << 40)

    @cached_property
    def _kinds(self) -> dict[tuple[str, str, int], int]:
        return {}

    def read_test(self, which: NDArray[np.int64] | None = None) -> Samples:
        """Return the global test set, or some of it: every source's own test split, with the labels of this federation."""
        self.require_test()
        inputs, start = [], 0
        for source, share in self._global:
            stop = start + len(source.y_test)
            own = np.arange(stop - start) if which is None else which[(which >= start) & (which < stop)] - start
            inputs.append(inputs_of(source, "test", own, share, self.shape))
            start = stop
        return np.concatenate(inputs), self.global_labels if which is None else self.global_labels[which]

    @cached_property
    def global_labels(self) -> NDArray[np.int64]:
        """The labels of the global test set."""
        return np.concatenate([labels_seen(source, "test", slice(None), share) for source, share in self._global])

    @property
    def _global(self) -> list[tuple[Dataset, Share]]:
        shifts = {share.source: share.labels for share in self.partition.shares if len(self.sources) > 1}
        return [(source, Share.plain(name, shifts.get(name))) for name, source in self.sources.items()]

    def label_counts(self) -> NDArray[np.int64] | None:
        """Return how many training samples of each label each client has: a row a client; None where that is not known."""
        counts = np.zeros((len(self.ids), self.classes), dtype=np.int64)
        for row, share in zip(counts, self.partition.shares, strict=True):
            labels = labels_seen(self.sources[share.source], "train", share.train, share)
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
            return prepared(self.server_inputs, source, self.shape)
        own = self.partition
        return inputs_of(source, own.auxiliary_from, own.auxiliary, Share.plain(name), self.shape)

    @property
    def auxiliary_count(self) -> int:
        """How many inputs the server owns."""
        return len(self.partition.auxiliary if self.server_inputs is None else self.server_inputs)

    @property
    def auxiliary_from(self) -> str:
        """Where the server's inputs come from: train (held out before the split), test (a leak), or file."""
        return self.partition.auxiliary_from if self.server_inputs is None else "file"


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
