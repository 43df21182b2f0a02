import numpy as np
import pytest

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.lg_fedavg import LGFedAvg
from ilk.tasks.score import loss_of

FAST = ilk.LocalSGD(epochs=1, lr=0.05)
LOCAL, SHARED = 4 * 64 + 64, 64 * 3 + 3  # floats of the MLP's two layers on the toys' four features
LENET = {1: 84 * 10 + 10, 2: 11014, 3: 11014 + 16 * 120 + 120, 4: 11014 + 16 * 120 + 120 + 6 * 16 * 25 + 16}


def of_last(layers, **options):
    return LGFedAvg(local=FAST, shared_layers=layers, **options)


@pytest.mark.parametrize(("layers", "floats"), LENET.items())
def test_how_much_of_lenet5_is_shared(played, layers, floats):
    """By default fc2 and fc3: 120 x 84 + 84 + 84 x 10 + 10 = 11,014 floats, as in the papers."""
    x, y = np.random.default_rng(0).normal(size=(20, 1, 16, 16)), np.arange(20) % 10
    federation = ilk.from_arrays({"a": (x, y), "b": (x, y)})
    run = played(of_last(layers), federation, model="lenet5")
    assert run.state.models.shape == (1, floats)
    assert run.ledger.by_kind() == {"models": 2 * floats * 4, "model": 2 * floats * 4}


def test_local_layers_never_cross(played, toy, watched):
    """Every message is as long as the last layer, and in no other does anything of a local layer occur."""
    engine = watched()
    run = played(of_last(1), toy(12, 31, 20), rounds=2, cohort=2, model="mlp", engine=engine)
    assert run.ledger.by_kind() == {"models": 2 * 2 * SHARED * 4, "model": 2 * 2 * SHARED * 4}
    for _, client, message in engine.came:
        assert {kind: array.shape for kind, array in message.items()} == {"model": (SHARED,)}
        if client in engine.answers(2):
            continue
        assert np.array_equal(message["model"], run.memories[client]["model"][LOCAL:]), "the last layer, not the first"
    for _, _, message in engine.sent:
        assert {kind: array.shape for kind, array in message.items()} == {"models": (1, SHARED)}


def test_the_first_round_begins_at_the_common_model(played, toy):
    """One round: every client ends where FedAvg's would, and the shared part is averaged likewise."""
    federation = toy(12, 31, 20)
    run = played(of_last(1), federation, model="mlp")
    fedavg = played(FedAvg(local=FAST), federation, model="mlp", protocol="last-held")
    assert np.array_equal(run.state.models[0], fedavg.state.models[0, LOCAL:])
    for own, other in zip(run.memories, fedavg.memories, strict=True):
        assert np.array_equal(own["model"], other["model"])


def test_a_client_trains_its_own_first_layer_and_the_servers_last(played, toy, watched, clients_of):
    federation, engine = toy(12, 31, 20), watched()
    first = played(of_last(1), federation, rounds=1, model="mlp")
    second = played(of_last(1), federation, rounds=2, model="mlp", engine=engine)
    for k in range(3):
        start = first.memories[k]["model"].copy()
        assert not np.array_equal(start[LOCAL:], first.state.models[0])
        start[LOCAL:] = first.state.models[0]
        client = clients_of(federation, "mlp")(k)
        client.round = 2
        assert np.array_equal(second.memories[k]["model"], FAST.train(client, start))
    layers = {run.memories[k]["model"][:LOCAL].tobytes() for run in (first, second) for k in range(3)}
    assert len(layers) == 6, "everybody's own, and trained in every round"
    sizes = np.array([12, 31, 20])
    came = np.array([engine.answers(2)[k]["model"] for k in range(3)], float)
    np.testing.assert_allclose(second.state.models[0], sizes @ came / 63, atol=1e-6)


def test_who_is_not_asked_keeps_everything(played, toy, watched):
    federation, engine = toy(12, 31, 20, 25), watched()
    once = played(of_last(1), federation, rounds=1, cohort=2, model="mlp")
    twice = played(of_last(1), federation, rounds=2, cohort=2, model="mlp", engine=engine)
    spared = set(engine.asked(1)) - set(engine.asked(2))
    assert spared
    for k in spared:
        assert np.array_equal(once.memories[k]["model"], twice.memories[k]["model"])
    for k in set(range(4)) - set(engine.asked(1)) - set(engine.asked(2)):
        assert twice.memories[k] == {}


