"""The answer's sentences on planted histories: who gains, who loses, what was found, what it cost."""

from __future__ import annotations

import pytest

from ilk.report.answer import answer, protocol_in_plain_words
from ilk.report.numbers import summaries
from ilk.report.reading import read_all


@pytest.fixture
def said(plant, tmp_path):
    """The sentences on solo with these accuracies and PACFL with those, and others if given."""

    def say(alone, together, cluster=None, **others):
        folders = [plant(tmp_path / "p", "pacfl", together, cluster, megabytes=3.0)]
        if alone is not None:
            folders.append(plant(tmp_path / "s", "solo", alone, megabytes=0, options={}))
        for name, values in others.items():
            folders.append(plant(tmp_path / name, name, values, [0] * len(values), megabytes=2.0, options={}))
        return answer(summaries(read_all(folders)[0]))

    return say


def test_some_losers(said):
    alone = [0.80, 0.80, 0.80, 0.80, 0.90]
    first, second, third = said(alone, [0.90, 0.86, 0.80, 0.78, 0.85], [0, 0, 1, 1, 1], fedavg=[0.7] * 5)
    assert (
        first
        == "pacfl finds 2 clusters and reaches 83.8 % on average over clients; training alone 82.0 %, fedavg 70.0 %."
    )
    assert second == (
        "2 of 5 clients do better than alone, by 8.0 points on average; 1 does the same; "
        "2 do worse, by 3.5 points on average: c04, c03. Over all clients that is +1.8 points."
    )
    assert third == "pacfl moved 3.0 MB between server and clients, 1.5 times the bytes of fedavg."


def test_gain_for_all(said):
    _, second, third = said([0.5, 0.6, 0.7], [0.6, 0.7, 0.8], [0, 0, 1])
    assert second == "All 3 clients do better than alone, by 10.0 points on average."
    assert third == "pacfl moved 3.0 MB between server and clients."


def test_no_gain(said):
    assert said([0.5, 0.6], [0.5, 0.6], [0, 0])[1] == (
        "Nobody gains and nobody loses: all 2 clients do exactly as well as alone."
    )


def test_only_losses(said):
    assert said([0.5, 0.6], [0.4, 0.6], [0, 0])[1] == (
        "Nobody does better than alone; 1 does the same; 1 does worse, by 10.0 points: c00. "
        "Over all clients that is -5.0 points."
    )


def test_many_losers_are_not_all_named(said):
    assert "8 do worse, by 10.0 points on average: c00, c01, c02, c03, c04 and 3 more." in said([0.5] * 8, [0.4] * 8)[1]


def test_one_cluster(said):
    assert said([0.5, 0.6], [0.6, 0.7], [0, 0])[0].startswith(
        "pacfl finds one cluster of all clients and reaches 65.0 %"
    )


def test_every_client_alone(said):
    first = said([0.5, 0.6], [0.5, 0.6], [0, 1])[0]
    assert "no two clients that belong together (every client is a cluster of its own)" in first


def test_nobody_trained_alone(said):
    second = said(None, [0.5, 0.6], [0, 0])[1]
    assert second.startswith("Who gains cannot be said")
    assert "ilk compare solo pacfl --data digits --split rotate:4" in second


def test_alone_only(plant, tmp_path):
    found = summaries(read_all([plant(tmp_path / "s", "solo", [0.5, 0.7], megabytes=0, options={})])[0])
    assert answer(found) == ["Alone, clients reach 60.0 % on average."]


def test_alone_on_other_data_is_not_compared_with(plant, tmp_path):
    folders = [
        plant(tmp_path / "p", "pacfl", [0.9, 0.9]),
        plant(tmp_path / "s", "solo", [0.5, 0.5], options={}, config={"federation": "other"}),
    ]
    assert answer(summaries(read_all(folders)[0]))[1].startswith("Who gains cannot be said")


def test_several_seeds(plant, tmp_path):
    folders = []
    for seed, together, cluster in ((0, [0.7, 0.7, 0.4], [0, 0, 1]), (1, [0.8, 0.8, 0.8], [0, 0, 0])):
        folders.append(plant(tmp_path / f"p{seed}", "pacfl", together, cluster, seed=seed))
        folders.append(plant(tmp_path / f"s{seed}", "solo", [0.5] * 3, seed=seed, options={}))
    first, second, _ = answer(summaries(read_all(folders)[0]))
    assert first == (
        "pacfl finds 1 to 2 clusters, depending on the seed, and reaches 70.0 % on average over clients, "
        "mean over 2 seeds; training alone 50.0 %."
    )
    assert second.startswith(
        "2 of 3 clients do better than alone, by 20.0 points on average (seed 0; over 2 seeds 2 to 3 better)"
    )


def test_planted_groups(plant, tmp_path):
    found = plant(tmp_path / "p", "pacfl", [0.5] * 4, [0, 0, 1, 1], groups=[0, 0, 1, 1])
    assert "2 clusters, exactly the planted groups," in answer(summaries(read_all([found])[0]))[0]


def test_nothing_measured(plant, tmp_path):
    readings, _ = read_all([plant(tmp_path / "p", history=[])])
    assert answer(summaries(readings)) == ["No run here has a measured round yet, so there is nothing to answer from."]


def test_a_client_that_could_not_be_reached_is_left_out(said):
    assert said([0.5, float("nan"), 0.5], [0.6, 0.7, 0.6], [0, 0, 1])[1].startswith("All 2 clients do better")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"protocol": "served", "test_policy": "own"}, "own class proportions"),
        ({"protocol": "global", "test_policy": "own"}, "belongs to nobody."),
        (
            {"protocol": "served", "test_policy": "own", "auxiliary": 9, "auxiliary_from": "test"},
            "A leak: the server's 9",
        ),
        (
            {"protocol": "served", "test_policy": "own", "leaks": ["clients look", "so does the server"]},
            "A leak: so does",
        ),
        ({"protocol": "of-the-future", "test_policy": "?"}, "unknown to this version"),
    ],
)
def test_the_protocol_is_named(config, words):
    assert words in protocol_in_plain_words(config)
