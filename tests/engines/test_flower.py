"""The engine of a deployment and its clients, joined by a grid that is only a list: no processes, no network."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

import ilk
from ilk.client import Setting
from ilk.data.silos import from_file, from_folder
from ilk.engines.flower.client import Answering, replied
from ilk.engines.flower.expected import Expected, check
from ilk.engines.flower.joined import Seats, Statement, joined
from ilk.engines.flower.memory import Lost, Memory
from ilk.engines.flower.own import source
from ilk.engines.flower.server import Flower
from ilk.engines.flower.wire import Parcel, Refused, pack, unpack
from ilk.errors import IlkError
from ilk.methods import make_method, method_class, registry
from ilk.server import Server
from ilk.tasks import Fit, LocalSGD, Sign

NAMES = ("a", "b", "c", "d")


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Flower's messages name the run that they belong to; it is set where Flower starts an app."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """Hands each message to the client whose node it is for; `spoil` may change what comes back."""

    def __init__(self, clients, spoil=lambda name, parcel: parcel):
        self.clients, self.spoil, self.replies, self.away = clients, spoil, {}, set()
        self.started = {}

    def get_nodes(self):
        there = [name for name in self.clients if name not in self.away]
        return [
            SimpleNamespace(
                public_key=name.encode(), node_id=1000 + ord(name), last_activated_at=self.started.get(name)
            )
            for name in there
        ]

    def push_messages(self, messages):
        for message in messages:
            name = chr(message.metadata.dst_node_id - 1000)
            number = str(len(self.replies))
            message.metadata.__dict__["_message_id"] = number
            self.replies[number] = None
            if name not in self.away:
                came = self.spoil(name, unpack(replied(message.content, self.clients[name])))
                content = pack(came) if isinstance(came, Parcel) else came
                self.replies[number] = content and Message(content, reply_to=message)
            yield number

    def pull_messages(self, names):
        return [self.replies.pop(name) for name in list(names) if self.replies.get(name)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four clients' files; two groups that name their classes differently."""
    data = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(3)
    centres = random.normal(size=(3, 5)) * 2
    for k, name in enumerate(NAMES):
        y = np.arange(40 + 7 * k) % 3
        x = (centres[y] * (1 if k % 2 else -1) + random.normal(size=(len(y), 5)) * 0.7).astype(np.float32)
        np.savez(data / f"{name}.npz", x=x, y=y)
    np.savez(data / "_auxiliary.npz", x=random.normal(size=(20, 5)).astype(np.float32))
    return data


def answering(folder, home, name):
    return Answering(name, lambda seed: from_file(folder / f"{name}.npz", name, seed), home / name)


@pytest.fixture
def clients(folder, tmp_path):
    return {name: answering(folder, tmp_path, name) for name in NAMES}


def opened(grid, names=NAMES, seats=None, auxiliary=None, keys=None):
    """An engine whose clients have joined, and their federation."""
    engine = Flower(grid, keys or (lambda: {name.encode(): name for name in names}), 0, patience=0.3, pause=0.01)
    engine.look()
    found = engine.found(seats)
    return engine, joined(found, 0, auxiliary)


def make_(name, **more):
    return make_method(name, {"local": {"epochs": 1, "lr": 0.05}, **more})


@pytest.mark.parametrize("name", registry())
def test_every_method_ends_in_the_same_bits_as_inline(folder, clients, name):
    silos = from_folder(folder)
    own = silos.read_auxiliary() if method_class(name).needs_auxiliary else None
    engine, federation = opened(Grid(clients), auxiliary=own)
    plan = {"rounds": 3, "cohort": 0.75, "protocol": "last-held" if name == "fedavg" else "served"}
    run = ilk.run(make_(name), federation, engine=engine, **plan)
    inline = ilk.run(make_(name), silos, engine="inline", **plan)
    assert run.model_digest == inline.model_digest
    assert run.ledger.entries == inline.ledger.entries
    assert run.history["loss"] == inline.history["loss"]
    assert run.history["cluster_by_client"] == inline.history["cluster_by_client"]
    assert not any(seen.said for seen in engine.clients.values())
    assert all(form is not None for form in engine._expected._forms.values()), "answers to every task have a known form"


