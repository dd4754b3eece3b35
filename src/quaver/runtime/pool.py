"""Lending what serves one thread at a time to many of them."""

import os
from collections.abc import Callable
from threading import Condition, Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Copy = TypeVar("Copy")

_SECOND_LOOK = 1.0  # seconds; Ctrl-C may hit a thread just after it was told that one is back, or while it has one


class ObjectPool(Generic[Copy]):
    """Copies of something that serves one thread at a time, made as they are needed: ``take`` one, ``give`` it back.

    When all are lent, another is made, by one thread at a time: the others take what comes back meanwhile. There are never
    more than ``most``. Who takes alone always gets the same one.
    """

    def __init__(self, make: Callable[[], Copy], most: int) -> None:
        self.make = make
        self.most = most
        self.idle: list[Copy] = []
        self.renew()
        _POOLS.add(self)

    def renew(self) -> None:
        """Keep what is idle, and forget who has the rest: after a fork, threads that are not there any more."""
        self.lock = Lock()
        self._back = Condition(self.lock)
        self._making = False
        self._alive: WeakSet[Copy] = WeakSet(self.idle)

    def take(self) -> Copy:
        """One that nobody else has, until it is given back."""
        with self.lock:
            while not self.idle:
                if not self._making and len(self._alive) < self.most:
                    self._making = True
                    break
                self._back.wait(_SECOND_LOOK)
            else:
                return self.idle.pop()
        try:
            made = self.make()
            self._alive.add(made)
            return made
        finally:
            with self.lock:
                self._making = False
                self._back.notify()

    def give(self, copy: Copy) -> None:
        """Lend it to the next."""
        with self.lock:
            self.idle.append(copy)
            self._back.notify()


_POOLS: WeakSet[ObjectPool[Any]] = WeakSet()


def _renew_all() -> None:
    for pool in list(_POOLS):
        pool.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def at_once(threads: int) -> int:
    """How many calls with so many threads each the processor has cores for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)
