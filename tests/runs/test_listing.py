"""Runs in a folder as a table: filtered, sorted, also where they are damaged."""

from __future__ import annotations

import pytest

import ilk
from ilk.errors import IlkError
from ilk.runs.listing import by, find, row_of, where

ROWS = [
    {"method": "pacfl", "accuracy": 0.9, "clusters": 4, "run": "a", "options.threshold": 0.3},
    {"method": "fedavg", "accuracy": 0.8, "clusters": 1, "run": "b"},
    {"method": "PACFL", "accuracy": None, "clusters": None, "run": "c", "options.threshold": "gap"},
]


def names(rows):
    return "".join(row["run"] for row in rows)


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        (["method=pacfl"], "ac"),
        (["method!=pacfl"], "b"),
        (["accuracy>=0.85"], "a"),
        (["accuracy<0.85"], "b"),
        (["accuracy=none"], "c"),
        (["accuracy!=none"], "ab"),
        (["clusters>1", "method=pacfl"], "a"),
        (["threshold=0.30"], "a"),
        (["options.threshold=gap"], "c"),
        (["run>=b"], "bc"),
        ([], "abc"),
    ],
)
def test_where(conditions, kept):
    assert names(where(ROWS, conditions)) == kept


@pytest.mark.parametrize(("condition", "said"), [("method", "COLUMN=VALUE"), ("metod=x", "Did you mean 'method'")])
def test_what_is_not_understood(condition, said):
    with pytest.raises(IlkError, match=said):
        where(ROWS, [condition])


def test_sort():
    assert names(by(ROWS, "accuracy")) == "abc"
    assert names(by(ROWS, "accuracy", reverse=True)) == "bac"  # what is missing stays last
    assert names(by(ROWS, "method")) == "bac"
    with pytest.raises(IlkError, match="no column"):
        by(ROWS, "beauty")


def test_rows_of_real_runs(blobs, tmp_path):
    method = ilk.FedAvg(local=ilk.LocalSGD(epochs=1, batch_size=50))
    run = ilk.run(method, blobs, rounds=2, engine="inline", out=tmp_path / "deep" / "down")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert find(tmp_path) == [tmp_path / "broken", tmp_path / "deep" / "down"]
    row = row_of(tmp_path / "deep" / "down")
    assert (row["method"], row["played"], row["rounds"], row["state"]) == ("fedavg", 2, 2, "finished")
    assert row["accuracy"] == run.accuracy
    assert row["mb"] == (run.ledger.total("up") + run.ledger.total("down")) / 1e6
    assert row["options.local.epochs"] == 1
    assert row_of(tmp_path / "broken")["state"] == "damaged"
    (tmp_path / "deep" / "down" / "result.json").unlink()
    assert row_of(tmp_path / "deep" / "down")["state"] == "unfinished"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(IlkError, match="There is no folder"):
        find(tmp_path / "nowhere")
