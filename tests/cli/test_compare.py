"""`ilk compare`: several methods, several seeds, one federation a seed."""

from __future__ import annotations

import json
from pathlib import Path

from ilk.methods import registry


def test_json(fast):
    ended = fast("compare", *registry(), "--json", "--out", "r")
    assert list(ended.json) == ["runs"]
    assert [run["method"] for run in ended.json["runs"]] == [*registry()]
    assert [run["run"] for run in ended.json["runs"]] == [f"r/{name}-seed0" for name in registry()]
    assert all(Path(run["run"], "result.json").exists() for run in ended.json["runs"])
    assert len({json.dumps(run["true_groups"]) for run in ended.json["runs"]}) == 1


def test_json_of_one_method_is_a_list_too(fast):
    assert len(fast("compare", "solo", "--json").json["runs"]) == 1


def test_each_run_is_what_it_is_alone(fast):
    both = {run["method"]: run for run in fast("compare", "solo", "fedavg", "--json").json["runs"]}
    for method, run in both.items():
        assert fast("run", method, "--json").json["model_digest"] == run["model_digest"]


def test_seeds(fast):
    runs = fast("compare", "solo", "fedavg", "--seeds", "3,5", "--json").json["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [
        *(("solo", 3), ("fedavg", 3), ("solo", 5), ("fedavg", 5)),
    ]
    assert len({run["model_digest"] for run in runs}) == 4


def test_mean_over_seeds_stands_in_the_table(fast):
    shown = fast("compare", "solo", "fedavg", "--seeds", "0,1", "--out", "r").out
    rows = [json.loads(path.read_text()) for path in sorted(Path("r").glob("fedavg-seed*/result.json"))]
    (line,) = (line for line in shown.splitlines() if "fedavg mean" in line)
    assert f"{50 * sum(row['accuracy'] for row in rows):.1f} %" in line


def test_an_option_goes_to_the_methods_that_have_it(fast):
    runs = fast("compare", "solo", "flis-dc", "pacfl", "--set", "threshold=0.25", "--json").json["runs"]
    assert [run["options"].get("threshold") for run in runs] == [None, 0.25, 0.25]


def test_an_option_of_one_method(fast):
    runs = fast("compare", "fedavg", "solo", "--set", "fedavg.local.lr=0.5", "--json").json["runs"]
    assert [run["options"]["local"]["lr"] for run in runs] == [0.5, 0.01]


def test_methods_in_config(ilk):
    Path("c.toml").write_text(
        'methods = ["solo", "fedavg"]\nseeds = [0, 1]\nclients = 4\nrounds = 1\nepochs = 1\nengine = "inline"\n'
    )
    runs = ilk("compare", "--config", "c.toml", "--json").json["runs"]
    assert [run["method"] for run in runs] == ["solo", "fedavg", "solo", "fedavg"]


def test_who_is_with_whom(fast):
    shown = fast("compare", "fedavg", "pacfl", "--clients", "8", "--set", "clusters=4").out
    assert "pacfl (seed 0): 4 clusters: exactly the 4 true groups" in shown
    assert "1: c00 c04" in shown
    assert "fedavg (seed 0)" not in shown  # one cluster needs no list


def test_resume_of_a_finished_comparison(fast, ilk):
    first = fast("compare", "solo", "fedavg", "--out", "r", "--json").json
    assert ilk("compare", "--resume", "r", "--engine", "inline", "--json").json == first


def test_a_run_that_was_lost_is_played_again(fast, ilk):
    first = fast("compare", "solo", "fedavg", "--out", "r", "--json").json
    for path in Path("r/fedavg-seed0").iterdir():
        path.unlink()
    Path("r/fedavg-seed0").rmdir()
    second = ilk("compare", "--resume", "r", "--engine", "inline", "--json").json
    assert [run["model_digest"] for run in second["runs"]] == [run["model_digest"] for run in first["runs"]]
