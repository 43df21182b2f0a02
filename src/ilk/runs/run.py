"""Run one method on one federation with one seed."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ilk import models
from ilk.checked import plain
from ilk.client import Setting
from ilk.data.auxiliary import LEAK
from ilk.data.federation import Federation
from ilk.engines import Engine, cores, make_engine, one_thread
from ilk.errors import IlkError, IlkWarning, Interrupted
from ilk.evaluate import Evaluation, evaluate
from ilk.method import Cohort, Method, State
from ilk.randomness import stream
from ilk.runs.folder import LABELS, PARTITION, RUN, RunFolder, check_state, read_json, replace, same, writing
from ilk.runs.history import Row
from ilk.runs.plan import Plan
from ilk.runs.result import Run
from ilk.server import NobodyAnswered, Server

Listener = Callable[[Row], None]


def run(
    method: Method[Any],
    federation: Federation,
    *,
    plan: Plan | None = None,
    engine: Engine | str = "auto",
    workers: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_round: Listener | None = None,
    asked: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Run a method on a federation, and keep the run in folder `out` if one is given.

    `settings` are the fields of `Plan` (rounds, cohort, seed, model, protocol, ...). With `resume` the run in `out` goes
    on from its last whole round. `on_round` is called with every history row.
    """
    if plan and settings:
        raise IlkError(f"Give a plan or its fields, not both: plan and {', '.join(settings)}.")
    plan = plan or Plan(**settings)
    if method.needs_auxiliary:
        federation.require_auxiliary(method.name)
        if federation.auxiliary_from == "test":
            warnings.warn(f"{method.name}: {LEAK}", IlkWarning, stacklevel=2)
    if plan.protocol == "global":
        federation.require_test()
    carrier = make_engine(engine, workers) if isinstance(engine, str) else engine
    config = configuration(method, federation, plan)
    cohort_of(1, len(federation.ids), plan.cohort, plan.seed)
    models.rehearse(config["model"], federation.shape, federation.classes)
    folder = _folder(Path(out), config, federation, carrier.name, resume, asked) if out is not None else None
    try:
        with one_thread():
            return _Running(method, federation, plan, carrier, config, folder, on_round).to_the_end()
    finally:
        if isinstance(engine, str):
            carrier.close()
        if folder:
            folder.close()


def configuration(method: Method[Any], federation: Federation, plan: Plan) -> dict[str, Any]:
    """Everything that decides what a run ends in; a run is resumed only under the same."""
    partition = federation.partition
    return {
        "method": method.name,
        "options": plain(method),
        "data": partition.data,
        "split": partition.split,
        "clients": len(partition.shares),
        "test_policy": partition.test_policy,
        "auxiliary": federation.auxiliary_count,
        "auxiliary_from": federation.auxiliary_from,
        "split_seed": partition.seed,
        "federation": federation.fingerprint,
        **plain(plan),
        "model": models.choose(plan.model, federation.shape),
    }


def cohort_of(round: int, clients: int, cohort: int | float, seed: int) -> Cohort:
    """Return who is asked in this round: a number of clients, or with a decimal point a fraction of them."""
    size = max(int(cohort * clients + 1e-9), 1) if isinstance(cohort, float) else cohort
    if size > clients:
        raise IlkError(f"A cohort of {size} clients is more than the federation has ({clients}).")
    return np.sort(stream(seed, "cohort", round).choice(clients, size, replace=False))


def _folder(
    out: Path,
    config: dict[str, Any],
    federation: Federation,
    engine: str,
    resume: bool,
    asked: Mapping[str, Any] | None,
) -> RunFolder:
    if resume:
        stored = read_json(out / RUN).get("config", {})
        differing = sorted(key for key in {*stored, *config} if not same(stored.get(key), config.get(key)))
        if differing:
            lines = "\n".join(f"  {key}: stored {stored.get(key)!r}, given {config.get(key)!r}" for key in differing)
            raise IlkError(f"{out} was begun with another configuration:\n{lines}\nResume it as it was, or begin anew.")
        folder = RunFolder(out)
    else:
        folder = RunFolder.create(out, {**_record(config, federation, engine), "asked": asked})
    try:
        if not (out / PARTITION).exists():
            federation.partition.save(out / PARTITION)
        counts = federation.label_counts()
        if counts.any() and not (out / LABELS).exists():  # a server without its clients' data knows none
            with writing(out):
                replace(out / LABELS, json.dumps({"train": counts.tolist()}).encode())
    except BaseException:
        folder.close()
        raise
    return folder


