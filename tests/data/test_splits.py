"""The promises of the splits, on made labels."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ilk.data.partition import check
from ilk.data.rules import MIX4, RULES
from ilk.data.shares import choose_auxiliary, largest_remainder
from ilk.data.splits import Labels, parse, partition, sources_of
from ilk.errors import IlkError

SINGLE = ["iid", "label-skew:0.2", "label-skew:0.5", "dirichlet:0.3", "rotate:4", "permute-labels:3"]
quick = settings(max_examples=40, deadline=None, database=None)


def made(train=400, test=200, classes=10, seed=0, shuffle=True):
    """Labels in which every class occurs equally often, as far as possible."""
    random = np.random.default_rng(seed)
    y_train, y_test = np.arange(train) % classes, np.arange(test) % classes
    if shuffle:
        random.shuffle(y_train)
        random.shuffle(y_test)
    return Labels(y_train, y_test, classes)


def skewed(train, test, classes, seed):
    """Labels with class sizes that differ widely; classes may be missing."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(classes))
    return Labels(random.choice(classes, train, p=weights), random.choice(classes, test, p=weights), classes)


def mix4_labels(scale=1, classes=10):
    sizes = {"usps": 7291, "cifar10": 50000, "svhn": 73257, "fashion-mnist": 60000}
    return {name: made(size // scale, 40 + i, classes, seed=i) for i, (name, size) in enumerate(sizes.items())}


def split(text, labels, clients, seed=0, **options):
    return partition("toy", text, {"toy": labels}, clients, seed, **options)


def split_if_possible(text, labels, clients, seed, **options):
    """None where a class with fewer samples than owners leaves a client with nothing; other errors are raised."""
    try:
        return split(text, labels, clients, seed, **options)
    except IlkError as refusal:
        if not re.search("gets no (training|test) sample|1,000 tries", str(refusal)):
            raise
        return None


def owned(share):
    held_out = [share.test] if share.test_from == "train" else []
    return np.concatenate([share.train, share.validation, *held_out])


def labels_of(share, labels):
    return set(labels.train[owned(share)].tolist())


def error(pattern, text, labels, clients, **options):
    with pytest.raises(IlkError, match=pattern):
        split(text, labels, clients, **options)


# ---- what every split keeps


@pytest.mark.parametrize("text", SINGLE)
@pytest.mark.parametrize("policy", ["label-set", "own", "holdout"])
@pytest.mark.parametrize("auxiliary", [0, 37])
def test_every_sample_has_exactly_one_owner(text, policy, auxiliary):
    labels = made()
    whole = split(text, labels, 12, test_policy=policy, auxiliary=auxiliary)
    everything = np.concatenate([whole.auxiliary, *map(owned, whole.shares)])
    assert sorted(everything.tolist()) == list(range(400))
    assert len(whole.auxiliary) == auxiliary
    assert {share.test_from for share in whole.shares} == {"train" if policy == "holdout" else "test"}
    check(whole, {"toy": labels})


@quick
@given(
    text=st.sampled_from(["iid", "label-skew:0.4", "dirichlet:1"]),
    policy=st.sampled_from(["label-set", "own", "holdout"]),
    classes=st.integers(2, 6),
    clients=st.integers(6, 12),
    seed=st.integers(0, 10**6),
    auxiliary=st.integers(0, 60),
)
def test_every_sample_has_exactly_one_owner_whatever_the_class_sizes(text, policy, classes, clients, seed, auxiliary):
    labels = skewed(300, 150, classes, seed)
    whole = split_if_possible(text, labels, clients, seed, test_policy=policy, auxiliary=auxiliary)
    assume(whole is not None)
    everything = np.concatenate([whole.auxiliary, *map(owned, whole.shares)])
    assert sorted(everything.tolist()) == list(range(300))
    for share in whole.shares:
        assert len(share.train) >= 1
        assert len(share.test) >= 1


@quick
@given(samples=st.integers(1, 90), policy=st.sampled_from(["own", "holdout"]))
def test_sizes_of_the_parts_of_one_client(samples, policy):
    labels = Labels(np.zeros(samples, dtype=np.int64), np.zeros(500, dtype=np.int64), 1)
    if policy == "holdout" and samples == 1:
        error("Client 'c00' gets no test sample.*it owns a single sample", "iid", labels, 1, test_policy=policy)
        return
    (share,) = split("iid", labels, 1, test_policy=policy).shares
    held_out = int(samples * 0.3 + 0.5) if policy == "holdout" else 0
    left = samples - held_out
    validation = 0 if left < 2 else max(1, int(left * 0.1 + 0.5))
    assert (len(share.validation), len(share.train)) == (validation, left - validation)
    assert len(share.test) == (held_out if policy == "holdout" else max(50, samples))


@pytest.mark.parametrize("text", SINGLE)
def test_same_seed_same_partition_and_other_seed_another(text):
    labels = made()
    first, again, other = (split(text, labels, 10, seed, auxiliary=20) for seed in (3, 3, 4))
    assert first == again
    assert not np.array_equal(first.auxiliary, other.auxiliary)
    for one, two in zip(first.shares, other.shares, strict=True):
        assert set(owned(one).tolist()) != set(owned(two).tolist())
        assert not np.array_equal(one.test, two.test)


@pytest.mark.parametrize("text", SINGLE)
def test_the_test_policy_does_not_change_what_is_trained_on(text):
    labels = made(test=1000)
    by_set, own, holdout = (split(text, labels, 10, test_policy=p) for p in ("label-set", "own", "holdout"))
    for one, two, three in zip(by_set.shares, own.shares, holdout.shares, strict=True):
        assert np.array_equal(one.train, two.train)
        assert np.array_equal(one.validation, two.validation)
        assert not np.array_equal(one.test, two.test)
        assert set(owned(three).tolist()) == set(owned(one).tolist())


def test_validation_and_holdout_are_chosen_at_random():
    labels = made(1000, classes=2, shuffle=False)
    (share,) = split("iid", labels, 1, test_policy="holdout").shares
    for part in (share.train, share.validation, share.test):
        assert not np.array_equal(part, np.sort(part))
        assert 400 < part.mean() < 600


def test_validation_and_holdout_are_of_all_the_clients_labels():
    labels = made(4000)
    for share in split("label-skew:0.2", labels, 10, test_policy="holdout").shares:
        for part in (share.train, share.validation, share.test, share.train[: len(share.train) // 3]):
            assert set(labels.train[part].tolist()) == labels_of(share, labels)


def test_ids_have_the_width_of_the_number_of_clients():
    def ids(n):
        return [share.id for share in split("iid", made(300), n).shares]

    assert ids(3) == ["c00", "c01", "c02"]
    assert ids(100)[99] == "c99"
    assert ids(101)[::100] == ["c000", "c100"]


def test_a_partition_says_how_it_was_made():
    labels = made()
    whole = partition("digits", "Label-Skew:.20", {"toy": labels}, 10, 7, "label-set")
    assert (whole.data, whole.split, whole.test_policy, whole.seed, whole.classes) == (
        "digits",
        "label-skew:0.2",
        "label-set",
        7,
        10,
    )
    assert whole.fingerprints == {"toy": labels.fingerprint()}


# ---- the rules


@quick
@given(st.integers(1, 40), st.integers(0, 1000))
def test_iid_shares_differ_by_one_sample_at_most(clients, seed):
    shares = split("iid", made(200), clients, seed).shares
    sizes = [len(owned(share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert {share.group for share in shares} == {0}


@quick
@given(
    rho=st.sampled_from([0.04, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0]),
    clients=st.integers(1, 25),
    seed=st.integers(0, 1000),
)
def test_label_skew_gives_each_client_its_labels(rho, clients, seed):
    labels = made(1000)
    whole = split(f"label-skew:{rho}", labels, clients, seed)
    count = max(1, round(rho * 10))
    held = [labels_of(share, labels) for share in whole.shares]
    for client, own in enumerate(held):
        assert len(own) == count
        assert client % 10 in own
    for label in range(10):  # the owners of a class have nearly equal parts of it, the earlier ones the larger
        owners = [share for share, own in zip(whole.shares, held, strict=True) if label in own]
        sizes = [np.sum(labels.train[owned(share)] == label) for share in owners]
        assert sizes == [100 // len(owners) + (i < 100 % len(owners)) for i in range(len(owners))]
    unused = sorted(set(range(10)) - set().union(*held))
    assert whole.notes == ({"classes_without_owner": unused} if unused else {})
    assert {share.group for share in whole.shares} == {None}


def test_label_skew_draws_the_further_labels_uniformly():
    labels = made(4000)
    held = [labels_of(share, labels) for share in split("label-skew:0.3", labels, 400).shares]
    further = np.bincount([label for i, own in enumerate(held) for label in own - {i % 10}], minlength=10)
    assert further.sum() == 800
    assert further.min() > 50  # 80 are expected, with a standard deviation below 9
    assert further.max() < 110
    assert len({frozenset(own) for own in held[::10]}) > 15  # of 36 possible


def test_dirichlet_keeps_its_least_and_says_how_often_it_drew():
    labels = made(2000)
    for seed in range(5):
        whole = split("dirichlet:0.1", labels, 8, seed)
        assert min(len(owned(share)) for share in whole.shares) >= 10
        assert whole.notes.keys() == {"dirichlet_tries"}
        assert whole.notes["dirichlet_tries"] >= 1
        assert {share.group for share in whole.shares} == {None}


def test_dirichlet_on_tiny_data_asks_for_less():
    whole = split("dirichlet:0.5", made(60, classes=3), 12)  # 5 samples a client on average
    assert 1 <= min(len(owned(share)) for share in whole.shares) < 10


def test_dirichlet_draws_again_until_each_client_has_enough():
    tries = [split("dirichlet:0.1", made(800), 40, seed).notes["dirichlet_tries"] for seed in range(6)]
    assert max(tries) > 1


def test_dirichlet_skew_grows_as_alpha_falls():
    labels = made(4000)

    def largest_class(text):
        counts = [np.bincount(labels.train[owned(share)], minlength=10) for share in split(text, labels, 10).shares]
        return np.mean([count.max() / count.sum() for count in counts])

    assert largest_class("dirichlet:0.05") > 0.5
    assert largest_class("dirichlet:0.05") > largest_class("dirichlet:1") + 0.15
    assert largest_class("dirichlet:10000") < 0.13


def test_dirichlet_no_class_goes_to_a_client_that_has_its_share():
    labels = made(1000)
    for seed in range(10):
        for share in split("dirichlet:0.2", labels, 5, seed).shares:
            counts = np.bincount(labels.train[owned(share)], minlength=10)  # classes are dealt in the order 0, 1, ...
            before = np.cumsum(counts) - counts
            assert not counts[before >= 200].any()


@pytest.mark.parametrize(("groups", "turns"), [(1, [0]), (2, [0, 2]), (4, [0, 1, 2, 3])])
def test_rotate_turns_each_group_by_its_own_angle(groups, turns):
    shares = split(f"rotate:{groups}", made(), 9).shares
    assert [share.group for share in shares] == [i % groups for i in range(9)]
    assert [share.turns for share in shares] == [turns[i % groups] for i in range(9)]


@quick
@given(classes=st.integers(1, 12), data=st.data(), seed=st.integers(0, 1000))
def test_permute_labels_no_two_groups_agree_on_any_class(classes, data, seed):
    groups = data.draw(st.integers(1, classes))
    shares = split(f"permute-labels:{groups}", made(100, classes=classes), groups + 2, seed).shares
    assert [share.group for share in shares] == [i % groups for i in range(groups + 2)]
    assert shares[0].labels == tuple(range(classes))
    for share in shares:
        assert sorted(share.labels) == list(range(classes))
        assert share.labels == shares[share.group].labels
    for label in range(classes):
        assert len({share.labels[label] for share in shares[:groups]}) == groups


def test_permute_labels_depends_on_the_seed():
    assert len({split("permute-labels:2", made(), 2, seed).shares[1].labels for seed in range(5)}) == 5


# ---- mix4


def test_mix4_at_100_clients_is_the_papers_mix():
    labels = mix4_labels()
    whole = partition("mix4", "mix4", labels, 100, 0)
    assert [share.source for share in whole.shares] == [name for name, count in MIX4.items() for _ in range(count)]
    assert [share.group for share in whole.shares] == [0] * 14 + [1] * 32 + [2] * 26 + [3] * 28
    assert {len(owned(share)) for share in whole.shares} == {500}
    assert whole.classes == 40
    for share in whole.shares:
        assert share.labels == tuple(range(10 * share.group, 10 * share.group + 10))
        assert np.array_equal(share.test, np.arange(len(labels[share.source].test)))
        assert share.test_from == "test"
    for name in MIX4:
        everything = np.concatenate([owned(share) for share in whole.shares if share.source == name])
        assert len(np.unique(everything)) == len(everything)
    assert whole.fingerprints.keys() == set(MIX4)
    check(whole, labels)


def test_mix4_takes_equal_shares_of_a_source_that_is_too_small():
    whole = partition("mix4", "mix4", {**mix4_labels(), "usps": made(1000)}, 100, 0)
    sizes = [len(owned(share)) for share in whole.shares]
    assert sizes == [1000 // 14] * 14 + [500] * 86


@given(st.integers(4, 300))
@settings(deadline=None, database=None)
def test_mix4_counts_follow_the_papers_and_nobody_is_left_out(clients):
    counts = largest_remainder(list(MIX4.values()), clients)
    assert counts.sum() == clients
    assert counts.min() >= 1
    assert np.all(np.abs(counts - clients * np.array([14, 32, 26, 28]) / 100) < 1)


def test_mix4_train_and_test_do_not_depend_on_the_policy():
    labels = mix4_labels(scale=100)
    assert partition("mix4", "mix4", labels, 8, 0, "own").shares == (
        partition("mix4", "mix4", labels, 8, 0, "label-set").shares
    )


@pytest.mark.parametrize(
    ("clients", "options", "leave_out", "pattern"),
    [
        (3, {}, "", "3 clients are too few. Take 4 or more"),
        (8, {}, "svhn", "needs the data sets usps, cifar10, svhn, fashion-mnist; missing: svhn"),
        (8, {"test_policy": "holdout"}, "", "tests on the whole test split.*Take the policy"),
        (8, {"auxiliary": 5}, "", "keeps no auxiliary samples.*Give 0"),
    ],
)
def test_mix4_refuses(clients, options, leave_out, pattern):
    labels = {name: source for name, source in mix4_labels(scale=100).items() if name != leave_out}
    with pytest.raises(IlkError, match=pattern):
        partition("mix4", "mix4", labels, clients, 0, **options)


# ---- test data


def test_label_set_tests_all_images_of_the_clients_labels():
    labels = made()
    for share in split("label-skew:0.2", labels, 10, test_policy="label-set").shares:
        mine = labels_of(share, labels)
        assert share.test.tolist() == [i for i, label in enumerate(labels.test) if label in mine]


def test_label_set_counts_a_label_of_which_there_is_a_single_sample_in_validation():
    labels = Labels(np.array([0, 1]), np.array([0, 1, 1]), 2)
    (share,) = split("iid", labels, 1, test_policy="label-set").shares
    assert len(share.validation) == 1
    assert share.test.tolist() == [0, 1, 2]


@quick
@given(
    text=st.sampled_from(["iid", "label-skew:0.5", "dirichlet:0.5"]),
    test=st.integers(5, 400),
    seed=st.integers(0, 10**6),
)
def test_own_is_proportional_to_the_clients_classes_and_as_large_as_allowed(text, test, seed):
    labels = skewed(300, test, 5, seed)
    whole = split_if_possible(text, labels, 6, seed, test_policy="own")
    assume(whole is not None)
    available = np.bincount(labels.test, minlength=5)
    for share in whole.shares:
        weights = np.bincount(labels.train[owned(share)], minlength=5)
        trained = np.bincount(labels.train[share.train], minlength=5)
        weights[(trained == 0) | (available == 0)] = 0
        counts = np.bincount(labels.test[share.test], minlength=5)
        assert len(np.unique(share.test)) == len(share.test) >= 1
        assert np.all(counts <= available)
        assert not counts[trained == 0].any()
        assert np.all(np.abs(counts - len(share.test) * weights / weights.sum()) < 1)
        limit = max(50, len(owned(share)))
        assert len(share.test) <= limit
        larger = (len(share.test) + 1) * weights / weights.sum()
        assert len(share.test) == limit or np.any(larger > available)


def test_own_draws_a_test_set_of_its_own_for_each_client():
    shares = split("iid", made(test=2000, classes=1), 4).shares  # all four ask for the same counts
    assert len({tuple(share.test.tolist()) for share in shares}) == 4
    assert max(share.test.max() for share in shares) > 1500  # not only the first of each class


def test_own_leaves_out_classes_that_the_test_split_does_not_have():
    labels = Labels(np.repeat([0, 1], 50), np.zeros(80, dtype=np.int64), 2)
    (share,) = split("iid", labels, 1).shares
    assert len(share.test) == 80


# ---- auxiliary data


@quick
@given(count=st.integers(0, 120), classes=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_auxiliary_takes_equally_many_of_each_class_as_far_as_possible(count, classes, seed):
    labels = skewed(120, 1, classes, seed)
    chosen = choose_auxiliary(labels, count, seed, "toy")
    assert len(np.unique(chosen)) == len(chosen) == count
    taken, available = (np.bincount(y, minlength=classes) for y in (labels.train[chosen], labels.train))
    for c in range(classes):  # a class that gave less than another by more than one had no more to give
        assert taken[c] == available[c] or taken[c] >= taken.max() - 1


def test_auxiliary_is_random_within_and_between_classes():
    labels = made(100)
    chosen = [choose_auxiliary(labels, 13, seed, "toy") for seed in range(20)]
    assert len(np.unique(np.concatenate(chosen))) > 80
    favoured = {int(c) for one in chosen for c in np.flatnonzero(np.bincount(labels.train[one], minlength=10) == 2)}
    assert favoured == set(range(10))


# ---- largest remainder


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30).filter(any), st.integers(0, 5000))
@settings(deadline=None, database=None)
def test_largest_remainder_sums_up_and_stays_within_one_of_the_quota(weights, total):
    parts = largest_remainder(weights, total)
    assert parts.sum() == total
    assert np.all(np.abs(parts - np.array(weights) * total / sum(weights)) < 1)
    assert not parts[np.array(weights) == 0].any()


def test_largest_remainder_by_hand():
    assert largest_remainder([47, 16, 158, 8, 11], 10).tolist() == [2, 1, 7, 0, 0]
    assert largest_remainder([1, 1, 1], 4).tolist() == [2, 1, 1]


# ---- parsing


@pytest.mark.parametrize(
    ("given_text", "normal"),
    [
        ("iid", "iid"),
        (" MIX4 ", "mix4"),
        ("label-skew: 0.20", "label-skew:0.2"),
        ("label-skew:1", "label-skew:1"),
        ("dirichlet:1.0", "dirichlet:1"),
        ("dirichlet:0.123456789", "dirichlet:0.123456789"),
        ("rotate:4", "rotate:4"),
        ("permute-labels:02", "permute-labels:2"),
    ],
)
def test_parse_normalises(given_text, normal):
    assert str(parse(given_text)) == normal
    assert str(parse(normal)) == normal


@pytest.mark.parametrize("text", ["label-skew:0.3", "rotate:4", "dirichlet:0.1"])
def test_normalised_text_and_free_text_give_the_same_shares(text):
    name, value = text.split(":")
    labels = made(600)
    assert split(text, labels, 5) == split(f" {name.upper()} : {float(value):.2f} ".replace("4.00", "4"), labels, 5)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("label-skw:0.2", "no split 'label-skw'. Did you mean 'label-skew'. There are: dirichlet, iid"),
        ("", "no split ''"),
        ("iid:3", "'iid' takes no parameter.*Write 'iid'"),
        ("iid:", "'iid' takes no parameter"),
        ("label-skew", "above 0 and at most 1.*gives none.*for example 'label-skew:0.2'"),
        ("label-skew:", "gives none"),
        ("label-skew:1.5", "above 0 and at most 1.*gives '1.5'"),
        ("label-skew:0", "gives '0'"),
        ("label-skew:nan", "gives 'nan'"),
        ("label-skew:0.2:3", "gives '0.2:3'"),
        ("dirichlet:0", "a number above 0.*gives '0'"),
        ("dirichlet:-1", "gives '-1'"),
        ("dirichlet:nan", "gives 'nan'"),
        ("dirichlet:inf", "gives 'inf'"),
        ("rotate:x", "1, 2 or 4 groups.*gives 'x'.*for example 'rotate:4'"),
        ("rotate:3", "gives '3'"),
        ("rotate:2.0", "gives '2.0'"),
        ("permute-labels:0", "1 or more groups.*gives '0'"),
    ],
)
def test_parse_refuses(text, pattern):
    with pytest.raises(IlkError, match=pattern):
        parse(text)


def test_the_examples_in_the_messages_are_allowed():
    for name, rule in RULES.items():
        assert parse(f"{name}:{rule.example}" if rule.parameter else name).name == name


def test_sources_of():
    assert sources_of("mix4") == ("usps", "cifar10", "svhn", "fashion-mnist")
    assert sources_of("digits") == ("digits",)


# ---- refusals


def test_refuses_numbers_that_do_not_fit():
    error("at least 1 client; 0 were asked for", "iid", made(), 0)
    error("401 clients cannot share 400 training samples. Take at most 400", "iid", made(), 401)
    error("cannot have -1 auxiliary samples. Give 0 or more", "iid", made(), 5, auxiliary=-1)
    error("396 auxiliary samples of 400 leave 4 for 5 clients. Take at most 395", "iid", made(), 5, auxiliary=396)
    error("needs 11 ways to name each class.*has 10 classes. Take a K from 1 to 10", "permute-labels:11", made(), 5)
    assert len(split("iid", made(), 5, auxiliary=395).shares) == 5
    assert len(split("iid", made(), 400).shares) == 400


def test_refuses_an_unknown_test_policy():
    error("no test policy 'label_set'. Did you mean 'label-set'", "iid", made(), 5, test_policy="label_set")


def test_names_the_client_that_has_nothing_to_train_on():
    labels = Labels(np.array([0] * 50 + [1] * 3), np.array([0, 1]), 2)
    error("Client 'c07' gets no training sample.*Take fewer clients", "label-skew:0.5", labels, 9)


def test_names_the_client_that_has_nothing_to_test_on():
    labels = Labels(np.array([0] * 50 + [1] * 30), np.zeros(20, dtype=np.int64), 2)
    for policy in ("label-set", "own"):
        error("Client 'c01' gets no test sample from 'toy'.*has none", "label-skew:0.5", labels, 4, test_policy=policy)


def test_says_that_dirichlet_found_nothing():
    error(
        "In 1,000 tries, 'dirichlet:0.001' gave no split of 100 samples.*20 clients.*Take a larger ALPHA",
        "dirichlet:0.001",
        made(100, classes=2),
        20,
    )


def test_refuses_labels_outside_of_the_classes():
    labels = Labels(np.array([1, 2, 3]), np.array([1, 2]), 3)
    error("'toy' has labels from 1 to 3; with 3 classes they must lie from 0 to 2", "iid", labels, 2)


@pytest.mark.parametrize("names", [(), ("one", "two")])
def test_refuses_more_or_less_than_one_source(names):
    with pytest.raises(IlkError, match=r"'iid' cuts one data set; given: (none|one, two)"):
        partition("toy", "iid", {name: made() for name in names}, 2, 0)
