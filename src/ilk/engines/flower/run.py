"""A run over a deployment: from a grid of Flower's to a run folder, and on to newcomers after its last round."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ilk.checked import make, options
from ilk.data.silos import read_npz
from ilk.engines.flower.joined import Joined, Seats, joined
from ilk.engines.flower.layout import public_keys
from ilk.engines.flower.server import Flower
from ilk.engines.flower.status import Status
from ilk.errors import IlkError
from ilk.method import Method, State
from ilk.runs.experiment import Experiment
from ilk.runs.folder import RUN, read_json
from ilk.runs.folder import replace as write
from ilk.runs.play import methods_of, plan_of
from ilk.runs.run import run
from ilk.runs.serving import Serving
from ilk.server import Server
from ilk.tasks import Hold

log = logging.getLogger("ilk.flower")
JOB, OUTCOME, SEATS, LOG = "job.json", "outcome.json", "seats.json", "federation.log"
LOOK = 3.0  # seconds between looks for newcomers after the last round


@options
class Job:
    """All that a server app must know."""

    experiment: Experiment
    serving: Serving
    out: str


def play(grid: Any, folder: Path) -> None:
    """Play the job that lies in a server's folder; a run that was begun goes on."""
    job = make(Job, read_json(folder / JOB))
    lines = logging.FileHandler(folder / LOG)
    lines.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    try:
        result = _Play(grid, folder, job).to_the_end()
    except IlkError as error:
        log.error("%s", error)
        write(folder / OUTCOME, json.dumps({"error": str(error)}).encode())
        raise
    except Exception:
        log.exception("the run ended")
        raise
    write(folder / OUTCOME, json.dumps({"result": result}).encode())


class _Play:
    def __init__(self, grid: Any, folder: Path, job: Job) -> None:
        self.folder, self.job, self.out = folder, job, Path(job.out)
        (self.method,) = methods_of(job.experiment)
        self.plan = plan_of(job.experiment, job.experiment.seed)
        serving = job.serving
        keys = lambda: public_keys(folder)  # noqa: E731  # read anew each time: keys are added while a run lasts
        self.engine = Flower(grid, keys, self.plan.seed, serving.patience, largest=serving.largest)
        self.status = Status(folder, self.engine, self.method.name, self.plan.rounds)
        self.engine.after_look = self.status.write

    def to_the_end(self) -> dict[str, Any]:
        federation = self._federation()
        played = run(
            self.method,
            federation,
            plan=self.plan,
            engine=self.engine,
            out=self.out,
            resume=(self.out / RUN).exists(),
            on_round=self.status.round,
        )
        assert played.state is not None
        self.status.phase = "serving" if self.job.serving.stay else "done"
        # What a client wants to keep from here on belongs to the finished run: every version is safe now.
        self._hand_out(played.state, forever=self.job.serving.stay)
        self.status.write()
        return played.result()

    def _federation(self) -> Joined:
        """Wait for the clients, or find those of a run that goes on; return what they stated."""
        engine, file = self.engine, self.out.with_name(f"{self.out.name}.{SEATS}")
        engine.seats = Seats.load(file) if (self.out / RUN).exists() else None
        serving, late = self.job.serving, time.monotonic() + self.job.serving.wait
        while True:
            engine.look()
            joined_now = engine.joined
            wanted = serving.wait_for or (len(engine.seats.sizes) if engine.seats else len(public_keys(self.folder)))
            if len(joined_now) >= wanted or time.monotonic() > late:
                break
            time.sleep(1.0)
        seats = engine.seats or engine.found(serving.seats or len(public_keys(self.folder)))
        engine.seats, engine.seats_file = seats, file
        seats.save(file)
        return joined(seats, self.plan.seed, self._auxiliary(seats))

    def _auxiliary(self, seats: Seats) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        given = self.job.experiment.auxiliary
        if given is None:
            return None
        if not str(given).endswith(".npz"):
            raise IlkError(f"--auxiliary {given} is not allowed here: a server has no data set. Give FILE.npz with x.")
        x = read_npz(Path(str(given))).get("x")
        if x is None or x.shape[1:] != seats.shape:
            raise IlkError(f"{given} must hold x, inputs of shape {seats.shape} as the clients have them.")
        return np.asarray(x, np.float32)

    def _hand_out(self, state: State, forever: bool) -> None:
        """Let every client that is connected hold its model; newcomers are first placed, without training."""
        engine, served = self.engine, set[str]()
        server = Server(engine.setting, engine, round=self.plan.rounds)
        while True:
            names = engine.setting.federation.ids
            there = [int(k) for k in engine.reach(server.everyone) if names[k] not in served]
            if there:
                state = self.method.welcome(server, state, np.array(there))
                send = self.method.message(state)
                for answer in engine.ask(Hold(self.method.training), {k: send(k) for k in there}, self.plan.rounds):
                    served.add(names[answer.client])
                self.status.placed(clusters(self.method, state, names))
            if not forever:
                return
            time.sleep(LOOK)
            engine.look()


def clusters(method: Method[Any], state: State, names: tuple[str, ...]) -> Mapping[str, int]:
    """Return the cluster of each client that has one: who is served the same rows."""
    rows = {name: tuple(method.serves(state, k)) for k, name in enumerate(names)}
    numbers = {served: n for n, served in enumerate(dict.fromkeys(rows.values()))}
    return {name: numbers[served] for name, served in rows.items()}
