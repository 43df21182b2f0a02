"""``ilk run`` and the work that it shares with ``ilk compare``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilk.cli.arguments import Asked
from ilk.errors import IlkError

if TYPE_CHECKING:
    from ilk.cli.progress import Listener
    from ilk.method import Method


def run(asked: Asked) -> None:
    """Run a method on a federation."""
    if len(asked.methods) > 1:
        raise IlkError(f"`ilk run` takes one method; {len(asked.methods)} were given. `ilk compare` takes several.")
    play(asked, several=False)


def play(asked: Asked, several: bool) -> None:
    """Do what was asked: play an experiment, or the rest of one, and show what came out."""
    with redirect_stdout(sys.stderr):  # a model of the user's own may print; stdout is for the result
        from ilk.checked import make
        from ilk.cli.progress import watching
        from ilk.cli.report import after
        from ilk.cli.tables import show
        from ilk.engines import make_engine
        from ilk.runs import play as p
        from ilk.runs.experiment import Experiment
        from ilk.trackers import tracking

        values = {**asked.values, "methods": asked.methods} if asked.methods else asked.values
        out = asked.playing.out
        if asked.playing.resume:
            if out:
                raise IlkError("--resume goes on in the folder that it names; leave --out away.")
            experiment, folder = p.stored(Path(asked.playing.resume))
            p.refuse_other(experiment, values, folder)
        else:
            experiment = make(Experiment, values)
            folder = Path(out) if out else p.free_folder(experiment, Path("runs"))
        folders = {(method.name, seed): below for seed, method, below in p.folders(experiment, folder)}
        trackers = [name.strip() for name in (asked.playing.track or "").split(",") if name.strip()]
        engine = make_engine(asked.playing.engine, asked.playing.workers)
        try:
            with (
                tracking(trackers) as track,
                watching(experiment.rounds, len(experiment.all_seeds) > 1) as watch,
            ):

                def listeners(method: Method[Any], seed: int) -> Listener:
                    shown, told = watch(method, seed), track(folders[method.name, seed])
                    return lambda row: (shown(row), told(row))[0]

                runs = p.play(experiment, folder, engine, resume=asked.playing.resume is not None, watch=listeners)
        finally:
            engine.close()
    report = after(folder) if several else None
    show(runs, asked.playing.json, several or len(runs) > 1, report)
