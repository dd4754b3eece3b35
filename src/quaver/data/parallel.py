"""A function over many items in several threads: results in order, and only a few of them in memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 4  # results per worker that may wait for their turn


@contextmanager
def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Iterator[Result]]:
    """``map(function, items)`` by ``workers`` threads, which have ended when the ``with`` block has.

    For work that releases Python's global lock, as reading images does: decoding and scaling, 95 % of it, run without it.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        yield _results(pool, function, items, _AHEAD * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _results(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
