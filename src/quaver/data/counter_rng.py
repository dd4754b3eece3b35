"""A counter-based random number generator: a pure function of seed, epoch and index, without state.

A run that was interrupted sees the same order and the same pixels again, with any number of worker processes.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: consecutive multiples lie far apart
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def uniform(seed: int, epoch: int, indices: ArrayLike, count: int) -> NDArray[np.float64]:
    """``count`` numbers in [0, 1) for every index.

    Counters scrambled by the finalizer of SplitMix64 (Steele et al., 2014).

    >>> bool((uniform(0, 1, [5, 7], 3)[1] == uniform(0, 1, [7], 3)[0]).all())
    True
    """
    key = _scrambled(_scrambled(_as_uint64([seed])) + _as_uint64([epoch]))
    start = _scrambled(key + _as_uint64(indices))[:, None]
    scrambled = _scrambled(start + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)
    return (scrambled >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The numbers below ``count``, shuffled for an epoch."""
    return np.argsort(uniform(seed, epoch, np.arange(count), 1)[:, 0], kind="stable")


def _as_uint64(numbers: ArrayLike) -> NDArray[np.uint64]:
    return np.asarray(numbers, np.int64).astype(np.uint64)


def _scrambled(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = bits + _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))
