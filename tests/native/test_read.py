"""Layers are read from any module whose forward is a chain that the kernels know; else the reason is said in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ilk.native import Outside, attach, read
from ilk.native.choose import make
from ilk.params import Net

SHAPE = (2, 12, 12)


class Own(nn.Module):
    """A network as people write it: layers declared in another order than they are used, the rest in forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.out = nn.Linear(20, 5)
        self.hidden = nn.Linear(4 * 5 * 5, 20, bias=False)
        self.conv = nn.Conv2d(2, 4, 3)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.how = forward

    def forward(self, x):
        return self.how(self, x)


def end(self, x):
    return self.out(F.relu(self.hidden(x)))


FORMS = {
    "functional": lambda self, x: end(self, torch.flatten(F.max_pool2d(F.relu(self.conv(x)), 2), 1)),
    "methods": lambda self, x: end(self, torch.max_pool2d(self.conv(x).relu(), (2, 2)).flatten(1)),
    "pool first": lambda self, x: end(self, torch.relu(F.max_pool2d(self.conv(x), kernel_size=2, stride=2)).flatten(1)),
    "view(-1, n)": lambda self, x: end(self, F.max_pool2d(torch.relu(self.conv(x)), 2).view(-1, 100)),
    "view(size, -1)": lambda self, x: end(self, F.max_pool2d(torch.relu_(self.conv(x)), 2).view(x.size(0), -1)),
    "reshape(shape[0], n)": lambda self, x: end(self, F.max_pool2d(self.conv(x).relu_(), 2).reshape(x.shape[0], 100)),
    "view((size()[0], -1))": lambda self, x: end(self, F.max_pool2d(self.conv(x).relu(), 2).view((x.size()[0], -1))),
    "contiguous": lambda self, x: end(self, F.max_pool2d(F.relu(self.conv(x)), 2).contiguous().flatten(start_dim=1)),
    "no dropout": lambda self, x: end(self, F.dropout(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1), 0.5, False)),
}


@pytest.mark.parametrize("form", FORMS)
def test_modules_with_a_forward_of_their_own(form):
    net = Net(Own(FORMS[form]))
    layers = read(net, SHAPE)
    assert [(layer.convolution, layer.relu, layer.pool) for layer in layers] == [
        (True, True, True),
        (False, True, False),
        (False, False, False),
    ]
    assert [layer.bias == -1 for layer in layers] == [False, True, False]
    assert layers[-1].weight == 0, "the last layer was declared first"
    native = make(net, SHAPE)
    x = torch.randn(7, *SHAPE)
    with torch.no_grad():
        np.testing.assert_allclose(native.forward(net.read(), x.numpy()), net.module(x).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(5, 3), (5,)),
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), (2, 3)),
        (nn.Sequential(nn.Sequential(nn.Identity(), nn.Linear(5, 3)), nn.Dropout(0.0), nn.ReLU()), (5,)),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.ReLU(True), nn.Flatten(), nn.Linear(32, 3)), (1, 4, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, (2, 3), padding="valid"), nn.Flatten(), nn.Linear(12, 3)), (1, 4, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding=(0, 2)), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6, 3)), (1, 4, 4)),
    ],
)
def test_inside(module, shape):
    net = Net(module)
    assert make(net, shape).parameters == net.trainable
    assert module.training, "reading leaves the mode as it was"
    assert not net.gradient.any()


def hooked():
    module = nn.Linear(5, 3)
    module.register_forward_hook(lambda *_: None)
    return module


def gradient_hooked():
    module = nn.Linear(5, 3)
    module.weight.register_hook(lambda g: g)
    return module


def frozen():
    module = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 3))
    module[0].requires_grad_(False)
    return module


def tied():
    module = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5))
    module[2].weight = module[0].weight
    return module


def replaced():
    module = nn.Linear(5, 3)
    module.forward = lambda x: 2 * nn.Linear.forward(module, x)
    return module


