"""``ilk run`` and the work that it shares with ``ilk compare``."""

from __future__ import annotations

from pathlib import Path

from ilk.cli.arguments import Asked
from ilk.errors import IlkError


def run(asked: Asked) -> None:
    """Run a method on a federation."""
    if len(asked.methods) > 1:
        raise IlkError(f"`ilk run` takes one method; {len(asked.methods)} were given. `ilk compare` takes several.")
    play(asked, several=False)


def play(asked: Asked, several: bool) -> None:
    """Do what was asked: play an experiment, or the rest of one, and show what came out."""
    from ilk.cli.progress import watching
    from ilk.cli.tables import show
    from ilk.engines import make_engine
    from ilk.options import make
    from ilk.runs import experiment as e

    values = {**asked.values, "methods": asked.methods} if asked.methods else asked.values
    if asked.resume:
        experiment = e.stored(asked.resume)
        e.refuse_other(experiment, values, asked.resume)
    else:
        experiment = make(e.Experiment, values)
    experiment.make_methods()
    out = asked.resume or asked.out or e.free_folder(experiment, Path("runs"))
    engine = make_engine(asked.engine, asked.workers)
    try:
        with watching(experiment.rounds, len(experiment.all_seeds) > 1) as watch:
            runs = e.play(experiment, out, engine, resume=asked.resume is not None, watch=watch)
    finally:
        engine.close()
    show(runs, asked.json, several or len(runs) > 1)