def test_every_client_is_measured_with_its_own_first_layer(played, toy, clients_of):
    """Its own first layer and the server's last; one that never trained has the common first layer."""
    federation = toy(12, 31, 20, 25)
    run = played(of_last(1), federation, cohort=2, model="mlp")
    trained = 0
    for k, accuracy in enumerate(run.accuracy_by_client.values()):
        client = clients_of(federation, "mlp", run.memories[k])(k)
        model = client.memory.get("model", client.initial_model).copy()
        trained += "model" in client.memory
        first, bias, last, end = np.split(model, [256, LOCAL, LOCAL + 192])
        last, end = np.split(run.state.models[0], [192])
        x, y = federation.read(k, "test")
        hidden = np.maximum(x @ first.reshape(64, 4).T + bias, 0)
        assert accuracy == ((hidden @ last.reshape(3, 64).T + end).argmax(axis=1) == y).mean()
    assert trained == 2


@pytest.mark.parametrize("protocol", ["served", "after-local", "last-held"])
def test_every_protocol_measures_it(played, toy, protocol):
    run = played(of_last(1), toy(12, 31, 20), rounds=2, cohort=2, model="mlp", protocol=protocol)
    assert np.isfinite(list(run.accuracy_by_client.values())).all()


def test_after_local_is_the_whole_model_after_one_more_training(played, toy, clients_of):
    """Measured by each client's own test loss, and nothing of that training is kept."""
    federation = toy(12, 31)
    run = played(of_last(1), federation, model="mlp", protocol="after-local")
    losses = []
    for k in range(2):
        client = clients_of(federation, "mlp")(k)
        start = run.memories[k]["model"].copy()
        start[LOCAL:] = run.state.models[0]
        losses.append(loss_of(client.net, FAST.train(client, start), *client.data("test")))
    assert run.last["loss"] == pytest.approx(np.mean(losses), abs=1e-6)
    held = played(of_last(1), federation, model="mlp", protocol="last-held")
    assert held.model_digest == run.model_digest
    assert held.last["loss"] != pytest.approx(run.last["loss"], abs=1e-4)


@pytest.mark.parametrize(("model", "layers"), [("mlp", 2), ("linear", 1)])
def test_with_all_layers_shared_it_is_fedavg_bit_for_bit(played, toy, model, layers):
    settings = {"rounds": 3, "cohort": 2, "model": model}
    run = played(of_last(layers), toy(12, 31, 20), **settings)
    assert np.array_equal(run.state.models, played(FedAvg(local=FAST), toy(12, 31, 20), **settings).state.models)
    settings["protocol"] = "last-held"
    held = played(of_last(layers), toy(12, 31, 20), **settings)
    assert held.model_digest == played(FedAvg(local=FAST), toy(12, 31, 20), **settings).model_digest


def test_buffers_are_local(played, toy):
    """The last two layers of a network with BatchNorm are its scale and shift, and the classifier: 12 + 21 floats."""
    federation = toy(20, 30, 10)
    run = played(of_last(2), federation, rounds=2, model="normed")
    assert run.state.models.shape == (1, 12 + 21)
    assert len({memory["model"][63:75].tobytes() for memory in run.memories}) == 3, "running means and variances"


@pytest.mark.parametrize(("model", "has"), [("linear", 1), ("mlp", 2)])
def test_more_layers_than_there_are_are_refused(played, toy, model, has):
    with pytest.raises(ilk.IlkError, match=f"shared_layers = {has + 1}, but this model has only {has} layer"):
        played(of_last(has + 1), toy(12, 31), model=model)


def test_who_is_not_asked_or_does_not_answer(survives):
    survives(of_last(1))


def test_options(documented):
    assert documented(LGFedAvg) == {"shared_layers": 2, "weighted": True}


@pytest.mark.parametrize("layers", [0, -1, 1.5, "last"])
def test_a_wrong_number_of_layers_is_refused_by_name(layers):
    with pytest.raises(ilk.IlkError, match="lg-fedavg: shared_layers = "):
        LGFedAvg(shared_layers=layers)


def test_without_weights_it_is_the_plain_mean(played, toy, watched):
    engine = watched()
    run = played(of_last(1, weighted=False), toy(12, 31, 20), model="mlp", engine=engine)
    expected = np.mean([m["model"] for m in engine.answers(1).values()], axis=0)
    np.testing.assert_allclose(run.state.models[0], expected, atol=1e-7)
    assert not np.array_equal(run.state.models, played(of_last(1), toy(12, 31, 20), model="mlp").state.models)
