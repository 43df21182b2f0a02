"""`ilk runs`: a table for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest


@pytest.fixture
def played(fast):
    fast("run", "solo", "--out", "runs/a")
    fast("run", "pacfl", "--set", "threshold=0.3", "--out", "runs/b/c")


def test_for_people(played, ilk):
    shown = ilk("runs").out
    assert "solo" in shown
    assert "runs/b/c" in shown
    assert "2 runs below runs" in shown


def test_filtered_and_sorted(played, ilk):
    rows = ilk("runs", "runs", "--sort", "accuracy", "--json").json["runs"]
    assert rows[0]["accuracy"] >= rows[1]["accuracy"]
    turned = ilk("runs", "--sort", "mb", "--reverse", "--json").json["runs"]
    assert [row["method"] for row in turned] == ["solo", "pacfl"]
    only = ilk("runs", "--where", "method=pacfl", "--where", "threshold=0.3", "--json").json["runs"]
    assert [row["run"] for row in only] == ["runs/b/c"]
    assert "1 of 2 runs" in ilk("runs", "--where", "method=pacfl").out


def test_csv(played, ilk):
    rows = list(csv.DictReader(io.StringIO(ilk("runs", "--csv").out)))
    assert [row["method"] for row in rows] == ["solo", "pacfl"]
    assert rows[1]["options.threshold"] == "0.3"
    assert float(rows[0]["accuracy"]) > 0


def test_none(ilk):
    Path("runs").mkdir()
    assert "No run below runs." in ilk("runs").out
    assert ilk("runs", "--where", "method=x", "--json").json == {"runs": []}
    assert "There is no folder nowhere" in ilk("runs", "nowhere").err
    assert "give one" in ilk("runs", "--csv", "--json").err


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_any_width(played, ilk, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "pacfl" in ilk("runs").out
