"""Planted runs: folders as a run leaves them, with numbers that a test has chosen, made in no time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy


def planted(
    folder,
    method="pacfl",
    accuracy=(0.9, 0.8),
    cluster=None,
    ids=None,
    seed=0,
    rounds=3,
    megabytes=1.0,
    options=None,
    history=None,
    distance=None,
    plain=None,
    groups=None,
    labels=None,
    config=None,
    reported=lambda round: {},
):
    """Write a finished run whose clients end with these accuracies, in these clusters; return its folder."""
    clients = len(accuracy)
    ids = ids or [f"c{k:02}" for k in range(clients)]
    cluster = list(range(clients)) if cluster is None else np.asarray(cluster).tolist()
    config = {
        "method": method,
        "options": {"threshold": "split-half", "linkage": "upgma"} if options is None else options,
        **{"data": "digits", "split": "rotate:4", "clients": clients, "test_policy": "own", "protocol": "served"},
        **{"seed": seed, "split_seed": seed, "rounds": rounds, "federation": f"f{seed}", "cohort": 1.0},
        **{"eval_every": 1, "model": "mlp"},
        **(config or {}),
    }
    federation = {"ids": ids, "sizes": [30] * clients, "groups": groups, "origin": {"digits": "scikit-learn"}}
    record = {"config": config, "engine": "inline", "federation": federation, "versions": {"ilk": "0"}, "asked": {}}
    record |= {"machine": {"system": "here", "cores": 2}, "command": ["/bin/ilk", "run", method], "begun": "2026-01-01"}
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(record))
    rows = []
    for round in range(1, rounds + 1):
        values = np.asarray(accuracy, dtype=float) * (0.5 + 0.5 * round / rounds)
        moved = megabytes * 1e6 * round / rounds / 2
        row = {"round": round, "accuracy": float(np.nanmean(values)), "accuracy_worst": float(np.nanmin(values))}
        row |= {"clusters": len(set(cluster)), "ari": None if groups is None else 1.0, "protocol": "served"}
        row |= {"accuracy_by_client": values.tolist(), "cluster_by_client": cluster, "bytes_up": moved}
        row |= {"bytes_down": moved, "round_seconds": 0.4, "seconds": 0.5, **reported(round)}
        rows.append(row)
    rows = history if history is not None else rows
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {"round": 1, "direction": "up", "kind": "model", "clients": [0], "bytes_each": int(megabytes * 1e6)}
    (folder / "ledger.jsonl").write_text(json.dumps(entry) + "\n" if megabytes else "")
    counts = [[10, 10, 10]] * clients if labels is None else labels
    (folder / "labels.json").write_text(json.dumps({"train": counts}))
    arrays = {"state/models": np.zeros((1, 2), np.float32)}
    if distance is not None:
        arrays["state/distance"] = np.asarray(distance, dtype=np.float64)
    head = {"ilk": json.dumps({"round": rounds, "plain": plain or {}})}
    (folder / "checkpoint.safetensors").write_bytes(safetensors.numpy.save(arrays, head))
    (folder / "partition.json").write_text("{}")
    (folder / "result.json").write_text("{}")
    return folder


def blocks(cluster, near=0.5, far=3.0):
    """Distances that are small within clusters and large between them, with a little of everyone's own."""
    cluster = np.asarray(cluster)
    own = np.abs(np.subtract.outer(np.arange(len(cluster)), np.arange(len(cluster)))) / (10 * len(cluster))
    distance = np.where(cluster[:, None] == cluster, near, far) + own
    np.fill_diagonal(distance, 0.0)
    return distance


def comparison(below, clients=40, groups=4, seeds=(0,)):
    """Write solo, FedAvg and PACFL on clients in groups; return the folders."""
    random, cluster = np.random.default_rng(5), np.arange(clients) % groups
    folders = []
    for seed in seeds:
        alone = random.uniform(0.7, 0.9, clients)
        together = np.clip(alone + random.normal(0.06, 0.05, clients), 0, 1)
        labels = random.integers(1, 20, (clients, 10)).tolist()
        common = {"seed": seed, "groups": cluster.tolist(), "labels": labels}
        solo = planted(below / f"solo-seed{seed}", "solo", alone, megabytes=0, options={}, **common)
        zeros = np.zeros(clients, int)
        fedavg = planted(below / f"fedavg-seed{seed}", "fedavg", alone - 0.03, zeros, megabytes=8, options={}, **common)
        pacfl = planted(
            below / f"pacfl-seed{seed}", "pacfl", together, cluster, megabytes=8.2, distance=blocks(cluster), **common
        )
        folders += [solo, fedavg, pacfl]
    return folders


@pytest.fixture(scope="session")
def plant():
    return planted


@pytest.fixture(scope="session")
def compare():
    return comparison


@pytest.fixture(scope="session")
def in_blocks():
    return blocks
