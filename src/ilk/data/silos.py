"""Federations of the user's own data: arrays, or a folder with one file for each client."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ilk.data.datasets import Dataset
from ilk.data.federation import Federation, labels_of
from ilk.data.partition import Partition, Share
from ilk.errors import IlkError
from ilk.randomness import stream

MOST_CLASSES = 100_000


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
    strangers = sorted(set(groups or {}) - set(clients))
    if strangers:
        raise IlkError(f"groups names clients that there are not: {', '.join(strangers)}.")
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
        group = None if groups is None else groups.get(name)
        shares.append(Share(str(name), "arrays", train, validation, held, test_from="train", group=group))
        xs.append(x)
        ys.append(y)
        start += len(y)
    if len({x.shape[1:] for x in xs}) > 1:
        odd = {name: x.shape[1:] for name, x in zip(clients, xs, strict=True)}
        raise IlkError(f"All clients must have inputs of one shape; these differ: {odd}.")
    server = xs[0][:0] if auxiliary is None else _inputs("the auxiliary data", auxiliary)
    x_test, y_test = (xs[0][:0], np.empty(0, np.int64)) if test is None else _own_arrays("the test set", test)[:2]
    for what, x in (("auxiliary data", server), ("test set", x_test)):
        if x.shape[1:] != xs[0].shape[1:]:
            raise IlkError(
                f"The {what} has inputs of shape {x.shape[1:]}, but the clients' are of shape {xs[0].shape[1:]}."
            )
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
    labels = labels_of({"arrays": everything})["arrays"]
    brought = [len(arrays) == 4 for arrays in clients.values()]
    policy = "given" if all(brought) else "mixed" if any(brought) else "holdout"
    content = hashlib.sha256(everything.x_train.tobytes() + everything.x_test.tobytes()).hexdigest()
    return Federation(
        {"arrays": everything},
        Partition(
            data="arrays",
            split="given",
            test_policy=policy,
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
    read = {path.stem: read_npz(path) for path in files}
    clients = {name: arrays for name, arrays in read.items() if not name.startswith("_")}
    if not clients:
        raise IlkError(f"The folder {folder} has no .npz file; needed is one for each client, with x and y.")
    given = {name: samples_in(folder / f"{name}.npz", arrays) for name, arrays in clients.items()}
    for name, keys in (("_test", ("x", "y")), ("_auxiliary", ("x",))):
        if name in read and not set(keys) <= set(read[name]):
            raise IlkError(
                f"{folder / name}.npz holds {', '.join(read[name]) or 'nothing'}; needed: {', '.join(keys)}."
            )
    test = (read["_test"]["x"], read["_test"]["y"]) if "_test" in read else None
    auxiliary = read["_auxiliary"]["x"] if "_auxiliary" in read else None
    made = from_arrays(given, test=test, auxiliary=auxiliary, seed=seed)
    return Federation(made.sources, replace(made.partition, data=str(folder)))


def from_file(path: Path, client: str, seed: int = 0) -> Federation:
    """Make a federation of one client of its own .npz file; it is that client in a folder with all of them."""
    made = from_arrays({client: samples_in(path, read_npz(path))}, seed=seed)
    return Federation(made.sources, replace(made.partition, data=str(path)))


def samples_in(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Return a client's inputs and labels, by the names that they must have in its file."""
    order = [("x", "y"), ("x_train", "y_train", "x_test", "y_test")]
    names = next((names for names in order if set(names) <= set(arrays)), None)
    if names is None:
        raise IlkError(
            f"{path} holds {', '.join(arrays) or 'nothing'}; needed are x and y, or x_train, y_train, x_test and y_test."
        )
    return tuple(arrays[key] for key in names)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an .npz file; nothing in it is run."""
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise IlkError(f"{path} is not an .npz file (or only a part of one). Write it with numpy.savez.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
    except (OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise IlkError(f"{path} cannot be read: {error}. Write it again with numpy.savez.") from None
    except ValueError:
        raise IlkError(
            f"{path} holds something else than arrays of numbers. Write those only, with numpy.savez."
        ) from None


def _own_arrays(name: str, arrays: Sequence[ArrayLike]) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Check one client's arrays; return inputs, labels, and how many of the last samples are test data."""
    if len(arrays) not in (2, 4):
        raise IlkError(
            f"Client '{name}' gave {len(arrays)} arrays; allowed are (x, y) or (x_train, y_train, x_test, y_test)."
        )
    pairs = [(_inputs(name, arrays[i]), np.asarray(arrays[i + 1])) for i in range(0, len(arrays), 2)]
    for x, y in pairs:
        if y.ndim != 1 or len(x) != len(y):
            raise IlkError(
                f"Client '{name}' has inputs of shape {x.shape} and labels of shape {y.shape}; needed: a label each."
            )
        if not np.issubdtype(y.dtype, np.integer):
            raise IlkError(f"Client '{name}' has labels of type {y.dtype}; needed are whole numbers 0, 1, 2, ...")
        if len(y) and not 0 <= y.min() <= y.max() < MOST_CLASSES:
            raise IlkError(
                f"Client '{name}' has labels from {y.min()} to {y.max()}; needed are 0, 1, 2, ... below {MOST_CLASSES}. "
                "Number the classes from 0."
            )
    if len({x.shape[1:] for x, _ in pairs}) > 1:
        raise IlkError(
            f"Client '{name}' trains on inputs of shape {pairs[0][0].shape[1:]} but tests on {pairs[1][0].shape[1:]}."
        )
    x = np.concatenate([x for x, _ in pairs])
    y = np.concatenate([y for _, y in pairs]).astype(np.int64)
    return x, y, len(pairs[1][1]) if len(pairs) == 2 else 0


def _inputs(name: str, given: ArrayLike) -> NDArray[np.float32]:
    """Check inputs: real, finite numbers, a row a sample."""
    x = np.asarray(given)
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise IlkError(
            f"'{name}' has inputs of shape {x.shape}; needed: samples x features (or samples x channels x height x width)."
        )
    if x.dtype.kind not in "buif":
        raise IlkError(f"'{name}' has inputs of type {x.dtype}; needed are real numbers.")
    with np.errstate(over="ignore"):
        numbers = x.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise IlkError(
            f"'{name}' has inputs that are missing, infinite or larger than 3e38; clean, impute or scale them."
        )
    return numbers
