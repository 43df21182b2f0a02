from __future__ import annotations

import threading
import time

import pytest

from ilk.clusters.threads import each


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads):
    def slow_first(k):
        time.sleep(0.02 if k == 0 else 0)
        return k * k

    assert list(each(slow_first, list(range(20)), threads)) == [k * k for k in range(20)]
    assert list(each(slow_first, [], threads)) == []


def test_only_a_few_pieces_are_ahead():
    """What has been computed and not yet taken is bounded, or a large matrix would be in memory twice."""
    begun = []
    results = each(lambda k: begun.append(k), list(range(100)), threads=2)
    next(results)
    time.sleep(0.05)
    assert len(begun) <= 6
    results.close()
    time.sleep(0.05)
    assert len(begun) <= 6, "and who stops listening stops the work"


def test_one_piece_needs_no_thread():
    assert list(each(lambda _: threading.get_ident(), [0], threads=4)) == [threading.get_ident()]


def test_an_error_arrives():
    def fail(k):
        raise ValueError(k)

    with pytest.raises(ValueError, match="0"):
        list(each(fail, [0, 1, 2], threads=2))