def test_a_named_data_set_with_a_partition_file(tmp_path):
    """Each client reads the file, and of the data set its own share only."""
    whole = ilk.federation("digits", split="rotate:2", clients=3)
    whole.partition.save(tmp_path / "part.json")
    clients = {}
    for id, name in zip(whole.ids, "abc", strict=True):
        clients[name] = Answering(id, source(id, "digits", str(tmp_path / "part.json")), tmp_path / name)
        assert clients[name].source(0).ids == (id,)
    ids = dict(zip((name.encode() for name in clients), whole.ids, strict=True))
    engine, federation = opened(Grid(clients), keys=lambda: ids)
    run = ilk.run(make_("pacfl"), federation, engine=engine, rounds=2)
    inline = ilk.run(make_("pacfl"), whole, engine="inline", rounds=2)
    assert run.model_digest == inline.model_digest
    assert run.ledger.entries == inline.ledger.entries
    with pytest.raises(IlkError, match="The partition has no client 'x'"):
        source("x", "digits", str(tmp_path / "part.json"))(0)


def garbage(kind):
    def spoil(name, parcel):
        if name != "b" or "model" not in parcel.arrays:
            return parcel
        head, arrays = dict(parcel.head), dict(parcel.arrays)
        model = arrays["model"]
        if kind == "shape":
            arrays["model"] = model[:-1]
        elif kind == "type":
            arrays["model"] = model.astype(np.float64)
        elif kind == "nan":
            arrays["model"] = np.where(np.arange(len(model)) == 3, np.nan, model).astype(np.float32)
        elif kind == "name":
            head["client"] = "a"
        elif kind == "question":
            head["ask"] = "another"
        elif kind == "more":
            arrays["also"] = model
        elif kind == "nothing":
            arrays = {}
        elif kind == "huge":
            arrays["model"] = np.zeros(3_000_000, np.float32)
        elif kind == "version":
            head["staged"] = "../../etc/passwd"
        elif kind == "raw":
            content = pack(parcel)
            content["arrays"]["model"].shape = (10**9, 10**9)
            return content
        return Parcel(head, arrays)

    return spoil


@pytest.mark.parametrize(
    ("kind", "why"),
    {
        "shape": "'model' is float32",
        "type": "'model' is float64",
        "nan": "numbers that are not finite",
        "name": "in the name of 'a'",
        "question": "answers another question",
        "more": "it has",
        "nothing": "it has",
        "huge": "at most 1,000,000",
        "version": "its memory has no name",
    }.items(),
)
def test_an_answer_that_is_garbage_counts_as_missing(clients, caplog, kind, why):
    engine, federation = opened(Grid(clients, garbage(kind)))
    engine.largest = 1_000_000
    run = ilk.run(make_("scaffold"), federation, engine=engine, rounds=2)
    without = Grid(clients, lambda name, parcel: None if name == "b" and "model" in parcel.arrays else parcel)
    silent, federation = opened(without)
    assert (
        run.state.models.tobytes()
        == ilk.run(make_("scaffold"), federation, engine=silent, rounds=2).state.models.tobytes()
    )
    assert any("b is left out" in text and why in text for text in caplog.messages)
    assert {len(e.clients) for e in run.ledger.entries if (e.direction, e.kind) == ("up", "model")} == {3}


def test_arrays_that_are_not_what_they_say_are_refused():
    for field, value in (("shape", (10**9, 10**9)), ("dtype", "object"), ("stype", "pickle"), ("shape", (-1, 5))):
        content = pack(Parcel({}, {"model": np.zeros(5, np.float32)}))
        setattr(content["arrays"]["model"], field, value)
        with pytest.raises(Refused):
            unpack(content)
    content = pack(Parcel({}, {}))
    content["ilk"]["json"] = "[" * 100_000
    with pytest.raises(Refused, match="not JSON"):
        unpack(content)
    with pytest.raises(TypeError, match="object"):
        pack(Parcel({}, {"x": np.array([{}])}))
    arrays = {"plain": np.arange(6.0).reshape(2, 3).T, "none": np.empty((0, 4), np.float32), "one": np.array(True)}
    came = unpack(pack(Parcel({"a": 1}, arrays)))
    for kind, array in arrays.items():
        assert (came.arrays[kind].dtype, came.arrays[kind].shape) == (array.dtype, array.shape)
        assert np.array_equal(came.arrays[kind], array)


class Killed(BaseException):
    """The server's process ends here."""


