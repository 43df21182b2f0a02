"""An experiment: runs that belong together, described by plain values, as on a command line or in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ilk.checked import options
from ilk.data.shares import TestPolicy
from ilk.errors import IlkError
from ilk.native import Compute
from ilk.protocols import Protocol

AUXILIARY = Field(pattern=r"^(test:\d+|.+\.npz)$", json_schema_extra={"enum": ["test:N", "FILE.npz"]})


@options
class Experiment:
    """One or more methods on the same federations with the same plan."""

    as_flags: ClassVar[bool] = True  # errors call its fields --rounds, --lr, ...

    methods: tuple[str, ...] = ()
    """Names of the methods."""
    data: Annotated[str, Field(min_length=1)] = "digits"
    """A data set (see `ilk data`), or a folder with one .npz file for each client."""
    data_dir: str | None = None
    """Folder with the data sets' files; default: the environment variable ILK_DATA."""
    download: bool = False
    """Allow a download from the Hugging Face hub."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """iid, label-skew:RHO, dirichlet:ALPHA, rotate:K, permute-labels:K, mix4, or a partition file; default rotate:4."""
    clients: Annotated[int, Field(ge=1, strict=True)] | None = None
    """How many clients the data is split among; default 40."""
    test_policy: TestPolicy | None = None
    """What each client is tested on; default own: test samples in its own class proportions."""
    auxiliary: Annotated[int, Field(ge=0, strict=True)] | Annotated[str, AUXILIARY] | None = None
    """The server's data: training samples held out, an .npz file (x), or test:N (leaks); default 2500 if needed."""
    model: str = "auto"
    """lenet5, mlp, your own module:callable, or auto."""
    compute: Compute = "auto"
    """What trains and tests: native (compiled, for small networks), torch, or auto: native where it can."""
    rounds: Annotated[int, Field(ge=1, strict=True)] = 20
    """How many rounds are played."""
    cohort: Annotated[int, Field(ge=1, strict=True)] | Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    """Clients asked each round: a number of them (10), or with a decimal point a fraction (0.1)."""
    epochs: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Local epochs a round; default 10, as in the papers."""
    batch_size: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Samples a local step; default 10."""
    lr: Annotated[float, Field(gt=0, le=1e30, strict=True)] | None = None
    """Local learning rate; default 0.01, or the method's own (`ilk methods NAME`)."""
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] | None = None
    """Local momentum; default 0.5, or the method's own."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Names all random streams: split, initial model, cohorts, batches."""
    seeds: tuple[Annotated[int, Field(ge=0, strict=True)], ...] = ()
    """Several seeds, as 0,1,2: a run for each."""
    protocol: Protocol = "served"
    """Which model is measured: served, after-local, last-held or global."""
    eval_every: Annotated[int, Field(ge=1, strict=True)] = 1
    """Evaluate every so many rounds, and after the last."""
    set: Mapping[str, Any] = Field(default_factory=dict)
    """Options of methods: threshold, or pacfl.threshold where several methods have one of this name."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return self.seeds or (self.seed,)

    def __post_init__(self) -> None:
        """Refuse the same run twice, and data that would be ignored."""
        if self.split == "mix4" and self.data not in (Experiment.data, "mix4"):
            raise IlkError(f"The split mix4 brings its own four data sets; leave --data {self.data} away.")
        for what, values in (("methods", self.methods), ("--seeds", self.seeds)):
            twice = sorted({value for value in values if values.count(value) > 1}, key=str)
            if twice:
                raise IlkError(f"Of {what}, {twice[0]} was given twice. Give each once.")


def read_config(path: str | Path) -> dict[str, Any]:
    """Read an experiment's values from a TOML file, whose names may be written with dashes."""
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise IlkError(f"The configuration {path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise IlkError(f"The configuration {path} is not TOML: {error}.") from None
    read: dict[str, Any] = {}
    for written, value in values.items():
        name = written.replace("-", "_")
        if name in read:
            raise IlkError(f"The configuration {path} gives '{name}' twice, with a dash and with an underscore.")
        read[name] = value
    if "set" in read:
        read["set"] = flat(read["set"]) if isinstance(read["set"], Mapping) else read["set"]
    return read


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Write nested tables as dotted names: ``{"method": {"option": 4}}`` as ``{"method.option": 4}``."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        nested = flat(value) if isinstance(value, Mapping) else None
        values |= {name: value} if nested is None else {f"{name}.{inner}": v for inner, v in nested.items()}
    return values
