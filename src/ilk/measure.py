"""The scores of all clients, with each model run once on each sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ilk.client import Message
from ilk.data.federation import Federation
from ilk.engines.engine import Engine
from ilk.portions import Group, in_turns
from ilk.tasks import Evaluate
from ilk.tasks.fit import begins_as_sent
from ilk.tasks.score import score_of

Scores = dict[int, dict[str, Any]]  # of each client that answered: accuracy, f1, loss, chosen


def measured(engine: Engine, task: Evaluate, messages: Mapping[int, Message], round: int) -> Scores:
    """Put `task` to all clients, and let those that share a model share the work.

    A model that a client makes itself, by training or otherwise, is its own: such clients are asked one by one. So are all
    on an engine whose clients' data cannot be seen from here, where nothing is `visible`.
    """
    federation: Federation | None = getattr(engine, "visible", None)
    if federation is None or task.protocol == "after-local" or not begins_as_sent(task.training):
        return _ask(engine, task, messages, round)
    several = {k: m for k, m in messages.items() if len(m["models"]) > 1}
    chosen = {k: 0 for k in messages if k not in several}
    chosen |= {k: int(a["chosen"]) for k, a in _ask(engine, replace(task, part="choose"), several, round).items()}
    alone, groups = {}, []
    for sent, clients in _sharing(engine, task, messages, chosen):
        if len(clients) > 1:
            groups.append(Group({k: _tested(federation, k, task) for k in clients}, sent))
        else:
            alone[clients[0]] = sent
    scores: Scores = {}
    part = replace(task, part="outputs")
    for now in in_turns(groups, federation.classes) if groups else [[]]:
        asked = {k: {**group.sent, "samples": group.part[k]} for group in now for k in group.owned}
        came = _ask(engine, part, {**alone, **asked}, round)
        scores |= {k: came[k] for k in alone if k in came}
        for group in now:
            here = {k: came[k]["outputs"] for k in group.owned if k in came}
            for k, outputs in here.items():
                group.enter(k, outputs)
            whole = {k: found for k in here if (found := group.outputs(k)) is not None}
            scores |= {k: asdict(score_of(found, _labels(federation, k, task))) for k, found in whole.items()}
            # What a client was to test that did not answer: the others then run the model themselves.
            scores |= _ask(engine, part, {k: group.sent for k in here if k not in whole}, round)
        alone = {}
    return {k: {**score, "chosen": chosen[k]} for k, score in scores.items()}


def _ask(engine: Engine, task: Evaluate, messages: Mapping[int, Message], round: int) -> Scores:
    return {a.client: dict(a.message) for a in engine.ask(task, messages, round)} if messages else {}


def _sharing(
    engine: Engine, task: Evaluate, messages: Mapping[int, Message], chosen: Mapping[int, int]
) -> Iterator[tuple[Message, list[int]]]:
    """Yield what the clients of one model are sent, and who they are. Models are told apart by where they lie."""
    sent: dict[object, Message] = {}
    who: dict[object, list[int]] = {}
    for k, row in chosen.items():
        if task.protocol == "last-held":
            mine, key = {}, ("own", k) if "model" in engine.memories[k] else "initial"
        else:
            mine = {"models": messages[k]["models"][row : row + 1]}
            key = mine["models"].__array_interface__["data"][0]
        sent[key] = mine
        who.setdefault(key, []).append(k)
    return ((sent[key], clients) for key, clients in who.items())


def _tested(federation: Federation, client: int, task: Evaluate) -> NDArray[np.int64]:
    return np.arange(len(federation.global_labels)) if task.protocol == "global" else federation.test_numbers(client)


def _labels(federation: Federation, client: int, task: Evaluate) -> torch.Tensor:
    on_global = task.protocol == "global"
    return torch.from_numpy(federation.global_labels if on_global else federation.test_labels(client))
