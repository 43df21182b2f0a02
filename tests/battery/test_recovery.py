"""Methods that cluster find planted groups, and are better for it than one model for all.

The groups are of two kinds: inputs that differ (`rotate`), and labels that mean different things (`permute-labels`). Which
method sees which is said in docs/methods.md; what cannot be seen is asserted too.
"""

import pytest

import ilk
from ilk.methods import make_method, method_class

LOCAL = {"epochs": 3, "lr": 0.05}
CFL = {"eps1": 0.6, "eps2": 1.2, "t_min": 2}
BRIGGS = {"threshold": 0.6, "at_round": 3}
SEEN = [  # method, its options, split, seed
    ("pacfl", {}, "rotate:4", 0),
    ("cfl", CFL, "rotate:4", 0),
    ("briggs", BRIGGS, "rotate:4", 0),
    ("ocfl", {}, "rotate:4", 0),
    ("ifca", {"k": 4, "min_share": 0.15}, "rotate:4", 1),
    ("cfl", CFL, "permute-labels:4", 0),
    ("briggs", BRIGGS, "permute-labels:4", 0),
    ("ocfl", {}, "permute-labels:4", 0),
    ("flis-hc", {}, "permute-labels:4", 0),
    ("flis-hc", {"clusters": 4, "local": {"epochs": 10, "lr": 0.05}}, "rotate:4", 0),
    ("ifca", {"k": 4, "min_share": 0.15}, "permute-labels:4", 1),
    ("ifca", {"k": 2, "min_share": 0.3}, "permute-labels:2", 0),
    ("flis-dc", {}, "permute-labels:2", 0),
]


@pytest.fixture(scope="module")
def played():
    """Each method on each federation once; FedAvg beside it on the same one."""
    federations, runs = {}, {}

    def play(name, options, split, seed):
        auxiliary = 100 if method_class(name).needs_auxiliary else 0
        where = (split, seed, auxiliary)
        if where not in federations:
            federations[where] = ilk.federation("digits", split=split, clients=12, seed=seed, auxiliary=auxiliary)
        key = (name, str(options), *where)
        if key not in runs:
            method = make_method(name, {"local": LOCAL, **options})
            runs[key] = ilk.run(method, federations[where], rounds=10, seed=seed, eval_every=10, engine="inline")
        return runs[key], lambda: play_fedavg(where)

    def play_fedavg(where):
        if ("fedavg", *where) not in runs:
            method, federation = make_method("fedavg", {"local": LOCAL}), federations[where]
            runs["fedavg", *where] = ilk.run(
                method, federation, rounds=10, seed=where[1], eval_every=10, engine="inline"
            )
        return runs["fedavg", *where]

    return play


@pytest.mark.parametrize(("name", "options", "split", "seed"), SEEN)
def test_it_finds_the_groups_and_beats_one_model_for_all(played, name, options, split, seed):
    run, fedavg = played(name, options, split, seed)
    assert run.last["ari"] == 1
    assert run.accuracy > fedavg().accuracy + 0.05


def test_pacfl_sees_inputs_only(played):
    """Permuted labels are invisible to it: one cluster, and no better than FedAvg."""
    run, fedavg = played("pacfl", {}, "permute-labels:4", 0)
    assert len(run.clusters) == 1
    assert run.model_digest == fedavg().model_digest


def test_by_the_largest_gap_flis_hc_takes_half_turns_for_one_group(played):
    """Digits upright and upside down agree more with each other than with those that lie: told four, it finds four."""
    run, _ = played("flis-hc", {"local": {"epochs": 10, "lr": 0.05}}, "rotate:4", 0)
    turned = [{int(name[1:]) % 4 for name in members} for members in run.clusters]
    assert turned == [{0, 2}, {1, 3}]


def test_ifca_depends_on_its_draw(played):
    """With four models and no say in the draw, two groups may share a model for good: a limit that the docs state."""
    run, _ = played("ifca", {"k": 4}, "rotate:4", 0)
    assert len(run.clusters) == 3


@pytest.mark.parametrize("name", ["pacfl", "ocfl"])
def test_the_alike_stay_together(played, name):
    """What finds groups where there are some leaves clients together where there are none."""
    run, _ = played(name, {}, "iid", 0)
    assert len(run.clusters) == 1
