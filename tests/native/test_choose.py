"""native, torch or auto: what is used, what is refused, and what is said where the kernels are not built."""

from __future__ import annotations

import warnings

import pytest
from torch import nn

import ilk
from ilk.errors import IlkError, IlkWarning
from ilk.native import attach, choose, instruction_set, resolve
from ilk.params import Net


@pytest.fixture
def net():
    return Net(nn.Linear(5, 3))


@pytest.fixture
def outsider():
    return Net(nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)))


@pytest.fixture
def not_built(monkeypatch):
    monkeypatch.setattr(choose, "sets", list)
    choose._warn_once.cache_clear()
    yield
    choose._warn_once.cache_clear()


def test_what_computes(net, outsider):
    assert [resolve(net, (5,), how) for how in ("auto", "native", "torch")] == ["native", "native", "torch"]
    assert [resolve(outsider, (5,), how) for how in ("auto", "torch")] == ["torch", "torch"]


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)], (784,)),
        ([nn.Conv2d(3, 64, 3), nn.Conv2d(64, 128, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 3)], (3, 8, 8)),
    ],
)
def test_large_networks_are_pytorchs_unless_asked_for(layers, shape):
    net = Net(nn.Sequential(*layers))
    assert [resolve(net, shape, how) for how in ("auto", "native")] == ["torch", "native"]


def test_native_for_an_outsider(outsider):
    with pytest.raises(IlkError, match=r"--compute native is not possible, because it has a layer of type Tanh\. Use"):
        attach(outsider, (5,), "native")


@pytest.mark.needs_no_kernels
def test_native_where_it_is_not_built(net, not_built):
    with pytest.raises(IlkError, match=r"because ilk's compiled kernels are not built \(install ilk again"):
        attach(net, (5,), "native")


@pytest.mark.needs_no_kernels
def test_one_line_says_that_it_is_not_built(net, outsider, not_built):
    assert resolve(outsider, (5,), "auto") == "torch"
    assert resolve(net, (5,), "torch") == "torch"
    with pytest.warns(IlkWarning, match="kernels are not built; PyTorch is used"):
        assert resolve(net, (5,), "auto") == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve(net, (5,), "auto") == "torch"


def test_an_instruction_set_by_name(net, instructions, monkeypatch):
    monkeypatch.setenv("ILK_NATIVE", instructions)
    attach(net, (5,), "native")
    assert net.native.instructions == instructions == instruction_set()


def test_an_instruction_set_that_is_not_there(net, monkeypatch):
    monkeypatch.setenv("ILK_NATIVE", "mmx")
    with pytest.raises(
        IlkError, match=r"ILK_NATIVE=mmx is not allowed. Allowed on this machine: .*baseline; or unset it"
    ):
        attach(net, (5,), "auto")


def test_a_value_that_is_not_there(blobs):
    with pytest.raises(IlkError, match=r"compute = 'natve' is not allowed. Did you mean 'native'\?"):
        ilk.Plan(compute="natve")