@pytest.mark.parametrize("when", ["before the answers are accepted", "before the checkpoint", "after it"])
def test_server_and_clients_agree_after_a_crash_of_the_server(folder, clients, tmp_path, when):
    """SCAFFOLD's clients have staged, or even used, what the server will never have known."""
    plan = {"rounds": 4, "out": tmp_path / "run"}
    inline = ilk.run(make_("scaffold"), from_folder(folder), rounds=4, engine="inline")
    grid = Grid(clients)
    engine, federation = opened(grid)
    if when == "after it":

        def stop(row):
            if row["round"] == 2:
                raise Killed

        with pytest.raises(Killed):
            ilk.run(make_("scaffold"), federation, engine=engine, on_round=stop, **plan)
    else:

        def spoil(name, parcel):
            if (
                engine._round == 3
                and ("accuracy" in parcel.arrays) == (when == "before the checkpoint")
                and name == "c"
            ):
                raise Killed
            return parcel

        grid.spoil = spoil
        with pytest.raises(Killed):
            ilk.run(make_("scaffold"), federation, engine=engine, **plan)
    clients = {name: answering(folder, tmp_path, name) for name in NAMES}  # they were killed, too
    engine, federation = opened(Grid(clients))
    resumed = ilk.run(make_("scaffold"), federation, engine=engine, resume=True, **plan)
    assert resumed.model_digest == inline.model_digest
    assert all(len(list((tmp_path / name / "memory").iterdir())) <= 3 for name in NAMES), "old versions are deleted"


def test_a_client_whose_disk_is_lost_begins_anew_and_the_run_goes_on(clients, tmp_path, caplog):
    grid = Grid(clients)
    engine, federation = opened(grid)

    def lose(row):
        if row["round"] == 1:
            for path in (tmp_path / "c" / "memory").iterdir():
                path.write_bytes(b"x" + path.read_bytes()[1:])

    run = ilk.run(make_("scaffold"), federation, engine=engine, rounds=4, on_round=lose, eval_every=4)
    assert any("c is left out: it has lost its memory" in text for text in caplog.messages)
    came = [e.clients for e in run.ledger.entries if (e.direction, e.kind) == ("up", "model")]
    assert came == [(0, 1, 2, 3), (0, 1, 3), (0, 1, 2, 3), (0, 1, 2, 3)]


def test_memory_keeps_what_is_used_and_what_is_safe(tmp_path):
    memory = Memory(tmp_path / "m")
    one, two, three = (memory.stage({"x": np.full(3, k)}) for k in (1, 2, 3))
    assert memory.stage({"x": np.full(3, 1)}) == one
    assert memory.settle(two, one)["x"].tolist() == [2, 2, 2]
    with pytest.raises(Lost):
        memory.settle(three, two)
    assert memory.settle(one, two)["x"].tolist() == [1, 1, 1]
    assert memory.settle("", "") == {}
    for name in ("../m/x", "/etc/passwd", one[:-1] + "/"):
        with pytest.raises(Lost, match="no version"):
            memory.settle(name, "")


def test_who_is_away_is_missed_and_comes_back(clients):
    grid = Grid(clients)
    engine, federation = opened(grid)

    def go(row):
        grid.away = {"d"} if row["round"] == 1 else set()

    run = ilk.run(make_("fedavg"), federation, engine=engine, rounds=3, on_round=go)
    down = [e.clients for e in run.ledger.entries if (e.direction, e.kind) == ("down", "models")]
    assert down == [(0, 1, 2, 3), (0, 1, 2), (0, 1, 2, 3)]
    assert np.isnan(run.history["accuracy_by_client"][1][3])
    assert run.history["clusters"] == [1, 1, 1]


def test_nobody_waits_for_a_client_that_was_started_anew(clients, at_most):
    """It has lost the question; patience would be ten minutes."""
    grid = Grid(clients)
    engine, federation = opened(grid)
    engine.patience = 600.0

    def spoil(name, parcel):
        if name == "b" and "model" in parcel.arrays and engine._round == 2:
            grid.started["b"] = "later"
            return None
        return parcel

    grid.spoil = spoil
    with at_most(60):
        run = ilk.run(make_("fedavg"), federation, engine=engine, rounds=3)
    came = [e.clients for e in run.ledger.entries if (e.direction, e.kind) == ("up", "model")]
    assert came == [(0, 1, 2, 3), (0, 2, 3), (0, 1, 2, 3)]


def test_a_newcomer_is_placed_in_the_next_round_and_after_the_last(folder, clients, tmp_path):
    """Seats are free for two; d comes in round 3, c after the end."""
    grid = Grid({name: clients[name] for name in ("a", "b")})
    known = {b"a": "a", b"b": "b"}
    engine, federation = opened(grid, seats=4, keys=lambda: known)
    assert federation.ids == ("a", "b", "(free seat 3)", "(free seat 4)")

    def come(row):
        if row["round"] == 2:
            grid.clients["d"] = clients["d"]
            known[b"d"] = "d"

    method = make_("pacfl", threshold=0.5, distance="principal", vectors=2)
    run = ilk.run(method, federation, engine=engine, rounds=4, on_round=come)
    whole = ilk.run(method, from_folder(folder), rounds=1, engine="inline").state.cluster
    assert (run.state.cluster[:2] == run.state.cluster[2]).tolist() == [whole[0] == whole[3], whole[1] == whole[3]]
    assert federation.ids == ("a", "b", "d", "(free seat 4)")
    assert [e.clients for e in run.ledger.entries if e.kind == "signature"] == [(0, 1), (2,)]
    grid.clients["c"], known[b"c"] = clients["c"], "c"
    engine.look()
    server = Server(engine.setting, engine, round=4)
    state = method.welcome(server, run.state, server.everyone)
    assert state.cluster[3] >= 0
    assert state.cluster[:3].tolist() == run.state.cluster[:3].tolist()


