"""Play an experiment: its methods on its federations, every run in a folder, resumable as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from ilk.checked import describe, make, plain
from ilk.data.datasets import FACTS, load
from ilk.data.federation import Federation, federation
from ilk.data.silos import from_folder
from ilk.engines import Engine
from ilk.errors import IlkError
from ilk.method import Method
from ilk.methods import make_method, method_class
from ilk.runs.experiment import Experiment
from ilk.runs.folder import EXPERIMENT, RUN, read_json, refuse_taken, same, writing
from ilk.runs.folder import replace as write_file
from ilk.runs.plan import Plan
from ilk.runs.result import Run
from ilk.runs.run import run

AUXILIARY = 2500  # the server's samples in the FLIS experiments; never more than a tenth of the training data
LOCAL = ("epochs", "batch_size", "lr", "momentum")


def methods_of(experiment: Experiment) -> list[Method[Any]]:
    """Return the methods with their options."""
    if not experiment.methods:
        raise IlkError("No method was given. `ilk methods` lists them.")
    given = {name: value for name in LOCAL if (value := getattr(experiment, name)) is not None}
    values: dict[str, dict[str, Any]] = {
        name: {"local": {**plain(method_class(name)().local), **given}} for name in experiment.methods
    }
    for key, value in experiment.set.items():
        owner, dot, rest = key.partition(".")
        if owner in values and not (dot and rest):
            raise IlkError(f"--set {key}={value}: '{key}' is a method. Write {owner}.OPTION={value}.")
        if key in LOCAL or key in ("local", "local."):
            raise IlkError(
                f"--set {key}={value}: '{key}' is of local training, which has --epochs, --batch-size, --lr and --momentum."
            )
        targets, option = ([owner], rest) if owner in values else (_having(key, experiment.methods), key)
        for name in targets:
            group, _, nested = option.partition(".")
            if group == "local":
                values[name]["local"][nested] = value
            else:
                values[name][option.replace("-", "_")] = value
    return [make_method(name, values[name]) for name in experiment.methods]


def federation_of(experiment: Experiment, seed: int) -> Federation:
    """Return the federation of this seed: the same for every method."""
    folder, frozen = is_folder(experiment.data), str(experiment.split).endswith(".json")
    if folder or frozen:
        _refuse_what_is_settled(experiment, frozen)
    if folder:
        return from_folder(Path(experiment.data), seed=seed)
    if experiment.data not in FACTS and ("/" in experiment.data or experiment.data.startswith(".")):
        raise IlkError(
            f"There is no folder {experiment.data}. --data takes a data set's name (`ilk data`) or a folder."
        )
    made = federation(
        experiment.data,
        split=experiment.split or "rotate:4",
        clients=experiment.clients or 40,
        seed=seed,
        test_policy=experiment.test_policy or "own",
        auxiliary=_auxiliary(experiment),
        data_dir=experiment.data_dir,
        download=experiment.download,
    )
    if frozen:
        _agree(experiment, made)
    return made


def is_folder(data: str) -> bool:
    """Say whether `data` names a folder of the user's own files."""
    return data not in FACTS and Path(data).is_dir()


def plan_of(experiment: Experiment, seed: int) -> Plan:
    """Return how each run of this seed is played."""
    names = ("rounds", "cohort", "model", "compute", "protocol", "eval_every")
    return Plan(seed=seed, **{name: getattr(experiment, name) for name in names})


def play(
    experiment: Experiment,
    out: Path,
    engine: Engine,
    resume: bool = False,
    watch: Callable[[Method[Any], int], Callable[[Mapping[str, Any]], None]] = lambda method, seed: lambda row: None,
) -> list[Run]:
    """Play every run of an experiment, or with `resume` those that are not finished. `watch` gives a listener a run."""
    experiment = absolute(experiment)
    todo, federations = list(folders(experiment, out)), {s: federation_of(experiment, s) for s in experiment.all_seeds}
    if not resume:
        refuse_taken(out)
        if len(todo) > 1:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)
                write_file(out / EXPERIMENT, json.dumps(plain(experiment), indent=2).encode())
    return [
        run(
            replace(method),
            federations[seed],
            plan=plan_of(experiment, seed),
            engine=engine,
            out=folder,
            resume=resume and (folder / RUN).exists(),
            on_round=watch(method, seed),
            asked=plain(experiment),
        )
        for seed, method, folder in todo
    ]


