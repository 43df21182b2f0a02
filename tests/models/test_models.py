"""The networks: their sizes, their seeds, and the user's own."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch

from ilk import models
from ilk.errors import IlkError


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a user's module beside which they stand, and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_networks", raising=False)
    (tmp_path / "my_networks.py").write_text(
        textwrap.dedent("""
            from torch import nn

            def both(shape, classes):
                return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], classes))

            def neither():
                return nn.Linear(5, 2)

            def only_classes(classes, hidden=3):
                return nn.Sequential(nn.Linear(5, hidden), nn.Linear(hidden, classes))

            class Network(nn.Module):
                def __init__(self, classes):
                    super().__init__()
                    self.last = nn.Linear(4, classes)

            def nothing(shape):
                return shape

            def double():
                return nn.Linear(5, 2).double()

            def picky(shape):
                raise ValueError(f"I do not like {shape}")

            number = 3
        """)
    )
    return "my_networks"


@pytest.mark.parametrize(
    ("shape", "classes", "count"),
    [((3, 32, 32), 10, 62_006), ((1, 28, 28), 10, 44_426), ((3, 32, 32), 40, 64_556)],
    ids=["cifar", "fashion-mnist", "mix-4"],
)
def test_lenet5_has_the_parameters_of_the_papers(shape, classes, count):
    net = models.build("lenet5", shape, classes, seed=0)
    assert net.trainable == net.vector.numel() == count
    assert net.module(torch.zeros(2, *shape)).shape == (2, classes)


def test_the_mlp_takes_tables_and_images():
    assert models.build("mlp", (5,), 3, 0).trainable == 5 * 64 + 64 + 64 * 3 + 3
    assert models.build("mlp", (1, 8, 8), 10, 0).module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_auto_takes_lenet_where_it_fits():
    assert models.choose("auto", (1, 28, 28)) == "lenet5"
    assert models.choose("auto", (3, 16, 16)) == "lenet5"
    assert models.choose("auto", (1, 8, 8)) == "mlp"
    assert models.choose("auto", (3, 32, 15)) == "mlp"
    assert models.choose("auto", (30,)) == "mlp"
    assert models.choose("mlp", (3, 32, 32)) == "mlp"
    assert models.build("lenet5", (3, 16, 16), 10, 0).module(torch.zeros(1, 3, 16, 16)).shape == (1, 10)


@pytest.mark.parametrize("shape", [(1, 8, 8), (30,)])
def test_lenet_on_data_that_is_too_small_is_refused(shape):
    with pytest.raises(IlkError, match=r"'lenet5' does not fit: .*at least 16x16"):
        models.build("lenet5", shape, 10, 0)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(IlkError, match=r"no model 'lenet'. Did you mean 'lenet5'.* There are: auto, .*lenet5, .*mlp"):
        models.build("lenet", (3, 32, 32), 10, 0)


@pytest.mark.parametrize(
    ("name", "count"), [("both", 5 * 7 * 2 + 2), ("neither", 12), ("only_classes", 18 + 8), ("Network", 10)]
)
def test_the_users_own_network(own, name, count):
    assert models.build(f"{own}:{name}", (5, 7), 2, 0).trainable == count


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("not_there_at_all:make", "cannot be imported: No module named 'not_there_at_all'"),
        ("my_networks:nobody", "cannot be imported: .*no attribute 'nobody'"),
        ("my_networks:", "cannot be imported"),
        ("my_networks:nothing", "returned tuple; it must return a torch.nn.Module"),
        ("my_networks:double", "cannot be used: .*float32"),
        ("my_networks:picky", "I do not like"),
    ],
)
def test_a_network_that_cannot_be_used_is_refused(own, name, text):
    with pytest.raises(IlkError, match=text):
        models.build(name, (5, 7), 2, 0)


def test_what_is_not_callable_is_refused(own):
    with pytest.raises(IlkError, match="my_networks:number"):
        models.build(f"{own}:number", (5, 7), 2, 0)


def test_the_seed_and_which_name_the_weights():
    def weights(seed, which=0):
        return models.initial_model("mlp", (5,), 3, seed, which)

    assert np.array_equal(weights(0), weights(0))
    drawn = [weights(0), weights(1), weights(0, 1), weights(0, 2), weights(1, 1)]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert not np.isclose(one, other).any(), "weights of different addresses have nothing in common"


def test_the_seed_of_pytorch_neither_matters_nor_changes():
    torch.manual_seed(5)
    first = models.initial_model("mlp", (5,), 3, 0)
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), after)
    assert np.array_equal(models.initial_model("mlp", (5,), 3, 0), first)
