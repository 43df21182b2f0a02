"""Local training: plain SGD with momentum, on one flat vector.

Everything that methods add to a client's optimiser is a term of the gradient g of the batch loss, or a drift beside it::

    g <- g + weight_decay theta + proximal (theta - theta_received) + shift
    v <- momentum v + g
    theta <- theta - lr (v + drift)

The momentum v starts at zero each round; samples are shuffled each epoch and the last, smaller batch is used.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from ilk.checked import options
from ilk.client import Client
from ilk.errors import IlkError
from ilk.params import Vector


@options
class LocalSGD:
    """How a client trains when it is asked to. The defaults are those of the PACFL and FLIS experiments."""

    epochs: Annotated[int, Field(ge=1)] = 10
    """How often a client goes through its samples in a round."""
    batch_size: Annotated[int, Field(ge=1)] = 10
    """Samples a step."""
    lr: Annotated[float, Field(gt=0, le=1e30)] = 0.01
    """Learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Momentum, which starts at zero in each round."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Pull of the weights towards zero."""

    def train(
        self,
        client: Client,
        start: Vector,
        proximal: float = 0.0,
        shift: Vector | None = None,
        drift: Vector | None = None,
    ) -> Vector:
        """Train from `start` on the client's own samples and return the model reached."""
        x, y = client.data("train")
        order = client.stream("batches")
        net = client.net
        if net.native:
            shuffled = np.stack([order.permutation(len(y)) for _ in range(self.epochs)])
            model, finite = net.native.fit(
                start,
                x.numpy(),
                y.numpy(),
                shuffled,
                batch=self.batch_size,
                lr=self.lr,
                momentum=self.momentum,
                decay=self.weight_decay,
                proximal=proximal,
                shift=shift,
                drift=drift,
            )
            if not finite:
                raise self.diverged(client)
            return model
        client.seed_torch("fit")
        net.load(start)
        net.module.train()
        theta, gradient = net.weights, net.gradient
        received = theta.clone() if proximal else theta
        push, pull = (None if term is None else torch.tensor(term) for term in (shift, drift))
        velocity = torch.zeros_like(theta)
        for _ in range(self.epochs):
            mixed = torch.from_numpy(order.permutation(len(y)))
            total = torch.zeros(())
            for inputs, labels in zip(
                torch.split(x[mixed], self.batch_size), torch.split(y[mixed], self.batch_size), strict=True
            ):
                gradient.zero_()
                loss = cross_entropy(net.module(inputs), labels)
                loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves backward without types
                total += loss.detach()
                with torch.no_grad():
                    if self.weight_decay:
                        gradient.add_(theta, alpha=self.weight_decay)
                    if proximal:
                        gradient.add_(theta - received, alpha=proximal)
                    if push is not None:
                        gradient.add_(push)
                    velocity.mul_(self.momentum).add_(gradient)
                    theta.add_(velocity, alpha=-self.lr)
                    if pull is not None:
                        theta.add_(pull, alpha=-self.lr)
            self.check(client, total)
        return net.read()

    def steps(self, samples: int) -> int:
        """How many SGD steps one fit takes on this many samples."""
        return self.epochs * int(np.ceil(samples / self.batch_size))

    def reach(self, samples: int) -> float:
        """How many learning rates far a constant gradient of 1 would carry the model in one fit.

        With momentum rho and tau steps  a = [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho);  without momentum a = tau.
        """
        tau, rho = self.steps(samples), self.momentum
        return (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)

    def check(self, client: Client, loss: Tensor) -> None:
        """Stop a training whose loss or model is no longer a finite number."""
        ends = torch.stack(client.net.vector.aminmax())  # NaN if any entry is; nothing as large as the model is made
        if not (torch.isfinite(loss) and torch.isfinite(ends).all()):
            raise self.diverged(client)

    def diverged(self, client: Client) -> IlkError:
        """The error for such a training."""
        return IlkError(
            f"Round {client.round}: the training of client '{client.id}' diverged (its loss or its model is no "
            f"longer a finite number; learning rate {self.lr}, momentum {self.momentum}). Use a smaller --lr, and "
            "look whether this client's inputs are scaled like everybody else's."
        )
