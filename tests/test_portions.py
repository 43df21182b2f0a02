"""Who tests which samples: each sample of a group once, by somebody who owns it, and everybody about as many."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ilk import portions
from ilk.portions import Group, deal, in_turns

samples = st.lists(st.integers(0, 60), max_size=30, unique=True).map(lambda s: np.array(s, dtype=np.int64))


@settings(max_examples=100, deadline=None)
@given(st.lists(samples, min_size=1, max_size=6))
def test_each_sample_falls_to_one_of_its_owners(owned):
    distinct, parts = deal(owned)
    assert distinct.tolist() == sorted(set(np.concatenate(owned).tolist()))
    dealt = np.concatenate([own[part] for own, part in zip(owned, parts, strict=True)])
    assert sorted(dealt.tolist()) == distinct.tolist()


def test_the_work_is_spread():
    _, parts = deal([np.arange(100)] * 4)
    assert [len(part) for part in parts] == [25] * 4


def test_who_owns_samples_alone_tests_them_in_its_own_order():
    own = [np.array([5, 2, 9]), np.array([1, 7])]
    assert [part.tolist() for part in deal(own)[1]] == [[0, 1, 2], [0, 1]]


@settings(max_examples=60, deadline=None)
@given(st.lists(samples, min_size=1, max_size=6), st.data())
def test_everybody_gets_the_outputs_of_its_own_samples_unless_some_did_not_come(owned, data):
    group = Group(dict(enumerate(owned)), {})
    lost = data.draw(st.sets(st.sampled_from(range(len(owned)))))
    for k, part in group.part.items():
        if k not in lost:
            group.enter(k, np.stack([owned[k][part], -owned[k][part]], axis=1).astype(np.float32))
    missing = {s for k in lost for s in owned[k][group.part[k]].tolist()}
    for k, own in enumerate(owned):
        found = group.outputs(k)
        if missing & set(own.tolist()):
            assert found is None
        elif found is not None:
            assert found[:, 0].tolist() == own.tolist()


def test_groups_take_turns_when_their_outputs_have_no_room(monkeypatch):
    groups = [Group({0: np.arange(size)}, {}) for size in (10, 10, 50, 5, 5)]
    monkeypatch.setattr(portions, "TOGETHER", 4 * 3 * 20)
    assert [[len(g.distinct) for g in now] for now in in_turns(groups, classes=3)] == [[10, 10], [50], [5, 5]]
