"""Who is asked in a round, and the options of every method."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ilk
from ilk.checked import describe, make, plain
from ilk.errors import IlkError
from ilk.methods import make_method, method_class, registry, summary
from ilk.runs.run import cohort_of

quick = settings(max_examples=100, deadline=None, database=None)


@quick
@given(st.integers(1, 60), st.integers(0, 200), st.integers(0, 5), st.data())
def test_a_cohort_is_a_sorted_set_of_clients_of_the_right_size(clients, round, seed, data):
    size = data.draw(st.integers(1, clients))
    cohort = cohort_of(round, clients, size, seed)
    assert len(cohort) == size
    assert (np.diff(cohort) > 0).all()
    assert cohort.min() >= 0
    assert cohort.max() < clients
    assert np.array_equal(cohort, cohort_of(round, clients, size, seed))


@pytest.mark.parametrize(
    ("cohort", "clients", "size"),
    [
        (0.1, 100, 10),
        (0.29, 100, 29),  # 0.29 * 100 is 28.999999999999996
        (0.1, 30, 3),
        (0.7, 10, 7),
        (0.55, 100, 55),
        (0.1, 19, 1),
        (0.19, 10, 1),
        (0.99, 10, 9),
        (0.001, 10, 1),
        (1.0, 7, 7),
        (1, 7, 1),
        (7, 7, 7),
    ],
)
def test_the_size_of_a_cohort(cohort, clients, size):
    assert len(cohort_of(3, clients, cohort, 0)) == size


@quick
@given(st.integers(1, 400), st.integers(1, 100))
def test_a_fraction_is_rounded_down_but_never_to_nobody(clients, percent):
    assert len(cohort_of(1, clients, percent / 100, 0)) == max(clients * percent // 100, 1)


def test_more_clients_than_there_are_is_refused(blobs):
    with pytest.raises(IlkError, match=r"A cohort of 8 clients is more than the federation has \(7\)"):
        cohort_of(1, 7, 8, 0)
    with pytest.raises(IlkError, match="A cohort of 7 clients"):
        ilk.run(make_method("fedavg", {}), blobs, rounds=1, cohort=7, engine="inline")


def test_rounds_and_seeds_draw_different_cohorts_and_everybody_in_time():
    drawn = [tuple(cohort_of(round, 40, 0.25, seed)) for seed in (0, 1) for round in range(1, 21)]
    assert len(set(drawn)) == 40
    counts = np.bincount(np.concatenate(drawn[:20]), minlength=40)
    assert counts.min() >= 1
    assert counts.max() <= 12


def test_every_method_asks_the_same_cohorts(blobs):
    """Asked is whoever is sent a model; SOLO's clients are those that have trained."""
    asked = {}
    for name in registry():
        run = ilk.run(make_method(name, {"local": {"epochs": 1}}), blobs, rounds=3, cohort=2, engine="inline", seed=4)
        asked[name] = [
            sorted({k for e in run.ledger.entries if (e.round, e.kind) == (round, "models") for k in e.clients})
            for round in (1, 2, 3)
        ]
        trained = {k for k, memory in enumerate(run.memories) if memory} if name == "solo" else None
        if trained is not None:
            assert trained == {int(k) for round in (1, 2, 3) for k in cohort_of(round, 6, 2, 4)}
            del asked[name]
    expected = [cohort_of(round, 6, 2, 4).tolist() for round in (1, 2, 3)]
    assert asked
    assert all(cohorts == expected for cohorts in asked.values()), asked


# ---- options


def nested(name, value):
    """{"local": {"lr": value}} for local.lr."""
    first, _, rest = name.partition(".")
    return {first: nested(rest, value) if rest else value}


def _numeric_options():
    for method, cls in registry().items():
        for row in describe(cls):
            if "number" in row["type"] and "text" not in row["type"]:
                yield pytest.param(method, row, id=f"{method}:{row['name']}")


NUMERIC = list(_numeric_options())


def bounds(row):
    """The bounds of an option as (sign, number); of alternatives only those that all of them share a side of."""
    alternatives = [kind for kind in row["type"].split(" or ") if "number" in kind]
    found = re.findall(r"(>=|<=|>|<) (-?[\d.e+-]+)", row["range"] or "")
    lower = [(sign, float(value)) for sign, value in found if sign[0] == ">"]
    upper = [(sign, float(value)) for sign, value in found if sign[0] == "<"]
    return [side for side in (lower, upper) if len(side) == len(alternatives)]


