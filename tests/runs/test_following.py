"""A run is followed by what its folder says, line by whole line."""

from __future__ import annotations

import json

import pytest

from ilk.errors import IlkError
from ilk.runs.folder import RunFolder, worked_on
from ilk.runs.following import follow, sparkline


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.json").write_text(json.dumps({"config": {"method": "pacfl", "rounds": 10}}))
    return tmp_path / "r"


def line(round):
    row = {"round": round, "accuracy": round / 10, "clusters": 2, "bytes_up": 5e5, "bytes_down": 5e5, "seconds": 2.0}
    return json.dumps(row) + "\n"


def test_as_it_grows(folder):
    (one,) = follow(folder)
    assert not one.look()
    assert (one.played, one.rounds, one.seconds_left) == (0, 10, None)
    history = folder / "history.jsonl"
    history.write_text(line(1) + line(2)[:7])
    assert one.look()
    assert (one.played, one.megabytes, one.seconds_left) == (1, 1.0, 18.0)
    history.write_text(line(1) + line(2))
    assert one.look()
    assert one.accuracies == [0.1, 0.2]
    assert not one.look()
    history.write_text(line(1))  # cut off by whoever resumed it
    assert one.look()
    assert one.played == 1
    (folder / "result.json").write_text("{}")
    assert one.look()
    assert one.finished


def test_whether_somebody_works_on_it(folder):
    assert not worked_on(folder)
    held = RunFolder(folder)
    assert worked_on(folder)
    with pytest.raises(IlkError, match="another process is working"):
        RunFolder(folder)
    held.close()
    assert not worked_on(folder)
    assert not worked_on(folder / "nowhere")


def test_looking_never_keeps_a_run_from_beginning(folder):
    import fcntl
    import threading

    looking = (folder / "run.json").open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.1, looking.close).start()
    RunFolder(folder).close()


def test_a_comparison(tmp_path):
    (tmp_path / "experiment.json").write_text(json.dumps({"methods": ["solo", "pacfl"], "seeds": [0, 1]}))
    assert [one.name for one in follow(tmp_path)] == ["solo seed 0", "pacfl seed 0", "solo seed 1", "pacfl seed 1"]
    assert not follow(tmp_path)[0].look()


def test_nothing_there(tmp_path):
    with pytest.raises(IlkError, match=r"no run in .*run\.json"):
        follow(tmp_path)


def test_a_damaged_history(folder):
    (folder / "history.jsonl").write_text("garbage\n")
    with pytest.raises(IlkError, match="is damaged"):
        follow(folder)[0].look()


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0.5], "▁"), ([0, 1], "▁█"), ([0.0, 0.5, 1.0], "▁▄█"), ([1, 0], "█▁"), ([2, 2, 2], "▁▁▁")],
)
def test_sparkline(values, drawn):
    assert sparkline(values) == drawn


def test_a_long_sparkline_ends_with_the_last_value():
    drawn = sparkline([k / 1000 for k in range(1000)], width=24)
    assert len(drawn) <= 24
    assert drawn[-1] == "█"
    assert list(drawn) == sorted(drawn)
