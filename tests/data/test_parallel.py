import threading
import time

import pytest

from limits import AN_HOUR
from quaver.data.parallel import in_order


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers):
    def slow_at_first(item):
        time.sleep(0.01 if item % 7 == 0 else 0)
        return item * item

    with in_order(slow_at_first, range(100), workers) as results:
        assert list(results) == [item * item for item in range(100)]


def test_only_a_few_results_are_ahead_of_the_one_in_hand():
    done = []

    with in_order(lambda item: done.append(item), range(10_000), 2) as results:
        for taken, _ in enumerate(results):
            assert len(done) <= taken + 1 + 8
            if taken == 50:
                break

    assert len(done) < 100


def test_workers_work_at_the_same_time():
    both = threading.Barrier(2, timeout=AN_HOUR)

    with in_order(lambda item: both.wait() >= 0, range(2), 2) as results:
        assert list(results) == [True, True]


def test_an_error_comes_out_where_its_item_stands_and_no_worker_is_left():
    def fail_at_3(item):
        if item == 3:
            raise ValueError("three")
        return item

    before, seen = threading.active_count(), []
    with pytest.raises(ValueError, match="three"), in_order(fail_at_3, range(100), 2) as results:
        seen.extend(results)

    assert threading.active_count() == before


def test_items_without_end_end_with_the_block():
    def for_ever():
        while True:
            yield 1

    with in_order(str, for_ever(), 2) as results:
        assert next(results) == "1"
