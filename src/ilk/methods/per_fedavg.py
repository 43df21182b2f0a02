"""Per-FedAvg: a model that one gradient step makes everybody's own (first order).

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees, NeurIPS 2020.

    client k     for each two batches b1, b2:   theta' = theta - alpha grad L(theta; b1)
                                                theta <- theta - beta grad L(theta'; b2)
    server       theta_{t+1} = sum n_k theta_k / sum n_k
    in use       every client takes one step of alpha on its own training data first

paper / released code / here
    alpha = 0.01 is the option, beta = 0.001 is the local learning rate (--lr). The PACFL code passes both gradients through
    one momentum buffer (`one_buffer=true`); here the inner step is plain and momentum is the outer one's. Its clients with a
    single batch do nothing, here too; its evaluation leaves the adapting step out, which makes a personalised method a
    global one (`adapt=false`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from ilk.checked import options
from ilk.client import Client
from ilk.method import Cohort, Message, Method, Server, State
from ilk.params import Net, Vector, average
from ilk.tasks import LocalSGD


@dataclass(frozen=True)
class FitMeta:
    """Train a model to be good after one gradient step."""

    local: LocalSGD
    alpha: float
    adapt: bool
    one_buffer: bool = False

    def begin(self, client: Client, message: Message) -> tuple[Vector, int]:
        """Return the model as the client uses it: after one step on its own training data."""
        if not self.adapt:
            return message["models"][0], 0
        net, (x, y) = client.net, client.data("train")
        net.load(message["models"][0])
        net.module.train()
        client.seed_torch("adapt")
        net.weights.sub_(gradient(net, x, y), alpha=self.alpha)
        return net.read(), 0

    def answer(self, client: Client, message: Message) -> Message:
        """Train on pairs of batches: the gradient that counts is that after a step on the first of them."""
        net, (x, y) = client.net, client.data("train")
        order = client.stream("batches")
        client.seed_torch("fit")
        net.load(message["models"][0])
        net.module.train()
        theta, velocity = net.weights, torch.zeros_like(net.weights)
        for _ in range(self.local.epochs):
            batches = torch.split(torch.from_numpy(order.permutation(len(y))), self.local.batch_size)
            for first, second in zip(batches[::2], batches[1::2], strict=False):  # an odd last batch has no partner
                before = theta.clone()
                inner = gradient(net, x[first], y[first])
                if self.one_buffer:
                    inner = velocity.mul_(self.local.momentum).add_(inner)
                theta.sub_(inner, alpha=self.alpha)
                ahead = gradient(net, x[second], y[second])
                theta.copy_(before)
                if self.local.weight_decay:
                    ahead.add_(theta, alpha=self.local.weight_decay)
                velocity.mul_(self.local.momentum).add_(ahead)
                theta.sub_(velocity, alpha=self.local.lr)
            self.local.check(client, theta.sum())
        model = net.read()
        if client.place.setting.keep_models:
            client.remember(model=model)
        return {"model": model}


def gradient(net: Net, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the mean loss where the network stands."""
    net.gradient.zero_()
    cross_entropy(net.module(x), y).backward()  # type: ignore[no-untyped-call]  # PyTorch leaves backward without types
    return net.gradient


@options
class PerFedAvg(Method[State]):
    """A model for all that one gradient step on a client's own data makes its own (first-order MAML)."""

    name: ClassVar[str] = "per-fedavg"
    paper: ClassVar[str] = "Fallah et al., NeurIPS 2020"

    local: LocalSGD = LocalSGD(lr=0.001)
    alpha: Annotated[float, Field(gt=0, le=1e30)] = 0.01
    """Learning rate of the adapting step; the training's own (beta) is --lr."""
    adapt: bool = True
    """Measure each client's model after its adapting step (false: the shared model, as the PACFL code does)."""
    one_buffer: bool = False
    """Let one momentum buffer take both gradients of a step, as the PACFL code does."""

    @property
    def training(self) -> FitMeta:
        """Train a model to be good after one gradient step."""
        return FitMeta(self.local, self.alpha, self.adapt, self.one_buffer)

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Send the model, let the cohort train it, average."""
        trained = server.ask(self.training, cohort, self.message(state))
        return State(models=average(trained.models, trained.sizes))
