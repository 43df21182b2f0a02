"""No call keeps anything that another could see: threads that share a network end in the bits of one alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ilk import models
from ilk.native import Native, read


def training(instructions, seed=0, samples=40, epochs=4):
    shape = (1, 20, 20)
    net = models.build("lenet5", shape, 10, seed=0)
    random = np.random.default_rng(seed)
    x, y = random.random((samples, *shape), dtype=np.float32), random.integers(0, 10, samples)
    order = np.stack([random.permutation(samples) for _ in range(epochs)])
    return Native(read(net, shape), net.trainable, instructions), (net.read(), x, y, order)


def test_several_threads_at_once(instructions):
    native, _ = training(instructions)
    jobs = [training(instructions, seed)[1] for seed in range(8)]

    def job(arguments):
        model, _ = native.fit(*arguments, batch=7, lr=0.05, momentum=0.5)
        return model, native.forward(model, arguments[1])

    alone = [job(arguments) for arguments in jobs]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            for one, other in zip(alone, threads.map(job, jobs), strict=True):
                assert np.array_equal(one[0], other[0])
                assert np.array_equal(one[1], other[1])


def test_other_threads_go_on_meanwhile():
    """While a fit computes, Python runs: the GIL is not held."""
    native, arguments = training("baseline", samples=200, epochs=40)
    counted, stop, switch = [0], threading.Event(), sys.getswitchinterval()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    sys.setswitchinterval(10)  # with the GIL held between two calls the other thread could not even start
    thread.start()
    try:
        before, began = counted[0], time.perf_counter()
        native.fit(*arguments, batch=10, lr=0.01)
        took, after = time.perf_counter() - began, counted[0]
    finally:
        stop.set()
        sys.setswitchinterval(switch)
        thread.join()
    assert took > 0.02
    assert after - before >= 3


@pytest.fixture
def interruptible():
    """Ctrl-C as a terminal gives it; a shell's background job is begun with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_long_fit(interruptible):
    native, arguments = training("baseline", samples=50, epochs=5000)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        native.fit(*arguments, batch=10, lr=0.0001)
    timer.join()
