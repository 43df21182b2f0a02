"""What does not fit is refused before compiled code sees it."""

from __future__ import annotations

import numpy as np
import pytest

from ilk import models
from ilk.native import Native, read
from ilk.native.choose import sets

SHAPE = (1, 16, 16)


@pytest.fixture(scope="module")
def native():
    net = models.build("lenet5", SHAPE, 3, seed=0)
    return Native(read(net, SHAPE), net.trainable, sets()[0])


def good(native):
    return {
        "start": np.zeros(native.parameters, np.float32),
        "x": np.zeros((4, *SHAPE), np.float32),
        "y": np.array([0, 1, 2, 0]),
        "order": np.tile(np.arange(4), (2, 1)),
        "batch": 3,
        "lr": 0.1,
    }


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("start", np.zeros(3, np.float32), ValueError, "a model of 3 floats was given"),
        ("start", np.zeros(3), TypeError, "float32 is needed, but float64"),
        ("x", np.zeros((4, 1, 16, 15), np.float32), ValueError, "x: wrong shape"),
        ("x", np.zeros((4, *SHAPE)), TypeError, "float32"),
        ("y", np.array([0, 1, 2, 3]), ValueError, "not one of the classes"),
        ("y", np.array([0, 1, 2, -1]), ValueError, "not one of the classes"),
        ("y", np.array([0, 1, 2]), ValueError, "one label a sample"),
        ("y", np.array([0, 1, 2, 0], np.int32), TypeError, "int64 is needed, but int32"),
        ("order", np.tile(np.arange(5), (2, 1)), ValueError, "order: epochs x samples"),
        ("order", np.arange(4), ValueError, "order: epochs x samples"),
        ("order", np.tile(np.arange(4) + 1, (2, 1)), ValueError, "no such sample"),
        ("batch", 0, ValueError, "a batch needs a sample"),
        ("shift", np.zeros(3, np.float32), ValueError, "shift: wrong shape"),
        ("shift", np.zeros(3), TypeError, "float32"),
        ("drift", np.zeros(3, np.float32), ValueError, "drift: wrong shape"),
        ("drift", np.zeros(3), TypeError, "float32"),
    ],
)
def test_refused(native, name, value, error, words):
    native.fit(**good(native))
    with pytest.raises(error, match=words):
        native.fit(**{**good(native), name: value})


@pytest.mark.parametrize("scalar", [np.float32(0).reshape(()), np.zeros(0, np.float32)])
def test_arrays_without_extent(native, scalar):
    with pytest.raises(ValueError, match=r"a model of \d floats was given"):
        native.forward(scalar, np.zeros((4, *SHAPE), np.float32))
    with pytest.raises(ValueError, match="x: wrong shape"):
        native.forward(np.zeros(native.parameters, np.float32), np.float32(0).reshape(()))


def test_no_samples(native):
    start, none = good(native)["start"], np.zeros((0, *SHAPE), np.float32)
    assert native.forward(start, none).shape == (0, 3)
    model, finite = native.fit(start, none, np.zeros(0, np.int64), np.zeros((2, 0), np.int64), batch=3, lr=0.1)
    assert finite
    assert np.array_equal(model, start)
    with pytest.raises(ValueError, match="one label a sample"):
        native.gradient(start, none, np.zeros(0, np.int64))


def test_no_epochs_and_samples_that_are_not_contiguous(native):
    arguments = good(native)
    arguments["order"] = np.zeros((0, 4), np.int64)
    assert native.fit(**arguments)[1]
    random = np.random.default_rng(0).random((4, 1, 16, 32), dtype=np.float32)
    start = np.full(native.parameters, 0.01, np.float32)
    assert np.array_equal(native.forward(start, random[..., ::2]), native.forward(start, random[..., ::2].copy()))
    random.flags.writeable = False
    native.forward(start, random[..., :16])


def test_layers_that_do_not_fit(native):
    good, *rest = native.layers
    from dataclasses import replace

    for layers, words in [
        ([replace(good, outputs=7), *rest], "does not fit the one before"),
        ([replace(good, kernel_height=17), *rest], "does not fit into its input"),
        ([replace(good, weight=native.parameters), *rest], "not in the model"),
        ([replace(good, bias=-2), *rest], "not in the model"),
        ([replace(good, channels=0), *rest], "positive"),
        ([replace(good, pad_width=-1), *rest], "padding"),
        ([good], "last layer must be a dense one"),
        ([rest[-1], good, rest[-1]], "cannot follow"),
    ]:
        with pytest.raises(ValueError, match=words):
            Native(layers, native.parameters, native.instructions)
    with pytest.raises(ValueError, match="no instruction set 'mmx'"):
        Native(native.layers, native.parameters, "mmx")
