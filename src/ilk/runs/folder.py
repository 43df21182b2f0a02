"""The run folder: what a run leaves on disk, so that it can be read, and resumed after any kind of end.

::

    run.json               configuration, versions, machine; written once
    partition.json         who owns which samples
    labels.json            how many training samples of each label each client has: for the report, which has no data
    history.jsonl          one line a round, appended
    ledger.jsonl           one line for what crossed, appended
    checkpoint.safetensors state and client memories after the last whole round, and how long the two files were then
    result.json            the final numbers

A checkpoint is written to a temporary name, synced and renamed, after the lines of its round are synced. So whatever
interrupts a run, the checkpoint is whole, and the two files hold at least what it counts; more is cut off on resume.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ilk.errors import IlkError
from ilk.ledger import Entry
from ilk.method import Method, State
from ilk.params import digest

Memory = dict[str, NDArray[Any]]
RUN, PARTITION, HISTORY, LEDGER = "run.json", "partition.json", "history.jsonl", "ledger.jsonl"
LABELS = "labels.json"
CHECKPOINT, RESULT, EXPERIMENT = "checkpoint.safetensors", "result.json", "experiment.json"
LEFTOVERS = {f".{RUN}.new", f".{EXPERIMENT}.new"}  # of a start that was killed: nothing is lost with them


@dataclass(frozen=True)
class Checkpoint:
    """A run after its last whole round."""

    round: int
    state: State
    memories: list[Memory]


class RunFolder:
    """One run's folder, open for writing by one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            self._lock = (path / RUN).open("rb")
            for patience in (0.05, 0.1, 0.2, 0.0):  # who only looks whether it is held holds it for a moment
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    time.sleep(patience)
            self._lock.close()
            raise IlkError(f"{path}: another process is working on this run. Wait for it, or stop it.")

    @classmethod
    def create(cls, path: Path, record: Mapping[str, Any]) -> RunFolder:
        """Begin a new run folder; one that exists is refused."""
        refuse_taken(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            replace(path / RUN, json.dumps(record, indent=2).encode())
        return cls(path)

    def commit(
        self,
        row: Mapping[str, Any] | None,
        entries: Sequence[Entry],
        state: State,
        memories: Sequence[Memory],
        round: int,
    ) -> None:
        """Make a round part of the run: its lines first, then the checkpoint that counts them."""
        with writing(self.path):
            lengths = {
                HISTORY: append(self.path / HISTORY, [row] if row else []),
                LEDGER: append(self.path / LEDGER, [asdict(entry) for entry in entries]),
            }
            arrays, plain = _split(state)
            content = {f"state/{name}": array for name, array in arrays.items()}
            content |= {f"memory/{k}/{name}": array for k, m in enumerate(memories) for name, array in m.items()}
            about = {"round": round, "lengths": lengths, "plain": plain, "clients": len(memories)}
            content = {name: np.asarray(array, order="C") for name, array in content.items()}
            head = {"ilk": json.dumps(about), "sha256": _checksum(json.dumps(about), content)}
            data = safetensors.numpy.save(content, head)
            replace(self.path / CHECKPOINT, data)

    def restore(self, method: Method[Any]) -> Checkpoint | None:
        """Return the run as of its last whole round, and cut off what came after; None if there was none yet."""
        path = self.path / CHECKPOINT
        if not path.exists():
            lengths = {HISTORY: 0, LEDGER: 0}
            checkpoint = None
        else:
            checkpoint, lengths = _read_checkpoint(path, method)
        with writing(self.path):
            for name, length in lengths.items():
                if length and (not (self.path / name).exists() or (self.path / name).stat().st_size < length):
                    raise IlkError(f"{self.path / name} is shorter than its checkpoint says; the folder was changed.")
                if (self.path / name).exists():
                    os.truncate(self.path / name, length)
        return checkpoint

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the final numbers."""
        with writing(self.path):
            replace(self.path / RESULT, json.dumps(result, indent=2).encode())

    def close(self) -> None:
        """Let other processes at it."""
        self._lock.close()


def worked_on(path: Path) -> bool:
    """Say whether a process is working on the run in this folder now."""
    try:
        with (path / RUN).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def refuse_taken(path: Path) -> None:
    """Refuse a folder that holds runs already, or anything else."""
    with writing(path):
        there = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
        held = {RUN, EXPERIMENT} & there or any(path.glob("*/" + RUN))
        blocked = path.exists() and not path.is_dir()
    if held:
        raise IlkError(f"{path} holds a run already. Go on with it (--resume {path}), or give another --out.")
    if blocked or there - LEFTOVERS:
        raise IlkError(f"{path} exists and is not an empty folder. Give another --out.")


def same(one: Any, other: Any) -> bool:
    """Compare plain values as they are written: a cohort of 1 client is not a cohort of 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def read_json(path: Path) -> dict[str, Any]:
    """Read one of the folder's JSON files."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise IlkError(f"There is no run in {path.parent}: it has no {path.name}.") from None
    except (OSError, ValueError) as error:
        raise IlkError(f"{path} cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise IlkError(f"{path} does not hold a JSON object.")
    return value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of one of the appended files; a last line that was cut off is left out."""
    try:
        text = path.read_text()
    except OSError:
        return []
    try:
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except ValueError as error:
        raise IlkError(f"{path} is damaged ({error}); the run cannot be read.") from None


def replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one and nothing between."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """Append rows as lines of JSON, synced; return the length of the file."""
    with path.open("ab") as file:
        for row in rows:
            file.write(json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk says into what a person can do."""
    try:
        yield
    except OSError as error:
        what = {
            errno.ENOSPC: "the disk is full; free some space",
            errno.EDQUOT: "your disk quota is used up; free some space",
            errno.EROFS: "the disk is read-only; give another --out",
            errno.EACCES: "permission denied; give another --out",
        }.get(error.errno or 0, str(error))
        kept = os.path.exists(path / CHECKPOINT)  # unlike Path.exists, quiet where it may not look  # noqa: PTH110
        saved = f" What was saved is whole: go on with --resume {path}." if kept else ""
        raise IlkError(f"{path} cannot be written: {what}.{saved}") from None


S = TypeVar("S", bound=State)


def check_state(method: Method[Any], state: State) -> None:
    """Refuse a state that could not be read back: of another class than `start` says, or with values that are not plain."""
    returned, annotated = type(state).__name__, state_type(method).__name__
    if type(state) is not state_type(method):
        raise IlkError(
            f"{method.name}: start() returned {returned}, but its annotation says {annotated}. "
            f"Write `def start(self, server) -> {returned}`, so that a resumed run can be read back."
        )
    for name, value in _split(state)[1].items():
        try:
            plain = json.loads(json.dumps(value)) == value
        except TypeError:
            plain = False
        if not plain:
            raise IlkError(
                f"{method.name}: the state's field '{name}' holds {value!r}; allowed: arrays, numbers, texts, lists."
            )


def _split(state: State) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def _checksum(about: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over everything in a checkpoint, so that a flipped bit is not taken for a model."""
    names = sorted(arrays)
    return hashlib.sha256((about + "/".join(names) + digest(arrays[name] for name in names)).encode()).hexdigest()


def _read_checkpoint(path: Path, method: Method[Any]) -> tuple[Checkpoint, dict[str, int]]:
    try:
        with safe_open(path, "numpy") as file:
            head = file.metadata()
            about = json.loads(head["ilk"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
            if _checksum(head["ilk"], arrays) != head["sha256"]:
                raise ValueError("its content does not match its checksum")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise IlkError(f"The checkpoint {path} cannot be read ({error}); the run cannot be resumed.") from None
    memories: list[Memory] = [{} for _ in range(about["clients"])]
    values: dict[str, Any] = dict(about["plain"])
    for name, array in arrays.items():
        where, _, rest = name.partition("/")
        if where == "state":
            values[rest] = array
        else:
            client, _, kind = rest.partition("/")
            memories[int(client)][kind] = array
    return Checkpoint(about["round"], state_type(method)(**values), memories), about["lengths"]


def state_type(method: Method[Any]) -> type[State]:
    """Return the class of a method's state: what its `start` says that it returns."""
    returned = get_type_hints(type(method).start).get("return")
    return returned if isinstance(returned, type) else State
