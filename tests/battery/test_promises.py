"""The promises that every method of the registry keeps; a new method is held to them from its first day."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pytest

import ilk
from ilk.checked import describe
from ilk.client import Setting
from ilk.engines import Inline
from ilk.evaluate import evaluate
from ilk.ledger import Entry
from ilk.methods import make_method, method_class, registry
from ilk.runs.folder import RunFolder
from ilk.runs.run import cohort_of
from ilk.server import Server

OWN_TRAINING = {"fedprox", "per-fedavg"}  # their local training is not plain SGD, even alone
ROUNDS = 4

every_method = pytest.mark.parametrize("name", registry())


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


def make_(name, **local):
    return make_method(name, {"local": {"epochs": 1, "lr": 0.05, **local}})


@pytest.fixture(scope="module")
def federations(make_federation):
    """One with data for the server and one without; a method gets what it needs and not more."""
    return {True: make_federation(auxiliary=20), False: make_federation(auxiliary=0)}


@pytest.fixture
def federation(federations, name):
    return federations[method_class(name).needs_auxiliary]


def told(run):
    """All of a history but the time that it took."""
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in run.history]


def same(run, other):
    assert run.model_digest == other.model_digest
    assert told(run) == told(other)
    assert run.ledger.entries == other.ledger.entries


@every_method
def test_every_option_refuses_by_name_what_is_out_of_range(name):
    for option in describe(method_class(name)):
        for wrong in beyond(option):
            group, _, nested = option["name"].partition(".")
            values = {group: {nested: wrong}} if nested else {group: wrong}
            with pytest.raises(ilk.IlkError, match=f"{option['name'].rpartition('.')[2]} = .* is not allowed"):
                make_method(name, values)


def beyond(option):
    """Values just outside what the documentation of an option allows, and some that no option allows."""
    yield from ([], {"a": 1}) if option["type"] == "string" else ([], {"a": 1}, "nonsense")
    bounds = re.findall(r"(>=|>|<=|<) ([-0-9.e+]+)", option["range"] or "")
    assert bounds or not re.search("number|integer", option["type"]), f"{option['name']} may be any number"
    for sign, bound in bounds:
        yield float(bound) + {">=": -1, ">": 0, "<=": 1 + abs(float(bound)), "<": 0}[sign]


@every_method
def test_it_learns(federation, name):
    method = make_(name, epochs=3, lr=0.1)
    engine = Inline()
    engine.open(Setting(federation, "mlp", 0))
    begun = evaluate(engine, method, method.start(Server(engine.place.setting, engine)), "served", 0)
    run = ilk.run(method, federation, rounds=ROUNDS, engine="inline")
    assert run.accuracy > begun.accuracy.mean() + 0.2
    assert run.accuracy > 0.85
    assert run.last["loss"] < begun.loss.mean() / 2


@every_method
def test_the_same_run_twice_is_the_same_run(federation, name):
    plan = {"rounds": ROUNDS, "cohort": 0.5, "engine": "inline"}
    first = ilk.run(make_(name), federation, **plan)
    same(first, ilk.run(make_(name), federation, **plan))
    assert ilk.run(make_(name), federation, seed=1, **plan).model_digest != first.model_digest


@every_method
@pytest.mark.parametrize("protocol", ["served", "last-held"])
def test_resumed_after_any_round_it_is_the_same_run(federation, name, protocol, tmp_path):
    plan = {"rounds": ROUNDS, "cohort": 0.5, "protocol": protocol, "engine": "inline"}
    whole = ilk.run(make_(name), federation, **plan)
    assert len(set(whole.history["loss"])) > 1

    def stop(row):
        if row["round"] == last:
            raise Killed

    for last in range(1, ROUNDS):
        folder = tmp_path / str(last)
        with pytest.raises(Killed):
            ilk.run(make_(name), federation, out=folder, on_round=stop, **plan)
        heard = []
        resumed = ilk.run(make_(name), federation, out=folder, resume=True, on_round=heard.append, **plan)
        same(resumed, whole)
        assert [row["round"] for row in heard] == [1, 2, 3, 4]
        read = ilk.Run.load(folder)
        same(read, whole)
        assert read.result() == resumed.result()


@every_method
def test_resumed_at_every_round_it_is_the_same_run(federation, name, tmp_path):
    plan = {"rounds": ROUNDS, "cohort": 0.5, "engine": "inline", "out": tmp_path / "run"}
    whole = ilk.run(make_(name), federation, **{**plan, "out": None})

    def stop(row):
        if row["round"] == last:
            raise Killed

    for last in range(1, ROUNDS + 1):
        with pytest.raises(Killed):
            ilk.run(make_(name), federation, resume=last > 1, on_round=stop, **plan)
    same(ilk.run(make_(name), federation, resume=True, **plan), whole)


@every_method
def test_it_survives_answers_that_are_missing(federation, name, losing, tmp_path):
    plan = {"rounds": 6, "protocol": "last-held"}
    run = ilk.run(make_(name, epochs=3, lr=0.1), federation, engine=losing(share=0.3), **plan)
    assert run.accuracy > 0.8
    sent = sum(len(e.clients) for e in run.ledger.entries if (e.direction, e.kind) == ("down", "models"))
    came = sum(len(e.clients) for e in run.ledger.entries if (e.direction, e.kind) == ("up", "model"))
    assert came < sent or name == "solo"
    last = ilk.run(make_(name, epochs=3, lr=0.1), federation, engine=losing(share=0.3), out=tmp_path / "run", **plan)
    same(last, run)


@every_method
def test_a_round_in_which_nobody_answers_changes_nothing(federation, name, losing):
    void = ilk.run(make_(name), federation, rounds=2, engine=losing(void=(2,)))
    assert void.model_digest == ilk.run(make_(name), federation, rounds=1, engine="inline").model_digest
    first = ilk.run(make_(name), federation, rounds=3, engine=losing(void=(1,)))
    assert len(first.history) == 3
    assert first.history["loss"][0] > first.history["loss"][2]


@every_method
def test_its_state_is_arrays_and_plain_values_and_survives_the_disk(federation, name, tmp_path):
    method = make_(name)
    run = ilk.run(method, federation, rounds=2, cohort=0.5, engine="inline", protocol="last-held")
    (tmp_path / "run.json").write_text("{}")
    for file in ("history.jsonl", "ledger.jsonl"):
        (tmp_path / file).touch()
    folder = RunFolder(tmp_path)
    folder.commit({"round": 2}, [Entry(2, "up", "model", (0,), 8)], run.state, run.memories, 2)
    restored = folder.restore(method)
    folder.close()
    assert restored.round == 2
    assert type(restored.state) is type(run.state)
    for field in fields(run.state):
        before, after = getattr(run.state, field.name), getattr(restored.state, field.name)
        assert type(before) is type(after), field.name
        if isinstance(before, np.ndarray):
            assert (before.dtype, before.shape) == (after.dtype, after.shape), field.name
            assert before.tobytes() == after.tobytes(), field.name
        else:
            assert before == after, field.name
    for before, after in zip(run.memories, restored.memories, strict=True):
        assert before.keys() == after.keys()
        for kind in before:
            assert (before[kind].dtype, before[kind].shape) == (after[kind].dtype, after[kind].shape)
            assert before[kind].tobytes() == after[kind].tobytes()


@every_method
def test_a_client_that_was_never_asked_is_served(federation, name):
    run = ilk.run(make_(name), federation, rounds=2, cohort=1, engine="inline")
    asked = {int(k) for round in (1, 2) for k in cohort_of(round, 6, 1, 0)}
    assert len(asked) <= 2
    assert np.isfinite(run.last["accuracy_by_client"]).all()
    assert sorted(client for members in run.clusters for client in members) == sorted(federation.ids)
    send = make_(name).message(run.state)
    for k in range(6):
        if name != "solo":
            assert send(k)["models"].shape[1:] == (579,)
            assert len(send(k)["models"]) == len(make_(name).serves(run.state, k)) >= 1


@every_method
def test_the_ledger_adds_up(federation, name):
    run = ilk.run(make_(name), federation, rounds=3, cohort=0.5, engine="inline")
    assert (
        run.history["bytes_up"][-1]
        == run.ledger.total("up")
        == sum(len(e.clients) * e.bytes_each for e in run.ledger.entries if e.direction == "up")
    )
    for round in (1, 2, 3):
        allowed = set(cohort_of(round, 6, 0.5, 0).tolist())
        assert all(set(e.clients) <= allowed for e in run.ledger.entries if e.round == round)
        up = [e for e in run.ledger.entries if (e.round, e.direction, e.kind) == (round, "up", "model")]
        assert sum(e.bytes for e in up) == (0 if name == "solo" else 3 * 579 * 4)


@every_method
def test_a_cohort_of_one_and_a_federation_of_one(federation, make_federation, name):
    assert ilk.run(make_(name), federation, rounds=1, cohort=1, engine="inline").accuracy >= 0
    single = make_federation(clients=1, auxiliary=20 if method_class(name).needs_auxiliary else 0)
    if name in OWN_TRAINING:
        return
    run = ilk.run(make_(name), single, rounds=2, engine="inline")
    solo = ilk.run(make_("solo"), single, rounds=2, engine="inline")
    assert run.history["loss"] == solo.history["loss"], "alone, every method is training alone"
