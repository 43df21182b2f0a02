"""Randomness is addressed, not consumed.

Each random choice draws from a stream that is named by the run's seed, what the choice is for, and where it is made
(round, client). So a run is the same run on one worker or eight, in one go or resumed: nobody has to have drawn
everything before in order.
"""

from __future__ import annotations

import hashlib

import numpy as np

Address = str | int


def stream(seed: int, *address: Address) -> np.random.Generator:
    """Return the random stream of this address: ``stream(seed, "batches", round, client)``."""
    name = "/".join(f"{type(part).__name__}:{part}" for part in (seed, *address))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()))


def torch_seed(seed: int, *address: Address) -> int:
    """Return a seed for PyTorch's own generator, from the stream of this address."""
    return int(stream(seed, *address).integers(2**63 - 1))