class Different(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class ByMode(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(5, 3), nn.ReLU()

    def forward(self, x):
        return self.layer(x) if self.training else self.other(self.layer(x))


class ByValue(ByMode):
    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.other(self.layer(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.two(x + self.one(x))


class Sideways(Residual):
    def forward(self, x):
        self.one(x)
        return self.two(x)


class Unused(Residual):
    def forward(self, x):
        return self.two(x)


class TwoInputs(Unused):
    def forward(self, x, scale=None):
        return self.two(self.one(x))


class WithoutGradient(Residual):
    """What tracing does not see: the first layer is not trained."""

    def forward(self, x):
        with torch.no_grad():
            hidden = self.one(x)
        return self.two(hidden)


twice = nn.Linear(5, 5)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (hooked, "it has hooks"),
        (gradient_hooked, "'weight' has hooks"),
        (frozen, "'0.weight' is frozen"),
        (tied, "'0.weight' is used twice"),
        (lambda: nn.Sequential(twice, nn.ReLU(), twice), "'0.weight' is used twice"),
        (replaced, "the forward of 'Linear' was replaced"),
        (lambda: nn.Sequential(Different(5, 3)), "not one chain"),
        (lambda: nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), "it has buffers"),
        (lambda: nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.2), nn.Linear(5, 3)), r"it has dropout \(0.2\)"),
        (lambda: nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)), "a layer of type Tanh"),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(5, 3)), "relu comes before any layer"),
        (lambda: nn.Sequential(nn.Linear(4, 3)), "4 inputs does not follow"),
        (ByMode, "something else in training"),
        (ByValue, "cannot be traced"),
        (Residual, "not one chain"),
        (Sideways, "not one chain"),
        (Unused, "does not use the parameter 'one.weight'"),
        (TwoInputs, "more than one input"),
        (WithoutGradient, "not those of the layers that were read"),
    ],
)
def test_outside(module, reason):
    with pytest.raises(Outside, match=reason):
        make(Net(module()), (5,))


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([nn.Conv2d(2, 3, 3, stride=2)], "stride"),
        ([nn.Conv2d(2, 3, 3, dilation=2)], "dilation"),
        ([nn.Conv2d(2, 4, 3, groups=2)], "groups"),
        ([nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")], "padding_mode circular"),
        ([nn.Conv2d(2, 3, 2, padding="same")], "even kernel"),
        ([nn.Conv2d(3, 3, 2)], "of 3 channels does not follow"),
        ([nn.Conv2d(2, 3, 3), nn.MaxPool2d(3)], "max-pooling other than by 2"),
        ([nn.Conv2d(2, 3, 3), nn.MaxPool2d(2, stride=1)], "max-pooling other than by 2"),
        ([nn.Conv2d(2, 3, 3), nn.MaxPool2d(2, ceil_mode=True)], "max-pooling other than by 2"),
        ([nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.MaxPool2d(2)], "a pooling that does not follow a convolution"),
        ([nn.Conv2d(2, 3, 12), nn.MaxPool2d(2)], "nothing is left"),
        ([nn.Conv2d(2, 3, 13)], "nothing is left"),
        ([nn.MaxPool2d(2)], "pool comes before any layer"),
        ([nn.Conv2d(2, 3, 3), nn.AvgPool2d(2)], "a layer of type AvgPool2d"),
        ([nn.Conv2d(2, 3, 3), nn.Flatten(2)], "flattens from dimension 2"),
        ([nn.Conv2d(2, 3, 3), nn.Flatten()], "does not end in a linear layer"),
        ([nn.Linear(12, 12), nn.Flatten(), nn.Linear(288, 4)], "12 inputs does not follow a shape of"),
    ],
)
def test_images_outside(layers, reason):
    with pytest.raises(Outside, match=reason):
        read(Net(nn.Sequential(*layers)), SHAPE)


def test_a_view_of_something_else():
    for view, reason in [
        ((-1, 50), "viewed as 50 values"),
        ((-1, -1), r"as \(-1, -1\)"),
        ((4, -1), "views"),
        ((-1,), "views"),
    ]:
        with pytest.raises(Outside, match=reason):
            read(Net(Own(lambda self, x, view=view: end(self, self.conv(x).view(*view)))), SHAPE)


def test_an_outsider_is_left_to_pytorch():
    net = Net(nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3)))
    attach(net, (5,), "auto")
    assert net.native is None