@pytest.mark.parametrize(("method", "row"), NUMERIC)
def test_numbers_outside_their_range_are_refused_by_name(method, row):
    wrong = [float("nan"), float("inf"), -float("inf"), "many", [1], {"a": 1}]
    for side in bounds(row):
        if side[0][0][0] == ">":
            lowest = min(value for _, value in side)
            wrong += [lowest - 1, -1e9, int(lowest) - 2]
            wrong += [lowest] if all(sign == ">" for sign, _ in side) else []
        else:
            highest = max(value for _, value in side)
            wrong += [highest + 1 + abs(highest), highest * 1e6 + 1e9]
            wrong += [highest] if all(sign == "<" for sign, _ in side) else []
    if "a number" not in row["type"]:
        wrong += [1.5, 2.0000001]
    for value in wrong:
        with pytest.raises(IlkError) as refusal:
            make_method(method, nested(row["name"], value))
        assert f"{method}: {row['name']} = {value!r} is not allowed. Allowed: " in str(refusal.value)
        assert row["type"] in str(refusal.value)
        assert row["default"] is None or repr(row["default"]) in str(refusal.value)


GOES_WITH = {("ocfl", "k"): {"grouping": "kmeans"}}  # options that are refused without others


@pytest.mark.parametrize(("method", "row"), NUMERIC)
def test_numbers_at_the_edge_of_their_range_are_taken(method, row):
    inside = [value for side in bounds(row) for sign, value in side if len(side) == 1 and sign in (">=", "<=")]
    inside.append(row["default"])
    for value in inside:
        made = make_method(method, {**nested(row["name"], value), **GOES_WITH.get((method, row["name"]), {})})
        for part in row["name"].split("."):
            made = getattr(made, part)
        assert made == value


@pytest.mark.parametrize("name", registry())
def test_options_survive_the_way_through_plain_values(name):
    import json

    cls = method_class(name)
    for method in (cls(), cls(local=ilk.LocalSGD(epochs=3, lr=0.25, batch_size=7))):
        values = json.loads(json.dumps(plain(method)))
        assert make(cls, values) == method
        assert {row["name"].partition(".")[0] for row in describe(cls)} == set(values)
    assert make_method(name, {}) == cls()


@pytest.mark.parametrize("name", registry())
def test_a_method_says_what_it_is(name):
    cls = method_class(name)
    assert cls.name == name
    assert cls.paper
    assert summary(cls).endswith(".")
    assert {row["name"] for row in describe(cls)} >= {"local.epochs", "local.lr", "local.momentum", "local.batch_size"}
    for row in describe(cls):
        assert row["help"] or row["name"].startswith("local."), f"{row['name']} has no help"


@pytest.mark.parametrize("name", registry())
def test_unknown_options_are_refused_with_the_nearest(name):
    with pytest.raises(IlkError, match=f"{name} has no option 'local.epohcs'. Did you mean 'local.epochs'"):
        make_method(name, {"local": {"epohcs": 3}})
    with pytest.raises(IlkError, match=f"{name} has no option 'zzz'. There are: .*local.lr"):
        make_method(name, {"zzz": 3})
    with pytest.raises(IlkError, match="has no option 'zzz'"):
        method_class(name)(zzz=3)


def test_flis_options():
    assert make_method("flis-dc", {}).threshold == 0.5
    with pytest.raises(IlkError, match=r"no option 'treshold'. Did you mean 'threshold'"):
        make_method("flis-dc", {"treshold": 0.3})


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(IlkError, match=r"no method 'fedavgg'. Did you mean 'fedavg'. There are: .*fedavg.*solo"):
        make_method("fedavgg", {})


def test_several_mistakes_are_told_at_once():
    with pytest.raises(IlkError) as refusal:
        make_method("fedavg", {"local": {"lr": -1, "epochs": 0}})
    assert "local.lr = -1" in str(refusal.value)
    assert "local.epochs = 0" in str(refusal.value)


def test_whole_numbers_and_fractions_of_a_cohort_are_told_apart():
    assert type(ilk.Plan(cohort=1).cohort) is int
    assert type(ilk.Plan(cohort=1.0).cohort) is float
    for cohort in (1, 1.0, 0.1, 10):
        again = make(ilk.Plan, plain(ilk.Plan(cohort=cohort)))
        assert (again.cohort, type(again.cohort)) == (cohort, type(cohort))
    for wrong in (0, -1, 0.0, 1.5, -0.1, "some", float("nan")):
        with pytest.raises(IlkError, match="cohort = "):
            ilk.Plan(cohort=wrong)


def test_options_cannot_be_changed():
    method = make_method("fedavg", {})
    with pytest.raises(AttributeError):
        method.local = ilk.LocalSGD(epochs=1)
