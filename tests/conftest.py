"""What many tests need: a cache of their own, small federations, an engine that loses answers, and a clock."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import numpy as np
import pytest

import ilk
from ilk.engines import Inline
from ilk.randomness import stream
from ilk.tasks import Evaluate


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """No test reads or writes the user's cache of data sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ILK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def make_blobs(clients=6, samples=30, features=5, classes=3, auxiliary=20, groups=1, seed=0):
    """Return clients of different sizes with easy data; a client of group g calls class c class c + g."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(classes, features)) * 2

    def draw(count, group=0):
        y = np.arange(count) % classes
        x = centres[y] + random.normal(size=(count, features)) * 0.7
        return x.astype(np.float32), (y + group) % classes

    group_of = {f"client-{k}": k % groups for k in range(clients)}
    return ilk.from_arrays(
        {name: draw(samples + 7 * k, group) for k, (name, group) in enumerate(group_of.items())},
        test=draw(45),
        auxiliary=draw(auxiliary)[0] if auxiliary else None,
        groups=group_of,
        seed=seed,
    )


@pytest.fixture(scope="session")
def make_federation():
    return make_blobs


@pytest.fixture(scope="session")
def blobs():
    """Six clients, 30 to 65 samples each, with a global test set and data for the server."""
    return make_blobs()


class Losing(Inline):
    """The inline engine on a bad network: answers get lost, by a random stream that no run uses."""

    name = "losing"

    def __init__(self, share=0.0, void=(), evaluations_too=False):
        self.share, self.void, self.evaluations_too = share, void, evaluations_too

    def ask(self, task, messages, round):
        spared = isinstance(task, Evaluate) and not self.evaluations_too
        for answer in super().ask(task, messages, round):
            lost = round in self.void or stream(99, "lost", round, answer.client).random() < self.share
            if spared or not lost:
                yield answer


@pytest.fixture(scope="session")
def losing():
    return Losing


@pytest.fixture(scope="session")
def at_most():
    """A clock: what takes longer fails instead of hanging."""

    @contextmanager
    def clock(seconds):
        def ring(number, frame):
            raise TimeoutError(f"it took longer than {seconds} s")

        before = signal.signal(signal.SIGALRM, ring)
        signal.alarm(seconds)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return clock
