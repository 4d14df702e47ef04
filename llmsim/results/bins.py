"""Samples of any size in constant memory: counts in bins of equal ratio."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATIO = 1.005
"""Width of a bin: a quantile read from the bins is off by at most 0.5 % of its value."""

_SMALLEST_S = 1e-9
_BINS = 1 + int(np.ceil(np.log(1e9 / _SMALLEST_S) / np.log(RATIO)))
"""From a nanosecond to 30 years; the first bin is for what is less."""


class LogBins:
    """A sample of times in seconds. Each bin keeps its count and its sum, so that the mean is exact."""

    __slots__ = ("_counts", "_largest", "_sums")

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS + 1, np.int64)
        self._sums = np.zeros(_BINS + 1)
        self._largest = 0.0

    def add(self, values_s: Floats, counts: Ints | None = None) -> None:
        """Add values, each occurring ``counts`` times (once without); NaN is left out."""
        if counts is None:
            values_s = values_s[~np.isnan(values_s)]
            counts = np.ones(len(values_s), np.int64)
        if not len(values_s):
            return
        place = np.log(np.maximum(values_s, _SMALLEST_S) / _SMALLEST_S) / np.log(RATIO)
        index = np.where(values_s < _SMALLEST_S, 0, 1 + np.minimum(place.astype(np.int64), _BINS - 1))
        self._counts += np.bincount(index, counts, _BINS + 1).astype(np.int64)
        self._sums += np.bincount(index, values_s * counts, _BINS + 1)
        self._largest = max(self._largest, float(values_s[counts > 0].max(initial=0.0)))

    def sample(self) -> tuple[Floats, Ints]:
        """The mean of each bin that is not empty, ascending, and its count; the largest value stands alone."""
        full = np.flatnonzero(self._counts)
        if not len(full):
            return np.zeros(0), np.zeros(0, np.int64)
        counts, sums = self._counts[full], self._sums[full]
        counts[-1] -= 1
        sums[-1] -= self._largest
        kept = counts > 0
        means = sums[kept] / counts[kept]
        return np.append(means, self._largest), np.append(counts[kept], 1)
