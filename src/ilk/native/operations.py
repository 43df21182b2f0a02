"""One step of a traced forward: what it does, if the kernels know it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import fx, nn
from torch.nn import functional

Kind = Literal["convolution", "linear", "relu", "pool", "flatten", "nothing"]


class Outside(Exception):
    """A network that the kernels do not compute; the message says why, in words that follow "because"."""


@dataclass(frozen=True)
class Operation:
    """What is done to the value that goes through the network."""

    kind: Kind
    module: nn.Module | None = None
    padding: tuple[int, int] = (0, 0)  # of a convolution
    size: int = -1  # values a sample after flattening; -1: as many as there are


def operation_of(node: fx.Node, graph: fx.GraphModule, value: fx.Node | None) -> Operation | None:
    """Return what a node does to `value`; None if it only asks for the number of samples."""
    if _is_count(node):
        return None
    what = str(node.target) if node.op != "call_function" else getattr(node.target, "__name__", str(node.target))
    if node.op == "get_attr" or not node.args or node.args[0] is not value:
        raise Outside(f"its forward is not one chain of layers ('{what}')")
    arguments, named = node.args[1:], dict(node.kwargs)
    if node.op == "call_module":
        return _of_module(graph.get_submodule(str(node.target)))
    name = METHODS.get(str(node.target)) if node.op == "call_method" else FUNCTIONS.get(cast(Any, node.target))
    if name is None:
        raise Outside(f"its forward calls '{what}'")
    try:
        return READERS[name](*arguments, **named)
    except TypeError:
        raise Outside(f"its forward calls '{what}' with options that are not known here") from None


def _is_count(node: fx.Node) -> bool:
    """Whether a node is ``x.size(0)``, ``x.shape``, ``x.shape[0]`` or ``x.size()``."""
    if node.op == "call_method":
        return node.target == "size" and node.args[1:] in ((), (0,))
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return node.args[1] == "shape"
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node) and _is_count(node.args[0])


def _is_first(node: Any) -> bool:
    """Whether a node is the number of samples itself."""
    if not isinstance(node, fx.Node) or not _is_count(node):
        return False
    return node.args[1:] == (0,)


def _of_module(module: nn.Module) -> Operation:
    kind = type(module)
    if kind is nn.Conv2d:
        return _convolution(cast(nn.Conv2d, module))
    if kind is nn.Linear:
        return Operation("linear", module)
    if kind is nn.ReLU:
        return Operation("relu")
    if kind is nn.MaxPool2d:
        p = cast(nn.MaxPool2d, module)
        return _pool(p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode, p.return_indices)
    if kind is nn.Flatten:
        flatten = cast(nn.Flatten, module)
        return _flatten(flatten.start_dim, flatten.end_dim)
    if kind is nn.Identity:
        return Operation("nothing")
    if kind is nn.Dropout:
        return _dropout(cast(nn.Dropout, module).p)
    raise Outside(f"it has a layer of type {kind.__name__}")


def _convolution(module: nn.Conv2d) -> Operation:
    wanted = {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
    for option, value in wanted.items():
        if getattr(module, option) != value:
            raise Outside(f"it has a convolution with {option} {getattr(module, option)}")
    padding: Any = module.padding
    if padding == "valid":
        padding = (0, 0)
    if padding == "same":
        if any(side % 2 == 0 for side in module.kernel_size):
            raise Outside("it has a convolution with an even kernel and padding 'same', which is more on one side")
        padding = tuple(side // 2 for side in module.kernel_size)
    return Operation("convolution", module, padding)


def _pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Operation:
    given = [_pair(side) for side in (kernel_size, stride or kernel_size, padding, dilation)]
    if given != [(2, 2), (2, 2), (0, 0), (1, 1)] or ceil_mode or return_indices:
        raise Outside("it has a max-pooling other than by 2")
    return Operation("pool")


def _flatten(start_dim: int = 0, end_dim: int = -1) -> Operation:
    if start_dim != 1 or end_dim not in (-1, 3):
        raise Outside(f"it flattens from dimension {start_dim} to {end_dim}")
    return Operation("flatten")


def _view(*shape: Any) -> Operation:
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    if len(sizes) != 2 or not (sizes[0] == -1 or _is_first(sizes[0])) or not isinstance(sizes[1], int):
        raise Outside("it views a value as something else than a vector for each sample")
    if sizes[0] == -1 and sizes[1] == -1:
        raise Outside("it views a value as (-1, -1)")
    return Operation("flatten", size=sizes[1])


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> Operation:
    if p > 0 and training:
        raise Outside(f"it has dropout ({p:g})")
    return Operation("nothing")


def _relu(inplace: bool = False) -> Operation:
    return Operation("relu")


def _nothing() -> Operation:
    return Operation("nothing")


def _pair(side: Any) -> Any:
    return (side, side) if isinstance(side, int) else tuple(side)


READERS: dict[str, Callable[..., Operation]] = {
    "relu": _relu,
    "pool": _pool,
    "flatten": _flatten,
    "view": _view,
    "dropout": _dropout,
    "nothing": _nothing,
}
METHODS: dict[str, str] = {
    "relu": "relu",
    "relu_": "relu",
    "flatten": "flatten",
    "view": "view",
    "reshape": "view",
    "contiguous": "nothing",
}
FUNCTIONS: dict[Any, str] = {
    torch.relu: "relu",
    torch.relu_: "relu",
    functional.relu: "relu",
    functional.relu_: "relu",
    functional.max_pool2d: "pool",
    torch.max_pool2d: "pool",
    torch.flatten: "flatten",
    torch.reshape: "view",
    functional.dropout: "dropout",
}