def _record(config: dict[str, Any], federation: Federation, engine: str) -> dict[str, Any]:
    groups = federation.groups
    packages = ("ilk", "torch", "numpy", "scipy", "scikit-learn")
    return {
        "config": config,
        "engine": engine,
        "federation": {
            "ids": list(federation.ids),
            "sizes": federation.sizes.tolist(),
            "groups": None if groups is None else groups.tolist(),
            "origin": {name: source.origin for name, source in federation.sources.items()},
        },
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "machine": {"system": platform.platform(), "processor": platform.processor(), "cores": cores()},
        "command": sys.argv,
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class _Running:
    """A run while it runs."""

    def __init__(
        self,
        method: Method[Any],
        federation: Federation,
        plan: Plan,
        engine: Engine,
        config: dict[str, Any],
        folder: RunFolder | None,
        on_round: Listener | None,
    ) -> None:
        self.method, self.federation, self.plan, self.engine, self.folder = method, federation, plan, engine, folder
        self.on_round = on_round or (lambda row: None)
        self.start_seconds = 0.0  # of the method's own beginning: counted in the first round's row, and named there
        setting = Setting(federation, config["model"], plan.seed, keep_models=plan.protocol == "last-held")
        self.server = Server(setting, engine)
        record = read_json(folder.path / RUN) if folder else _record(config, federation, engine.name)
        self.run = Run(record, folder=folder.path if folder else None)

    def to_the_end(self) -> Run:
        """Play all rounds that are still to be played."""
        done = -1
        try:
            self.engine.open(self.server.setting)
            state, done = self._begin()
            for round in range(done + 1, self.plan.rounds + 1):
                state = self._round(round, state)
                done = round
        except KeyboardInterrupt:
            raise Interrupted(self._how_to_go_on(done)) from None
        self.run.state, self.run.memories = state, self.engine.memories
        if self.folder:
            self.folder.finish(self.run.result())
        return self.run

    def _begin(self) -> tuple[State, int]:
        restored = self.folder.restore(self.method) if self.folder else None
        if restored and self.folder:
            self.engine.memories = restored.memories
            kept = Run.load(self.folder.path)
            self.run.history = kept.history
            self.run.ledger = self.server.ledger = kept.ledger
            for row in self.run.history:
                self.on_round(row)
            return restored.state, restored.round
        self.run.ledger = self.server.ledger
        began = time.perf_counter()
        try:
            state = self.method.start(self.server)
        except NobodyAnswered:
            raise IlkError(
                f"No client answered when {self.method.name} began; there is nothing to begin with."
            ) from None
        check_state(self.method, state)
        self.start_seconds = time.perf_counter() - began
        if self.folder:
            self.folder.commit(None, self.server.ledger.entries, state, self.engine.memories, 0)
        return state, 0

    def _round(self, round: int, state: State) -> State:
        began = time.perf_counter()
        before = len(self.server.ledger.entries)
        self.server.round, self.server.reported = round, {}
        cohort = cohort_of(round, len(self.federation.ids), self.plan.cohort, self.plan.seed)
        try:
            state = self.method.round(self.server, state, cohort)
        except NobodyAnswered:  # then the round is void: the state stays, and nothing was decided
            self.server.reported = {}
        trained = time.perf_counter()
        row: dict[str, Any] = {**self.server.reported, "round": round, "cohort": len(cohort)}
        if round % self.plan.eval_every == 0 or round == self.plan.rounds:
            result = evaluate(self.engine, self.method, state, self.plan.protocol, round)
            row |= self._measured(result)
        row |= {
            "bytes_up": self.server.ledger.total("up"),
            "bytes_down": self.server.ledger.total("down"),
            "round_seconds": trained - began,
            "seconds": time.perf_counter() - began + self.start_seconds,
        }
        if self.start_seconds:
            row["start_seconds"] = self.start_seconds
        self.start_seconds = 0.0
        if self.folder:
            self.folder.commit(row, self.server.ledger.entries[before:], state, self.engine.memories, round)
        self.run.history.rows.append(row)
        self.on_round(row)
        return state

    def _measured(self, result: Evaluation) -> dict[str, Any]:
        return {
            **result.summary(self.federation.groups),
            "protocol": self.plan.protocol,
            "accuracy_by_client": result.accuracy.tolist(),
            "cluster_by_client": result.cluster.tolist(),
        }

    def _how_to_go_on(self, done: int) -> str:
        if not self.folder:
            return f"Stopped after round {max(done, 0)} of {self.plan.rounds}. Nothing was kept: the run has no folder."
        return (
            f"Stopped after round {max(done, 0)} of {self.plan.rounds}; what was done is kept. "
            f"Go on with: ilk run --resume {shlex.quote(str(self.folder.path))}"
        )
