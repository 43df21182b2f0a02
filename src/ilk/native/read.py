"""Read the layers of an ordinary module, or say in words why the kernels cannot compute it.

The module's forward is traced (torch.fx), so it may be an nn.Sequential or anybody's class. What is understood is one
chain: Conv2d, ReLU and MaxPool2d(2), then Linear and ReLU. Types must be exact, for a subclass may do something else; and
nothing may happen beside the chain: no hooks, no buffers, no parameter that is frozen, shared or left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules import module as torch_module

from ilk.native.operations import Operation, Outside, operation_of
from ilk.params import Net

__all__ = ["Layer", "Outside", "read"]

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Layer:
    """A layer with what follows it. The fields and their order are those of ``kernel/kernel.h``."""

    convolution: bool
    channels: int  # of what comes in; a dense layer takes channels * height * width values
    height: int
    width: int
    outputs: int  # channels or units
    kernel_height: int
    kernel_width: int
    pad_height: int
    pad_width: int
    relu: bool
    pool: bool
    weight: int  # where it begins in the model
    bias: int  # -1: none

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what goes out."""
        if not self.convolution:
            return self.outputs, 1, 1
        height = self.height + 2 * self.pad_height - self.kernel_height + 1
        width = self.width + 2 * self.pad_width - self.kernel_width + 1
        return (self.outputs, height // 2, width // 2) if self.pool else (self.outputs, height, width)


def read(net: Net, shape: tuple[int, ...]) -> list[Layer]:
    """Return the layers of a network whose samples have this shape; raise `Outside` if it is not of the family."""
    _refuse_what_is_beside(net)
    modes, was_training = [], net.module.training
    try:
        for training in (False, True):  # forward may ask
            net.module.train(training)
            modes.append(_Chain(net, shape).layers())
    finally:
        net.module.train(was_training)
    if modes[0] != modes[1]:
        raise Outside("it computes something else in training than in evaluation")
    return modes[0]


def _refuse_what_is_beside(net: Net) -> None:
    everything = dict(net.module.named_modules())
    if any(getattr(module, hooks, None) for module in everything.values() for hooks in HOOKS):
        raise Outside("it has hooks")
    if any(getattr(torch_module, f"_global{hooks}", None) for hooks in HOOKS):
        raise Outside("PyTorch has global hooks")
    for name, module in everything.items():
        if "forward" in vars(module):
            raise Outside(f"the forward of '{name or type(module).__name__}' was replaced")
    if next(net.module.buffers(), None) is not None:
        raise Outside("it has buffers, as BatchNorm has")
    for name, parameter in net.module.named_parameters():
        if not parameter.requires_grad:
            raise Outside(f"its parameter '{name}' is frozen")
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise Outside(f"its parameter '{name}' has hooks")


class _Chain:
    """The layers found so far, and the shape of what the last one gives."""

    def __init__(self, net: Net, shape: tuple[int, ...]) -> None:
        self.net, self.shape = net, shape
        self.found: list[Layer] = []
        self.used: set[str] = set()

    def layers(self) -> list[Layer]:
        root = self.net.module
        plain = type(root).__module__.startswith("torch.nn.") and not isinstance(root, nn.Sequential)
        try:
            graph = fx.symbolic_trace(nn.Sequential(root) if plain else root)
        except Exception as error:
            words = str(error).partition("\n")[0][:200]
            raise Outside(f"its forward cannot be traced ({words})") from None
        value: fx.Node | None = None
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                if value is not None:
                    raise Outside("its forward takes more than one input")
                value = node
                continue
            if node.op == "output":
                if node.args[0] is not value:
                    raise Outside("its forward returns something else than its last layer")
                continue
            operation = operation_of(node, graph, value)
            if operation is None:  # the number of samples, as x.size(0)
                continue
            self.add(operation)
            value = node
        if not self.found or self.found[-1].convolution or len(self.shape) != 1:
            raise Outside("it does not end in a linear layer")
        left = [name for name, _ in self.net.module.named_parameters() if name not in self.used]
        if left:
            raise Outside(f"its forward does not use the parameter '{left[0]}'")
        return self.found

    def add(self, operation: Operation) -> None:
        """Take one more step, which the shape and the layer before it must allow."""
        kind, module = operation.kind, operation.module
        last = self.found[-1] if self.found else None
        if kind == "convolution":
            assert isinstance(module, nn.Conv2d)
            if len(self.shape) != 3 or (last and not last.convolution) or module.in_channels != self.shape[0]:
                raise Outside(f"a convolution of {module.in_channels} channels does not follow a shape of {self.shape}")
            sides = (*module.kernel_size, *operation.padding)
            self._append(Layer(True, *self.shape, module.out_channels, *sides, False, False, *self._offsets(module)))  # type: ignore[call-arg, arg-type]
        elif kind == "linear":
            assert isinstance(module, nn.Linear)
            if len(self.shape) != 1 or module.in_features != self.shape[0]:
                raise Outside(f"a linear layer of {module.in_features} inputs does not follow a shape of {self.shape}")
            shape = last.output_shape if last else (module.in_features, 1, 1)
            sides = (1, 1, 0, 0)
            self._append(Layer(False, *shape, module.out_features, *sides, False, False, *self._offsets(module)))
        elif kind == "flatten":
            size = 1
            for side in self.shape:
                size *= side
            if operation.size not in (-1, size):
                raise Outside(f"a shape of {self.shape} is viewed as {operation.size} values a sample")
            self.shape = (size,)
        elif kind == "nothing":
            return
        elif last is None:
            raise Outside(f"{kind} comes before any layer")
        elif kind == "relu":
            self.found[-1] = replace(last, relu=True)  # after pooling is the same as before
        elif kind == "pool":
            if not last.convolution or last.pool or len(self.shape) != 3:
                raise Outside("a pooling that does not follow a convolution")
            self._append(replace(self.found.pop(), pool=True))

    def _append(self, layer: Layer) -> None:
        if min(layer.output_shape) < 1:
            raise Outside("nothing is left of its input")
        self.found.append(layer)
        self.shape = layer.output_shape if layer.convolution else (layer.outputs,)

    def _offsets(self, module: nn.Conv2d | nn.Linear) -> tuple[int, int]:
        """Where weight and bias begin in the flat vector."""
        names = {id(parameter): name for name, parameter in self.net.module.named_parameters()}

        def offset(parameter: torch.Tensor) -> int:
            name = names[id(parameter)]
            if name in self.used:
                raise Outside(f"its parameter '{name}' is used twice")
            self.used.add(name)
            return (parameter.data_ptr() - self.net.vector.data_ptr()) // parameter.element_size()

        bias: Any = module.bias
        return offset(module.weight), -1 if bias is None else offset(bias)
