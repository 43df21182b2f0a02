"""The history queried like a table."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

import ilk
from ilk import History
from ilk.errors import IlkError
from ilk.methods import make_method


@pytest.fixture
def history():
    rows = [{"round": r, "bytes_up": 10 * r} | ({"accuracy": r / 10} if r % 2 == 0 else {}) for r in range(1, 6)]
    return History(rows)


def test_rows(history):
    assert len(history) == 5
    assert history[0] == {"round": 1, "bytes_up": 10}
    assert history[-1]["round"] == 5
    assert [row["round"] for row in history] == [1, 2, 3, 4, 5]
    assert [row["round"] for row in reversed(history)] == [5, 4, 3, 2, 1]
    with pytest.raises(IndexError):
        history[5]


def test_columns(history):
    assert history.columns == ["round", "bytes_up", "accuracy"]
    assert history["bytes_up"] == [10, 20, 30, 40, 50]
    assert history["accuracy"] == [None, 0.2, None, 0.4, None]
    with pytest.raises(IlkError, match=r"no column 'acuracy'. Did you mean 'accuracy'"):
        history["acuracy"]


def test_parts(history):
    part = history[1:3]
    assert isinstance(part, History)
    assert part["round"] == [2, 3]
    assert history[-2:, "round"] == [4, 5]
    assert history[1, "accuracy"] == 0.2
    assert history[-1, ("round", "bytes_up")] == {"round": 5, "bytes_up": 50}
    assert history[1::2, ("round", "accuracy")] == [{"round": 2, "accuracy": 0.2}, {"round": 4, "accuracy": 0.4}]


def test_a_part_where_some_rows_were_not_evaluated(history):
    part = history[:2, ("round", "accuracy")]
    assert part == [{"round": 1, "accuracy": None}, {"round": 2, "accuracy": 0.2}]


def test_a_history_does_not_share_its_list():
    rows = [{"round": 1}]
    history = History(rows)
    rows.append({"round": 2})
    assert len(history) == 1
    assert list(History()) == []
    assert History().columns == []


def test_to_pandas(history):
    frame = history.to_pandas()
    assert list(frame.columns) == history.columns
    assert frame["round"].tolist() == [1, 2, 3, 4, 5]
    assert frame["accuracy"].isna().tolist() == [True, False, True, False, True]


def test_to_pandas_without_pandas(history, monkeypatch):
    load = builtins.__import__

    def without(name, *args, **more):
        if name == "pandas":
            raise ImportError(name)
        return load(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(IlkError, match=r"pip install 'ilk\[pandas\]'"):
        history.to_pandas()


def test_the_history_of_a_run(blobs):
    run = ilk.run(
        make_method("fedavg", {"local": {"epochs": 1}}), blobs, rounds=5, cohort=2, eval_every=2, engine="inline"
    )
    assert run.history["round"] == [1, 2, 3, 4, 5]
    assert run.history["cohort"] == [2] * 5
    assert [row["round"] for row in run.history if "accuracy" in row] == [2, 4, 5]
    last = run.history[-1]
    scores = np.array(last["accuracy_by_client"])
    assert run.accuracy == last["accuracy"] == scores.mean()
    assert last["accuracy_std"] == scores.std()
    assert last["accuracy_worst"] == scores.min()
    assert last["accuracy_p10"] == np.percentile(scores, 10)
    assert last["protocol"] == "served"
    assert run.accuracy_by_client == dict(zip(blobs.ids, scores, strict=True))
    assert (last["clusters"], last["ari"]) == (1, 1.0)
    assert len(run.history.to_pandas()) == 5


def test_clusters_and_true_groups(make_federation):
    federation = make_federation(groups=2)
    run = ilk.run(make_method("solo", {"local": {"epochs": 1}}), federation, rounds=1, engine="inline")
    assert run.clusters == [[name] for name in federation.ids]
    assert run.true_groups == [
        ["client-0", "client-2", "client-4"],
        ["client-1", "client-3", "client-5"],
    ]
    assert run.last["clusters"] == 6
    assert run.last["ari"] == 0.0


def test_a_run_without_a_round_has_no_accuracy():
    with pytest.raises(IlkError, match="no finished round"):
        _ = ilk.Run({}).accuracy
