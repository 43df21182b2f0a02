"""The frozen partition: who owns which samples. It can be saved, read by a person, and loaded again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, GetPydanticSchema, JsonValue, TypeAdapter, ValidationError
from pydantic_core import core_schema

from ilk.errors import IlkError

VERSION = 1
AGAIN = "Make the partition again from its split and seed, or restore the file."
_STRICT = ConfigDict(strict=True, extra="forbid")  # in a file, "3" and true are not the number 3

# Positions in a data set: an int64 array, in a file a list of whole numbers from 0.
Positions = Annotated[
    NDArray[np.int64],
    GetPydanticSchema(
        lambda _, handler: core_schema.no_info_after_validator_function(
            lambda positions: np.array(positions, dtype=np.int64),
            handler.generate_schema(list[Annotated[int, Field(ge=0, lt=2**63)]]),
        )
    ),
]


@dataclass(frozen=True, eq=False)
class Labels:
    """All that a split may look at: the labels of a data set's two parts, and how many classes there are."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    classes: int

    def fingerprint(self) -> str:
        """Return the SHA-256 over the train and the test labels, whatever integer type holds them."""
        total = hashlib.sha256(f"{len(self.train)}/{len(self.test)}/".encode())
        for labels in (self.train, self.test):
            total.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
        return total.hexdigest()


@dataclass(frozen=True, eq=False)
class Share:
    """What one client owns: positions in a data set, and how its view of them differs."""

    __pydantic_config__ = _STRICT

    id: str
    source: str  # name of the data set that the positions refer to
    train: Positions  # in the train split, validation excluded
    validation: Positions  # in the train split: for decisions inside training
    test: Positions  # in the split `test_from`
    test_from: Literal["train", "test"] = "test"
    group: int | None = None  # the true group, where the split knows it
    turns: int = 0  # the client sees its images turned by this many quarter turns (np.rot90)
    labels: tuple[int, ...] | None = None  # the new label of each of the source's classes

    @classmethod
    def plain(cls, source: str, labels: tuple[int, ...] | None = None) -> Share:
        """Return a share that owns nothing, for a plain view of a source: no turns, labels as they are or as given."""
        nothing = np.empty(0, dtype=np.int64)
        return cls("", source, nothing, nothing, nothing, labels=labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and _same(self, other)


@dataclass(frozen=True, eq=False)
class Partition:
    """Who owns what in a federation, and how that was decided."""

    __pydantic_config__ = _STRICT

    data: str  # as the user named it
    split: str  # normalised: "label-skew:0.2"
    test_policy: str
    seed: int
    classes: int  # of the whole federation
    shares: tuple[Share, ...]
    auxiliary: Positions  # in the split `auxiliary_from`: the server's data
    fingerprints: Mapping[str, str]  # of each source's labels, so that a frozen file is not used on other data
    notes: Mapping[str, JsonValue]  # what the split has to say, as {"dirichlet_tries": 3}
    auxiliary_from: Literal["train", "test"] = "train"  # train: owned by no client; test: clients are tested on them

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and _same(self, other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the partition as JSON; a reader sees the old file or the whole new one, never a part."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(_text({"version": VERSION, **dataclasses.asdict(self)}) + "\n", encoding="utf-8")
            part.replace(target)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise IlkError(f"The partition cannot be written to {target}: {error}. Choose another place.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Partition:
        """Read a partition that `save` wrote, and refuse anything else with the reason."""
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise IlkError(f"There is no partition file {path}. Check the path, or save a partition there.") from error
        except OSError as error:
            raise IlkError(f"The partition file {path} cannot be read: {error}. Check the path.") from error
        except ValueError as error:
            raise IlkError(f"The partition file {path} is not JSON: {error}. {AGAIN}") from error
        if not isinstance(fields, dict) or "version" not in fields:
            raise IlkError(f"{path} is not a partition file: it has no field 'version'. Check the path. {AGAIN}")
        version = fields.pop("version")
        if version is True or version != VERSION:
            raise IlkError(
                f"The partition file {path} is of version {version!r}; this ilk reads version {VERSION}. {AGAIN}"
            )
        try:
            found = TypeAdapter(cls).validate_json(json.dumps(fields))
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)]
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            raise IlkError(f"The partition file {path} is damaged: {'; '.join(wrong[:3])}{more}. {AGAIN}") from error
        if not found.shares:
            raise IlkError(f"The partition file {path} is damaged: it has no clients. {AGAIN}")
        twice = [name for name, count in Counter(share.id for share in found.shares).items() if count > 1]
        if twice:
            raise IlkError(
                f"The partition file {path} is damaged: more than one client has the id '{twice[0]}'. {AGAIN}"
            )
        return found


def check(partition: Partition, labels: Mapping[str, Labels]) -> None:
    """Refuse a partition that was made for other data than these, or that points outside of them."""
    for source in sorted({share.source for share in partition.shares} | set(partition.fingerprints)):
        if source not in labels:
            raise IlkError(
                f"The partition needs the data set '{source}', given: {', '.join(sorted(labels)) or 'none'}. "
                f"Load the data that it was made for ('{partition.data}')."
            )
        if partition.fingerprints.get(source) != labels[source].fingerprint():
            raise IlkError(
                f"The partition was made for another version of '{source}': the labels differ. "
                "Use the data that it was made for, or make the partition again."
            )
    for share in partition.shares:
        _check_share(share, labels[share.source], partition)
    if len(partition.auxiliary):
        longest = max(len(getattr(labels[source], partition.auxiliary_from)) for source in partition.fingerprints)
        _check_range("The server's auxiliary data", partition.auxiliary, longest)


def _check_share(share: Share, source: Labels, partition: Partition) -> None:
    client, classes = f"Client '{share.id}'", partition.classes
    for part, positions in (("train", share.train), ("test", share.test)):
        if not len(positions):
            raise IlkError(f"{client} has no {part} sample. {AGAIN}")
    held_out = share.test if share.test_from == "train" else share.test[:0]
    server = partition.auxiliary if partition.auxiliary_from == "train" else partition.auxiliary[:0]
    owned = np.concatenate([share.train, share.validation, held_out, server])
    _check_range(client, owned[: len(owned) - len(server)], len(source.train))
    if len(np.unique(owned)) < len(owned):
        raise IlkError(
            f"{client} has a sample twice: in train, validation, held-out test, or the server's data. {AGAIN}"
        )
    if share.test_from == "test":
        _check_range(client, share.test, len(source.test))
    new = range(source.classes) if share.labels is None else share.labels
    if len(new) != source.classes or not all(0 <= label < classes for label in new):
        raise IlkError(
            f"{client} renames the {source.classes} classes of '{share.source}' to {tuple(new)}; "
            f"needed is one label below {classes} for each. {AGAIN}"
        )


def _check_range(owner: str, positions: NDArray[np.int64], size: int) -> None:
    if len(positions) and not 0 <= positions.min() <= positions.max() < size:
        raise IlkError(
            f"{owner}: positions reach from {positions.min()} to {positions.max()}, but the split has {size} samples "
            f"(0 to {size - 1}). {AGAIN}"
        )


def _same(one: Share | Partition, other: Share | Partition) -> bool:
    """Compare field by field: dataclasses compare arrays with ==, which has no single answer."""
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)]
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)


def _text(value: Any, indent: str = "") -> str:
    """Write JSON with a line for each field, but a list of numbers on one line."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        lines = [f"{inner}{json.dumps(key)}: {_text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return "[\n" + ",\n".join(inner + _text(item, inner) for item in value) + f"\n{indent}]"
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return json.dumps(plain, separators=(",", ":"))
