"""`ilk methods`: every method, its options and their defaults."""

from __future__ import annotations

import pytest

from ilk.checked import describe
from ilk.methods import make_method, registry, summary


def test_the_methods_of_the_first_issue_are_there():
    assert {"solo", "fedavg", "flis-dc", "pacfl"} <= {*registry()}


def default(option):
    return "none" if option["default"] is None else option["default"]


@pytest.mark.parametrize("name", [*registry()])
def test_every_method_with_its_options(ilk, name):
    shown = " ".join(ilk("methods").out.split())
    assert name in shown
    assert summary(registry()[name]) in shown
    for option in describe(registry()[name]):
        if not option["name"].startswith("local."):
            assert option["help"], f"{option['name']} has no help"
            assert f"{option['name']} = {default(option)}" in shown


@pytest.mark.parametrize("name", [*registry()])
def test_one_method_shows_its_local_options_too(ilk, name):
    shown = " ".join(ilk("methods", name).out.split())
    for option in describe(registry()[name]):
        assert f"{option['name']} = {default(option)}" in shown
    others = [other for other in registry() if other != name]
    assert not any(summary(registry()[other]) in shown for other in others)


def test_every_option_has_help():
    lacking = [f"{name}: {o['name']}" for name, cls in registry().items() for o in describe(cls) if not o["help"]]
    assert not lacking


def test_json(ilk):
    found = ilk("methods", "--json").json
    assert list(found) == ["methods"]
    assert [row["name"] for row in found["methods"]] == [*registry()]
    assert all(row["description"] and row["paper"] for row in found["methods"])
    for row in found["methods"]:
        options = {option["name"]: option["default"] for option in row["options"]}
        local = {name.removeprefix("local."): v for name, v in options.items() if name.startswith("local.")}
        own = {name: value for name, value in options.items() if not name.startswith("local.")}
        assert make_method(row["name"], {**own, "local": local}) == registry()[row["name"]]()


def test_piped_lines_are_not_cut_at_80_columns(ilk):
    for name, cls in registry().items():
        assert any(name in line and summary(cls) in line for line in ilk("methods").out.splitlines())
