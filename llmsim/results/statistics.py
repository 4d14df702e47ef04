"""How sure a figure is: intervals over replications and within a run, the warm-up, and the power of paired runs.

Beside the metrics: series and samples in, intervals out. Nothing here knows what a request is.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Share of intervals that should hold the true value."""
BATCHES = 20
"""Parts a series is cut into: few enough that each is long against its memory, enough to see whether it is."""
MOST_CORRELATION = 0.9
"""Of neighbouring batches: with more they would be worth a single one."""
WIDER = (1, 2, 5, 10)
"""Times as many values as are beyond a percentile, whose memory is looked at: those few alone tell too little of it."""
FEWEST_BEYOND = 3.0
"""Independent values beyond a percentile with fewer of which nothing bounds it from above."""
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
    memory (Law, "Simulation Modeling and Analysis", 5th edition, section 9.5.3); see ``_error_of_mean`` for when
    they are not. A series too short to be cut has NaN bounds.
    """
    if len(series) < 2 * BATCHES:
        return Interval(float(np.mean(series)) if len(series) else float("nan"), float("nan"), float("nan"))
    error, batches = _error_of_mean(series)
    mean, half = float(np.mean(series)), _t(batches - 1, level) * error
    return Interval(mean, mean - half, mean + half)


def percentile_interval(series: Floats, percentile: float, level: float = LEVEL) -> Interval:
    """A percentile of a series in order of time, shape ``(n,)``, whose neighbours depend on each other.

    The share of values beyond a percentile has an interval, whose ends are percentiles of the same series
    (Woodruff, "Confidence intervals for medians and other position measures", 1952). That interval is Clopper and
    Pearson's for as many independent values as the series is worth (Korn and Graubard, "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data", 1998): the values beyond
    it are as dependent as they look, or as the more frequent ones of ``WIDER`` are on average. The upper bound is NaN
    where it lies beyond the series or fewer than ``FEWEST_BEYOND`` independent values are beyond the percentile;
    both are for a series too short to be cut into batches.
    """
    if not len(series):
        return Interval(*(float("nan"),) * 3)
    if len(series) < 2 * BATCHES:
        return Interval(float(np.percentile(series, percentile)), float("nan"), float("nan"))
    ordered, share = np.sort(series), 1 - percentile / 100
    wider = [times * share for times in WIDER if times == 1 or times * share <= 0.5]
    thresholds = ordered[[int((1 - each) * (len(series) - 1)) for each in wider]]
    worths = [_worth(series > each, level) for each in thresholds]
    worth = min(worths[0], float(np.exp(np.mean(np.log(worths)))))
    beyond = worth * share
    fewest, most = _share_of(beyond, worth, level)
    value, low, high = (float(each) for each in np.quantile(ordered, (1 - share, 1 - most, 1 - fewest)))
    bounded = beyond >= FEWEST_BEYOND and fewest * len(series) >= 1
    return Interval(value, low, high if bounded else float("nan"))


def _error_of_mean(series: Floats | NDArray[np.bool_]) -> tuple[float, float]:
    """The standard error of the mean by batches, and how many independent batches those are worth.

    Batches that are short against the series' memory are correlated, which is taken as that of a first-order
    autoregression (Steiger et al., "ASAP3: a batch means procedure for steady-state simulation analysis", 2005).
    """
    size = len(series) // BATCHES
    parts = series[len(series) - size * BATCHES :].reshape(BATCHES, size).mean(axis=1)
    apart = parts - parts.mean()
    squares = float(apart @ apart)
    if not squares:
        return 0.0, float(BATCHES)
    # The estimate is too low by about 1 / BATCHES (Marriott and Pope, Biometrika 41, 1954).
    correlation = float(np.clip(apart[1:] @ apart[:-1] / squares + 1 / BATCHES, 0.0, MOST_CORRELATION))
    batches = BATCHES * (1 - correlation) / (1 + correlation)
    return (squares / (BATCHES - 1) / batches) ** 0.5, batches


def _worth(beyond: NDArray[np.bool_], level: float) -> float:
    """How many independent values tell as much as a series about the share of its values that are ``beyond``.

    Counted down as Student's t is wider than the normal law, because the error is itself estimated.
    """
    share, count = float(beyond.mean()), len(beyond)
    error, batches = _error_of_mean(beyond)
    worth = min(share * (1 - share) / error**2, count) if error else count
    return worth * (_normal(level) / _t(batches - 1, level)) ** 2


def _share_of(beyond: float, count: float, level: float) -> tuple[float, float]:
    """Bounds of a share of which ``beyond`` of ``count`` were seen (Clopper and Pearson, Biometrika 26, 1934)."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    return float(betaincinv(beyond, count - beyond + 1, tail)), float(betaincinv(beyond + 1, count - beyond, 1 - tail))


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


def _t(degrees: float, level: float) -> float:
    """Student's quantile; with less than one degree of freedom that of one."""
    from scipy.special import stdtrit

    return float(stdtrit(max(degrees, 1.0), (1 + level) / 2))


def _normal(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))