def folders(experiment: Experiment, out: Path) -> Iterator[tuple[int, Method[Any], Path]]:
    """Yield every run of an experiment: its seed, its method and its folder. A single run lives in `out` itself."""
    methods, seeds = methods_of(experiment), experiment.all_seeds
    single = len(methods) == len(seeds) == 1
    for seed in seeds:
        for method in methods:
            yield seed, method, out if single else out / f"{method.name}-seed{seed}"


def stored(folder: Path) -> tuple[Experiment, Path]:
    """Return the experiment that was begun in this folder, or that this run's folder is a part of; and its folder."""
    for out in (folder, folder.parent):
        if (out / EXPERIMENT).exists() and (out == folder or (folder / RUN).exists()):
            return make(Experiment, read_json(out / EXPERIMENT)), out
    asked = read_json(folder / RUN).get("asked")
    if not asked:
        raise IlkError(
            f"The run in {folder} was begun from Python; resume it there: ilk.run(..., out=..., resume=True)."
        )
    return make(Experiment, asked), folder


def refuse_other(begun: Experiment, values: Mapping[str, Any], out: Path) -> None:
    """Refuse values that differ from those that the experiment in `out` was begun with."""
    was, now = plain(begun), plain(absolute(make(Experiment, {**plain(begun), **values})))
    differing = [name for name in was if not same(was[name], now[name])]
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


def absolute(experiment: Experiment) -> Experiment:
    """Return the experiment with full paths, so that it can be resumed from anywhere."""
    paths = {
        "data": experiment.data if is_folder(experiment.data) else None,
        "data_dir": experiment.data_dir,
        "split": experiment.split if str(experiment.split).endswith(".json") else None,
        "auxiliary": experiment.auxiliary if str(experiment.auxiliary).endswith(".npz") else None,
    }
    full = {name: str(Path(str(path)).resolve()) for name, path in paths.items() if path}
    return make(Experiment, {**plain(experiment), **full})


def _having(option: str, methods: tuple[str, ...]) -> list[str]:
    """Return the methods that have this option; if none has, all, so that each says what it has."""
    name = option.replace("-", "_")
    return [m for m in methods if name in {row["name"] for row in describe(method_class(m))}] or list(methods)


def _auxiliary(experiment: Experiment) -> int | str:
    if experiment.auxiliary is not None or not any(method_class(name).needs_auxiliary for name in experiment.methods):
        return experiment.auxiliary or 0
    if experiment.split == "mix4":
        return 0  # refused by name when the run begins
    return min(AUXILIARY, len(load(experiment.data, experiment.data_dir, download=experiment.download).y_train) // 10)


def _refuse_what_is_settled(experiment: Experiment, frozen: bool) -> None:
    """A folder, or a partition file, says who owns what: refuse options that say it again and would be ignored."""
    where = f"The partition file {experiment.split}" if frozen else f"The folder {experiment.data}"
    for name in ("auxiliary",) if frozen else ("split", "clients", "test_policy", "auxiliary"):
        given = getattr(experiment, name)
        if given is not None and not (frozen and str(given).endswith(".npz")):
            raise IlkError(
                f"{where} says who owns what; --{name.replace('_', '-')} {given} does not go with it. Leave it away."
            )


def _agree(experiment: Experiment, frozen: Federation) -> None:
    """Refuse options that say something else than the partition file."""
    partition = frozen.partition
    has = {"data": partition.data, "clients": len(partition.shares), "test_policy": partition.test_policy}
    for name, value in has.items():
        said = getattr(experiment, name)
        if said not in (None, value, Experiment.data):
            raise IlkError(f"The partition file {experiment.split} has {name} {value!r}, but {said!r} was given.")
