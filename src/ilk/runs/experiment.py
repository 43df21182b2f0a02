"""An experiment: runs that belong together, described by plain values, as on a command line or in a TOML file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ilk.data.datasets import FACTS
from ilk.data.federation import Federation, federation
from ilk.data.silos import from_folder
from ilk.data.splits import TestPolicy
from ilk.engines import Engine
from ilk.errors import IlkError
from ilk.method import Method
from ilk.methods import make_method, method_class
from ilk.options import describe, make, options, plain
from ilk.runs.folder import RUN, read_json, writing
from ilk.runs.folder import replace as write_file
from ilk.runs.plan import Plan
from ilk.runs.result import Run
from ilk.runs.run import run
from ilk.tasks import Protocol

EXPERIMENT = "experiment.json"
AUXILIARY = 2500  # the server's samples in the FLIS experiments; never more than a tenth of the training data


@options
class Experiment:
    """One or more methods on the same federations with the same plan."""

    methods: tuple[str, ...] = ()
    """Names of the methods."""
    data: str = "digits"
    """A data set (see `ilk data`), or a folder with one .npz file for each client."""
    data_dir: str | None = None
    """Folder with the data sets' files; default: the environment variable ILK_DATA."""
    download: bool = False
    """Allow a download from the Hugging Face hub."""
    split: str | None = None
    """iid, label-skew:RHO, dirichlet:ALPHA, rotate:K, permute-labels:K, mix4, or a partition file; default rotate:4."""
    clients: Annotated[int, Field(ge=1)] | None = None
    """How many clients the data is split among; default 40."""
    test_policy: TestPolicy | None = None
    """What each client is tested on; default own: test samples in its own class proportions."""
    auxiliary: Annotated[int, Field(ge=0)] | None = None
    """Training samples that go to the server; default: none, or 2500 (at most a tenth) if a method needs them."""
    model: str = "auto"
    """lenet5, mlp, your own module:callable, or auto."""
    rounds: Annotated[int, Field(ge=1)] = 20
    """How many rounds are played."""
    cohort: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, le=1)] = 1.0
    """Clients asked each round: a number of them (10), or with a decimal point a fraction (0.1)."""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Local epochs a round; default 10, as in the papers."""
    batch_size: Annotated[int, Field(ge=1)] | None = None
    """Samples a local step; default 10."""
    lr: Annotated[float, Field(gt=0)] | None = None
    """Local learning rate; default 0.01 (per-fedavg: 0.001)."""
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Local momentum; default 0.5 (scaffold: 0)."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Names all random streams: split, initial model, cohorts, batches."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Several seeds, as 0,1,2: a run for each."""
    protocol: Protocol = "served"
    """Which model is measured: served, after-local, last-held or global."""
    eval_every: Annotated[int, Field(ge=1)] = 1
    """Evaluate every so many rounds, and after the last."""
    set: Mapping[str, Any] = Field(default_factory=dict)
    """Options of methods: threshold, or pacfl.threshold where several methods have one of this name."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return self.seeds or (self.seed,)

    def plan(self, seed: int) -> Plan:
        """Return how each run of this seed is played."""
        return Plan(
            rounds=self.rounds,
            cohort=self.cohort,
            seed=seed,
            model=self.model,
            protocol=self.protocol,
            eval_every=self.eval_every,
        )

    def make_methods(self) -> list[Method[Any]]:
        """Return the methods with their options."""
        if not self.methods:
            raise IlkError("No method was given. `ilk methods` lists them.")
        local = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr, "momentum": self.momentum}
        given = {name: value for name, value in local.items() if value is not None}
        values: dict[str, dict[str, Any]] = {name: {"local": {**own_local(name), **given}} for name in self.methods}
        for key, value in self.set.items():
            owner, _, rest = key.partition(".")
            own = {name: describe(method_class(name)) for name in self.methods}
            if owner in values:
                targets, option = [owner], rest
            else:
                targets = [n for n, rows in own.items() if key in {row["name"] for row in rows}] or list(self.methods)
                option = key
            for name in targets:
                group, _, nested = option.partition(".")
                if group == "local":
                    values[name]["local"][nested] = value
                else:
                    values[name][option] = value
        return [make_method(name, values[name]) for name in self.methods]

    def federation(self, seed: int) -> Federation:
        """Return the federation of this seed: the same for every method."""
        if Path(self.data).is_dir() and self.data not in FACTS:
            return from_folder(Path(self.data), seed=seed)
        frozen = str(self.split).endswith(".json")
        made = federation(
            self.data,
            split=self.split or "rotate:4",
            clients=self.clients or 40,
            seed=seed,
            test_policy=self.test_policy or "own",
            auxiliary=self._auxiliary(),
            data_dir=self.data_dir,
            download=self.download,
        )
        if frozen:
            self._agrees_with(made)
        return made

    def _auxiliary(self) -> int:
        if self.auxiliary is not None or not any(method_class(name).needs_auxiliary for name in self.methods):
            return self.auxiliary or 0
        return min(AUXILIARY, (FACTS[self.data].train if self.data in FACTS else 0) // 10)

    def _agrees_with(self, frozen: Federation) -> None:
        """Refuse options that say something else than the partition file."""
        partition = frozen.partition
        has = {"data": partition.data, "clients": len(partition.shares), "test_policy": partition.test_policy}
        said = {"data": self.data, "clients": self.clients, "test_policy": self.test_policy}
        for name, value in said.items():
            if value not in (None, has[name], Experiment.data):
                raise IlkError(f"The partition file {self.split} has {name} {has[name]!r}, but {value!r} was given.")


def own_local(name: str) -> dict[str, Any]:
    """Return how this method trains locally unless it is told otherwise."""
    return plain(method_class(name)().local)


def read_config(path: str | Path) -> dict[str, Any]:
    """Read an experiment's values from a TOML file, whose names may be written with dashes."""
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise IlkError(f"The configuration {path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise IlkError(f"The configuration {path} is not TOML: {error}.") from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def folders(experiment: Experiment, out: Path) -> Iterator[tuple[int, Method[Any], Path]]:
    """Yield every run of an experiment: its seed, its method and its folder. A single run lives in `out` itself."""
    methods, seeds = experiment.make_methods(), experiment.all_seeds
    single = len(methods) == len(seeds) == 1
    for seed in seeds:
        for method in methods:
            yield seed, method, out if single else out / f"{method.name}-seed{seed}"


def play(
    experiment: Experiment,
    out: Path,
    engine: Engine,
    resume: bool = False,
    watch: Callable[[Method[Any], int], Callable[[Mapping[str, Any]], None]] = lambda method, seed: lambda row: None,
) -> list[Run]:
    """Play every run of an experiment, or with `resume` those that are not finished. `watch` gives a listener a run."""
    todo = list(folders(experiment, out))
    if not resume:
        _begin(experiment, out, several=len(todo) > 1)
    runs, federations = [], {seed: experiment.federation(seed) for seed in experiment.all_seeds}
    for seed, method, folder in todo:
        going_on = (folder / RUN).exists()
        runs.append(
            run(
                replace(method),
                federations[seed],
                plan=experiment.plan(seed),
                engine=engine,
                out=folder,
                resume=going_on and resume,
                on_round=watch(method, seed),
                asked=plain(experiment),
            )
        )
    return runs


def stored(out: Path) -> Experiment:
    """Return the experiment that was begun in this folder."""
    if (out / EXPERIMENT).exists():
        return make(Experiment, read_json(out / EXPERIMENT))
    asked = read_json(out / RUN).get("asked")
    if not asked:
        raise IlkError(f"The run in {out} was begun from Python; resume it there: ilk.run(..., out=..., resume=True).")
    return make(Experiment, asked)


def refuse_other(begun: Experiment, values: Mapping[str, Any], out: Path) -> None:
    """Refuse values that differ from those that the experiment in `out` was begun with."""
    was, now = plain(begun), plain(make(Experiment, {**plain(begun), **values}))
    differing = [name for name in was if was[name] != now[name]]
    if differing:
        lines = "\n".join(f"  {name}: stored {was[name]!r}, given {now[name]!r}" for name in differing)
        raise IlkError(f"{out} was begun with another configuration:\n{lines}\nResume it as it was, or begin anew.")


def free_folder(experiment: Experiment, below: Path) -> Path:
    """Return a folder name that tells what is in it and is not taken."""
    what = "-".join(experiment.methods) if len(experiment.methods) <= 3 else f"{len(experiment.methods)}-methods"
    split = Path(experiment.split or "rotate:4").stem.replace(":", "")
    seeds = "-".join(map(str, experiment.all_seeds)) if len(experiment.all_seeds) <= 5 else "many"
    name = f"{what}_{Path(experiment.data).name}-{split}-seed{seeds}"
    return next(path for n in count(1) if not (path := below / (name if n == 1 else f"{name}_{n}")).exists())


def _begin(experiment: Experiment, out: Path, several: bool) -> None:
    if (out / EXPERIMENT).exists():
        raise IlkError(f"{out} holds runs already. Go on with them (--resume {out}), or give another --out.")
    if several:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            write_file(out / EXPERIMENT, json.dumps(plain(experiment), indent=2).encode())