def test_who_cannot_join_is_told_why(clients, folder, tmp_path, caplog):
    engine, _ = opened(Grid(clients), ("a", "b"))
    take = engine.seats.take
    for statement, why in (
        (Statement(5, (7,), 3, "holdout"), r"inputs are of shape \(7,\)"),
        (Statement(5, (5,), 9, "holdout"), "9 classes, but the federation began with 3"),
        (Statement(5, (5,), 3, "holdout"), "all 2 seats are taken"),
    ):
        with pytest.raises(ValueError, match=why):
            take("x", statement)
    take("a", Statement(6, (5,), 3, "holdout"))
    for said in ({}, {"size": True}, {"size": 0}, {"size": 5, "shape": [1e9], "classes": 2}, {"size": 5, "shape": [3]}):
        with pytest.raises(ValueError, match="it states"):
            Statement.read(said)
    with pytest.raises(IlkError, match="No client has joined"):
        Flower(Grid({}), lambda: {}, 0).found(None)


def test_seats_are_found_again(tmp_path):
    seats = Seats((1, 8, 8), 10, "holdout", 3, {"b": 5, "a": 7})
    seats.save(tmp_path / "seats.json")
    assert Seats.load(tmp_path / "seats.json") == seats
    assert Seats.load(tmp_path / "none.json") is None
    (tmp_path / "seats.json").write_text("{")
    with pytest.raises(IlkError, match="cannot be read"):
        Seats.load(tmp_path / "seats.json")
    assert joined(seats, 0, None).sizes.tolist() == [5, 7, 6]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "os:getcwd"}, "its own operator's word"),
        ({"model": "antigravity:x"}, "its own operator's word"),
        ({"classes": 2}, "this client has 3"),
        ({"classes": 10**9}, "classes"),
        ({"round": "1"}, "'round' is '1'"),
        ({"seed": -1}, "'seed' is '-1'"),
        ({"task": {"is": "os:system", "command": "true"}}, "no task"),
        ({"task": {"is": "ilk.tasks.fit:Fit", "local": {"is": "ilk.tasks.sgd:LocalSGD"}}}, "KeyError"),
        ({"use": "../../../etc/passwd"}, None),
    ],
    ids=str,
)
def test_a_client_does_not_do_what_a_server_may_not_ask(clients, change, why):
    head = {
        "ask": "1",
        "round": 1,
        "seed": 0,
        "model": "mlp",
        "classes": 3,
        "task": {"is": "ilk.methods.cafa:Histogram"},
    }
    registry()
    assert "error" not in clients["a"](Parcel(head, {})).head
    reply = clients["a"](Parcel({**head, **change}, {}))
    assert reply.head["client"] == "a"
    assert not reply.arrays
    assert why is None or why in reply.head["error"]
    assert json.dumps(reply.head)


def test_forms_know_what_depends_on_the_data(blobs):
    expected = Expected(Setting(blobs, "mlp", 0))
    assert expected.form(Sign("whole", 3, "overlap", 1), {}, 0)["signature"] == ("float32", (5, 3))
    form = expected.form(Sign("per-class", 3, "principal", 1), {}, 0)
    assert form == {"signature": ("float32", (5, -1)), "noise": ("float32", ())}
    check({"signature": np.zeros((5, 2), np.float32), "noise": np.float32(0).reshape(())}, form, {})
    models = {"models": np.zeros((2, 579), np.float32)}
    form = expected.form(Fit(LocalSGD(epochs=1), tell=True), models, 1)
    good = {"model": np.zeros(579, np.float32), "chosen": np.array(1, np.int32)}
    check(good, form, models)
    for chosen in (2, -2):
        with pytest.raises(Refused, match="it chose"):
            check({**good, "chosen": np.array(chosen, np.int32)}, form, models)


def test_a_server_has_no_data_of_its_clients(clients):
    _, federation = opened(Grid(clients))
    with pytest.raises(RuntimeError, match="does not have"):
        federation.read(0, "train")
