"""Trackers: the real libraries write to a local folder; one that fails harms nothing."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, entry_points
from types import SimpleNamespace

import pytest

import ilk
from ilk.errors import IlkError
from ilk.trackers import tracker_class, tracking


def play(blobs, folder, names, rounds=3, **more):
    method = ilk.FedAvg(local=ilk.LocalSGD(epochs=1, batch_size=50))
    with tracking(names) as track:
        return ilk.run(method, blobs, rounds=rounds, engine="inline", out=folder, on_round=track(folder), **more)


class Noting:
    """A tracker that notes what it is told."""

    told: list = []  # noqa: RUF012  # of all instances

    def begin(self, folder, name, config):
        self.told.append(("begin", folder.name, name, config["method"]))

    def round(self, number, values):
        self.told.append(("round", number, sorted(values)))

    def end(self, finished):
        self.told.append(("end", finished))


class Failing(Noting):
    """A tracker whose second round fails."""

    def round(self, number, values):
        if number == 2:
            raise OSError("the server is gone")


@pytest.fixture(autouse=True)
def others(monkeypatch):
    """Trackers of another package."""
    Noting.told = []
    theirs = [EntryPoint(name, f"{name}:x", "ilk.trackers") for name in ("noting", "failing", "absent")]
    load = {"noting": lambda: Noting, "failing": lambda: Failing}
    found = [SimpleNamespace(name=entry.name, load=load.get(entry.name, entry.load)) for entry in theirs]
    monkeypatch.setattr("ilk.trackers.entry_points", lambda group: [*entry_points(group=group), *found])


def test_what_a_tracker_is_told(blobs, tmp_path):
    play(blobs, tmp_path / "r", ["noting"], rounds=2)
    assert Noting.told[0][:3] == ("begin", "r", "fedavg seed 0")
    assert [told[:2] for told in Noting.told[1:]] == [("round", 1), ("round", 2), ("end", True)]
    assert {"accuracy", "accuracy_worst", "clusters", "bytes_up", "seconds"} <= set(Noting.told[1][2])
    assert "round" not in Noting.told[1][2]


def test_a_run_that_is_finished_is_not_told_again(blobs, tmp_path):
    play(blobs, tmp_path / "r", [])
    play(blobs, tmp_path / "r", ["noting"], resume=True)
    assert Noting.told == []


def test_one_that_fails_is_left_alone_and_the_run_is_the_same(blobs, tmp_path, capsys):
    digest = play(blobs, tmp_path / "a", ["failing", "noting"]).model_digest
    assert digest == play(blobs, tmp_path / "b", []).model_digest
    said = capsys.readouterr().err
    assert said.count("the tracker failing failed (OSError: the server is gone); the run goes on without it") == 1
    assert ("end", True) in Noting.told


def test_names(capsys):
    with pytest.raises(IlkError, match=r"There is no tracker 'tensorbord'\. Did you mean 'tensorboard'"):
        tracker_class("tensorbord")
    with pytest.raises(IlkError, match=r"pip install 'ilk\[absent\]'"):
        tracker_class("absent")


def test_tensorboard(blobs, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = play(blobs, tmp_path / "r", ["tensorboard"])
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    points = events.Scalars("ilk/accuracy")
    assert [point.step for point in points] == [1, 2, 3]
    assert [point.value for point in points] == pytest.approx(run.history["accuracy"])
    assert b"fedavg" in events.Tensors("configuration/text_summary")[0].tensor_proto.string_val[0]


def test_tensorboard_after_an_interruption(blobs, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    method = ilk.FedAvg(local=ilk.LocalSGD(epochs=1, batch_size=50))
    with tracking(["tensorboard"]) as track:
        told = track(tmp_path / "r")
        plan = {"rounds": 3, "engine": "inline", "out": tmp_path / "r"}
        with pytest.raises(IlkError, match="Stopped after round"):
            ilk.run(method, blobs, on_round=lambda row: (told(row), stop(row)), **plan)
    play(blobs, tmp_path / "r", ["tensorboard"], resume=True)
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    assert [point.step for point in events.Scalars("ilk/accuracy")][-3:] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore")  # MLflow's own libraries warn of each other
def test_mlflow(blobs, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    from mlflow import MlflowClient

    run = play(blobs, tmp_path / "r", ["mlflow"])
    client = MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("ilk").experiment_id])
    assert (found.info.run_name, found.info.status) == ("fedavg seed 0", "FINISHED")
    assert found.data.params["method"] == "fedavg"
    assert found.data.tags["ilk.folder"] == str(tmp_path / "r")
    steps = client.get_metric_history(found.info.run_id, "accuracy")
    assert [step.value for step in steps] == run.history["accuracy"]
    assert found.data.metrics["bytes_up"] == json.loads((tmp_path / "r" / "result.json").read_text())["bytes_up"]
