"""Engines by name: where the clients' tasks are answered."""

from __future__ import annotations

from importlib.util import find_spec

from ilk.engines.engine import Engine, cores, one_thread
from ilk.engines.inline import Inline
from ilk.engines.workers import Workers
from ilk.errors import IlkError, unknown

ENGINES = ("inline", "workers", "flower-sim")
__all__ = ["ENGINES", "Engine", "Inline", "Workers", "cores", "make_engine", "one_thread"]


def make_engine(name: str = "auto", workers: int | None = None) -> Engine:
    """Return the engine of this name; "auto" is workers where there is more than one core."""
    if workers is not None and workers < 1:
        raise IlkError(f"--workers {workers} is not allowed. Allowed: 1 or more; default: one a core ({cores()} here).")
    if name == "auto":
        name = "workers" if workers or cores() > 1 else "inline"
    if name == "inline" and workers:
        raise IlkError("--workers belongs to the engines 'workers' and 'flower-sim'; leave it away with 'inline'.")
    if name not in ENGINES:
        raise unknown("engine", name, [*ENGINES, "auto"])
    if name == "flower-sim":
        return _flower_sim(workers)
    return Workers(workers) if name == "workers" else Inline()


def _flower_sim(workers: int | None) -> Engine:
    if find_spec("flwr") is None or find_spec("ray") is None:
        raise IlkError("The engine 'flower-sim' needs Flower and Ray: pip install 'ilk[flower-sim]'.")
    from ilk.engines.flower.sim import FlowerSim

    return FlowerSim(workers)
