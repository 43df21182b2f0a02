"""`--track` on the command line."""

from __future__ import annotations

from pathlib import Path


def test_tensorboard_of_a_comparison(fast):
    assert fast("compare", "solo", "fedavg", "--out", "r", "--track", "tensorboard").code == 0
    for run in ("solo-seed0", "fedavg-seed0"):
        assert len(list(Path("r", run, "tensorboard").iterdir())) == 1


def test_in_a_file(fast):
    Path("c.toml").write_text('track = "tensorboard"\n')
    assert fast("run", "solo", "--config", "c.toml", "--out", "r").code == 0
    assert Path("r/tensorboard").is_dir()


def test_a_name_that_there_is_not(fast):
    ended = fast("run", "solo", "--out", "r", "--track", "tensorflow")
    assert ended.code == 2
    assert "There is no tracker 'tensorflow'" in ended.err
    assert not Path("r").exists()
