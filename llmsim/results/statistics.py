"""How sure a figure is: intervals over replications and within a run, the warm-up, and the power of paired runs.

Beside the metrics: series and samples in, intervals out. Nothing here knows what a request is.
"""

from typing import NamedTuple

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Share of intervals that should hold the true value."""
BATCHES = 25
"""Parts a series is cut into: few enough that each is long against its memory, enough for a t quantile near 2."""
RESAMPLES = 200
"""Enough for a standard error: its own error is 1 / sqrt(2 * 200) = 5 %."""
MSER_BATCH = 5
"""Observations averaged before the MSER rule is applied, hence MSER-5."""


class Interval(NamedTuple):
    """A value and the bounds of its interval of confidence; the bounds are NaN where too little is known."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance of the bounds; NaN when they are."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float:
        """The half-width as a share of the value; NaN when it is not known or the value is 0."""
        return self.half_width / abs(self.value) if self.value else float("nan")


def t_interval(values: Floats, level: float = LEVEL) -> Interval:
    """The mean of independent values, shape ``(n,)``, with Student's t interval; NaN bounds for fewer than two."""
    count = len(values)
    if not count:
        return Interval(*(float("nan"),) * 3)
    mean = float(np.mean(values))
    if count < 2:
        return Interval(mean, float("nan"), float("nan"))
    half = _t(count - 1, level) * float(np.std(values, ddof=1)) / count**0.5
    return Interval(mean, mean - half, mean + half)


def batch_means(series: Floats, level: float = LEVEL) -> Interval:
    """The mean of a series in order of time, shape ``(n,)``, whose neighbours depend on each other.

    The means of ``BATCHES`` consecutive parts are nearly independent when each part is long against the series'
    memory (Law, "Simulation Modeling and Analysis", 5th edition, section 9.5.3). A series too short to be cut
    has NaN bounds.
    """
    size = len(series) // BATCHES
    if size < 2:
        return Interval(float(np.mean(series)) if len(series) else float("nan"), float("nan"), float("nan"))
    parts = series[len(series) - size * BATCHES :].reshape(BATCHES, size).mean(axis=1)
    spread = t_interval(parts, level).half_width
    mean = float(np.mean(series))
    return Interval(mean, mean - spread, mean + spread)


def block_bootstrap(series: Floats, percentile: float, level: float = LEVEL) -> Interval:
    """A percentile of a series in order of time, shape ``(n,)``, from resampled blocks of neighbours.

    Right where the series has some hundred values beyond the percentile; with fewer it is too narrow.
    ``BATCHES`` consecutive blocks are drawn with replacement, so that what neighbours have in common stays in
    (Kuensch, "The jackknife and the bootstrap for general stationary observations", 1989). The standard error of
    the resampled percentiles times Student's t makes the interval; it is the same for the same series.
    """
    if not len(series):
        return Interval(*(float("nan"),) * 3)
    value = float(np.percentile(series, percentile))
    if len(series) < 2 * BATCHES:
        return Interval(value, float("nan"), float("nan"))
    order = np.argsort(series, kind="stable")
    drawn = Generator(Philox(0)).multinomial(BATCHES, np.full(BATCHES, 1 / BATCHES), RESAMPLES)
    resampled = series[order[_ranks((order * BATCHES) // len(series), drawn, percentile / 100)]]
    error = float(np.std(resampled)) * (BATCHES / (BATCHES - 1)) ** 0.5
    half = _t(BATCHES - 1, level) * error
    return Interval(value, value - half, value + half)


def _ranks(blocks: NDArray[np.int64], drawn: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """The place of a quantile in the ordered series, whose ``blocks`` count as often as ``drawn``: by bisection."""
    counts = np.zeros((BATCHES, len(blocks)), np.int64)
    counts[blocks, np.arange(len(blocks))] = 1
    below = np.cumsum(counts, axis=1)
    wanted = share * (drawn @ below[:, -1])
    low, high = np.zeros(len(drawn), np.int64), np.full(len(drawn), len(blocks) - 1)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = (drawn * below[:, middle].T).sum(axis=1) >= wanted
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low


def mser5(series: Floats) -> int | None:
    """How many observations at the start of a series, shape ``(n,)``, are its warm-up.

    The cut that makes the standard error of the rest smallest, over means of five observations (White, "An
    effective truncation heuristic for bias reduction in simulation output", 1997). None when that is in the second
    half: the series has not settled.
    """
    count = len(series) // MSER_BATCH
    if count < 2 * MSER_BATCH:
        return 0
    means = series[: count * MSER_BATCH].reshape(count, MSER_BATCH).mean(axis=1)
    left = np.arange(count, 0, -1)
    centred = means - means.mean()
    rest, squares = (np.cumsum(each[::-1])[::-1] for each in (centred, centred * centred))
    error = np.maximum(squares - rest * rest / left, 0.0) / left**2
    cut = int(np.argmin(error[: count - MSER_BATCH]))
    return cut * MSER_BATCH if cut <= count // 2 else None


def paired_power(effect: float, sd: float, pairs: int, level: float = LEVEL) -> float:
    """The chance that a paired t test sees an ``effect``, with pairs whose differences have deviation ``sd``.

    From the noncentral t distribution, two-sided (Cohen, "Statistical Power Analysis", 2nd edition, chapter 2).
    """
    if pairs < 2:
        return 0.0
    if sd <= 0:
        return 1.0 if effect else 0.0
    from scipy.stats import nct

    shift, critical = abs(effect) / sd * np.sqrt(pairs), _t(pairs - 1, level)
    return float(nct.sf(critical, pairs - 1, shift) + nct.cdf(-critical, pairs - 1, shift))


def pairs_needed(effect: float, sd: float, power: float = 0.8, level: float = LEVEL) -> int:
    """The fewest pairs of runs (above 100: to 1 %) that see an ``effect`` with this power; see ``paired_power``.

    Raises ValueError for an effect of 0, which no number of pairs sees.
    """
    if not effect:
        raise ValueError("an effect of 0 cannot be seen by any number of pairs")
    pairs = 2
    while paired_power(effect, sd, pairs, level) < power:
        pairs += max(1, pairs // 100)
    return pairs


def chance_of_luck(effect: float, run_cv: float) -> float:
    """The chance that one run of each of two equal systems differs by ``effect`` or more in the wished direction.

    Runs that vary with ``run_cv`` (a share, normal) have differences with deviation ``sqrt(2) * run_cv``.
    """
    from scipy.stats import norm

    return float(norm.sf(effect / (np.sqrt(2) * run_cv))) if run_cv else 0.0


def percentile_ranks(count: int, percentile: float) -> tuple[float, float]:
    """Between which ranks of ``count`` independent values the true percentile lies, with 95 %.

    How many of the values are below it is binomial: rank n*p, give or take 1.96 * sqrt(n*p*(1-p)) (David and
    Nagaraja, "Order Statistics", 3rd edition, section 7.1).
    """
    share = percentile / 100
    rank, spread = count * share, 1.96 * (count * share * (1 - share)) ** 0.5
    return rank - spread, rank + spread


def _t(degrees: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + level) / 2))
