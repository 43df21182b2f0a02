"""The plain tables that the charts are drawn from."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ilk.report import flows, numbers
from ilk.report.reading import read_all


@pytest.fixture
def readings(plant, tmp_path):
    """PACFL with two seeds, accuracies 0.6 and 0.8 at the end, and solo with one."""
    return read_all(
        [
            plant(tmp_path / "a", "pacfl", [0.6, 0.6], seed=0, rounds=2, megabytes=4),
            plant(tmp_path / "b", "pacfl", [0.8, 0.8], seed=1, rounds=2, megabytes=6),
            plant(tmp_path / "s", "solo", [0.5, 0.5], seed=0, rounds=2, megabytes=0, options={}),
        ]
    )[0]


def test_learning_is_mean_and_deviation_over_seeds(readings):
    last = [row for row in numbers.learning(readings) if row["series"] == "pacfl"][-1]
    assert last["accuracy"] == pytest.approx(70)
    assert last["high"] - last["accuracy"] == pytest.approx(np.std([60, 80], ddof=1))
    assert (last["round"], last["megabytes"], last["seeds"]) == (2, 5.0, 2)


def test_targets(readings):
    rows = {(row["series"], row["target"]): row for row in numbers.targets(numbers.learning(readings))}
    assert rows["pacfl", 70.0]["round"] == 2
    assert rows["pacfl", 70.0]["megabytes"] == 5.0
    assert rows["pacfl", 50.0]["round"] == 1  # 0.75 of 60 and 80 on average
    assert rows["solo", 70.0]["round"] is None
    assert numbers.targets([]) == []


def test_traffic_by_kind(plant, tmp_path):
    folder = plant(tmp_path / "r")
    kinds = ["model", "models", "peer_models", "signature", "noise", "histogram", "control", "chosen", "of-a-plugin"]
    lines = [{"round": 1, "direction": "up", "kind": kind, "clients": [0, 1], "bytes_each": 500_000} for kind in kinds]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = {row["kind"]: row["megabytes"] for row in numbers.traffic(read_all([folder])[0])}
    assert rows == {"models": 3.0, "signatures": 2.0, "histograms": 1.0, "control": 3.0}


def test_phases_add_up(plant, tmp_path):
    folder = plant(tmp_path / "r", rounds=2, reported=lambda round: {"start_seconds": 0.05} if round == 1 else {})
    rows = {row["phase"]: row["seconds"] for row in numbers.phases(read_all([folder])[0])}
    assert rows == pytest.approx({"beginning": 0.05, "rounds": 0.8, "measuring": 0.15})


def test_measured_thresholds(plant, tmp_path):
    folders = [
        plant(tmp_path / f"t{t}", options={"threshold": t}, accuracy=[a, a], cluster=[0, 0])
        for t, a in ((0.5, 0.8), (0.1, 0.7), ("split-half", 0.9))
    ]
    rows = numbers.measured_thresholds(read_all(folders)[0], "pacfl")
    assert [(row["threshold"], round(row["accuracy"])) for row in rows] == [(0.1, 70), (0.5, 80)]


def test_a_choice_is_of_all_groups():
    drawn = numbers.choice(1000, 500)
    assert len(set(drawn)) == 500
    assert {k % 12 for k in drawn} == set(range(12))
    assert numbers.choice(3, 5) == [0, 1, 2]


def test_flow(plant, tmp_path):
    rows = [
        {"round": r, "accuracy": 0.5, "accuracy_worst": 0.5, "clusters": 2, "bytes_up": 0, "bytes_down": 0, "seconds": 1,
         "accuracy_by_client": [0.5] * 4, "cluster_by_client": cluster}
        for r, cluster in enumerate([[0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0], [0, 0, 1, 1]], 1)
    ]  # fmt: skip
    reading = read_all([plant(tmp_path / "r", accuracy=[0.5] * 4, history=rows)])[0][0]
    at = flows.memberships(reading)
    assert at[4].tolist() == [0, 0, 1, 1]
    assert at[2].tolist() == at[3].tolist()  # the same clusters under other numbers
    assert flows.changes(at) == {2: int((at[1] != at[2]).sum()), 3: 0, 4: 1}
    bands, columns, _ = flows.flow_tables(at)
    for x in {row["x"] for row in columns}:
        assert sum(row["clients"] for row in columns if row["x"] == x) == 4
    for x in range(len({row["x"] for row in columns}) - 1):
        between = {row["band"]: row["clients"] for row in bands if row["band"].startswith(f"{x}/")}
        assert sum(between.values()) == 4  # nobody is lost on the way
