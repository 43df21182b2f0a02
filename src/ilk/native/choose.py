"""Which of the two computes: the kernels, where they are built and the network is of their family, or PyTorch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Literal

import torch
from torch.nn.functional import cross_entropy

from ilk.errors import IlkError, IlkWarning
from ilk.native.network import Native
from ilk.native.read import Layer, Outside, read
from ilk.params import Net

Compute = Literal["auto", "native", "torch"]
VARIABLE = "ILK_NATIVE"
NOT_BUILT = "ilk's compiled kernels are not built"
HOW_TO_BUILD = "Install ilk again where there is a C++ compiler (GCC or clang)"


def sets() -> list[str]:
    """Return the instruction sets that the kernels can use on this machine, the fastest first; none if not built."""
    try:
        from ilk.native import _kernel
    except ImportError:
        return []
    return _kernel.sets()


def instruction_set() -> str | None:
    """Return the one that is used: the fastest, or what the environment says; None where the kernels are not built."""
    has, wanted = sets(), os.environ.get(VARIABLE)
    if not has:
        return None
    if wanted and wanted not in has:
        raise IlkError(
            f"The environment variable {VARIABLE}={wanted} is not allowed. Allowed on this machine: {', '.join(has)}; "
            "or unset it, for the first of these."
        )
    return wanted or has[0]


def attach(net: Net, shape: tuple[int, ...], compute: Compute) -> None:
    """Let the network be computed as asked: give it its `native`, or leave it to PyTorch.

    With "auto" PyTorch is used for what the kernels cannot do, or not faster; "native" does it where it is possible, and
    is refused otherwise, with the reason.
    """
    net.native = None
    if compute == "torch":
        return
    try:
        native = make(net, shape)
        net.native = None if compute == "auto" and is_large(native.layers) else native
    except Outside as reason:
        if compute == "native":
            raise IlkError(
                f"--compute native is not possible, because {reason}. Use --compute torch, or auto, which uses PyTorch "
                "where it must."
            ) from None


def resolve(net: Net, shape: tuple[int, ...], compute: Compute) -> Literal["native", "torch"]:
    """Say which of the two computes this network; with "auto", and in vain only because nothing is built, warn once."""
    attach(net, shape, compute)
    if compute == "auto" and not net.native and not sets() and _of_the_family(net, shape):
        _warn_once()
    return "native" if net.native else "torch"


def is_large(layers: Sequence[Layer]) -> bool:
    """Whether PyTorch is the faster one: its libraries are made for matrices that do not fit the cache, the kernels are not.

    Measured with AVX-512 and batches of 10 and 64: 64 to 64 channels are still 1.3 times faster here, 64 to 128 are slower;
    of dense networks 784-200-200-10 is as fast on both, 784-1024-10 half as fast here.
    """
    dense_only = not any(layer.convolution for layer in layers)
    return any(
        layer.channels * layer.outputs > 64 * 64
        if layer.convolution
        else dense_only and layer.channels * layer.height * layer.width * layer.outputs > 2**18
        for layer in layers
    )


def make(net: Net, shape: tuple[int, ...]) -> Native:
    """Return the network as the kernels compute it, once compared with what PyTorch computes."""
    layers, instructions = read(net, shape), instruction_set()
    if instructions is None:
        raise Outside(f"{NOT_BUILT} ({HOW_TO_BUILD[0].lower()}{HOW_TO_BUILD[1:]})")
    native = Native(layers, net.trainable, instructions)
    with torch.random.fork_rng(devices=[]):
        _compare(net, native, shape)
    return native


def _compare(net: Net, native: Native, shape: tuple[int, ...]) -> None:
    """Refuse a network whose outputs or gradient come out differently: what was read is not what it does."""
    random, module, was_training = torch.Generator().manual_seed(0), net.module, net.module.training
    classes = native.layers[-1].outputs
    x, y = torch.randn(3, *shape, generator=random), torch.randint(classes, (3,), generator=random)
    model = net.read()
    module.train()
    with torch.enable_grad():
        outputs = module(x.clone())
        if tuple(outputs.shape) != (3, classes):
            raise Outside(f"it gives {tuple(outputs.shape)} for three samples")
        net.gradient.zero_()
        cross_entropy(outputs, y).backward()  # type: ignore[no-untyped-call]  # PyTorch leaves backward without types
    gradient = net.gradient.clone()
    net.gradient.zero_()
    with torch.inference_mode():
        evaluated = module.eval()(x.clone())
    module.train(was_training)
    logits = torch.from_numpy(native.forward(model, x.numpy()))
    ours = torch.from_numpy(native.gradient(model, x.numpy(), y.numpy()))
    if not (_close(logits, outputs.detach()) and _close(logits, evaluated) and _close(ours, gradient)):
        raise Outside("its outputs or gradients are not those of the layers that were read")


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= 1e-3 * other.abs().max() + 1e-6)


def _of_the_family(net: Net, shape: tuple[int, ...]) -> bool:
    try:
        return not is_large(read(net, shape))
    except Outside:
        return False


@cache
def _warn_once() -> None:
    warnings.warn(
        f"{NOT_BUILT}; PyTorch is used, which is several times slower. {HOW_TO_BUILD}.", IlkWarning, stacklevel=3
    )
