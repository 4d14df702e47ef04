"""Intervals hold what they promise: on a queue whose answer is known, and on the questions of before and after."""

from collections.abc import Iterator

import numpy as np
import pytest

from llmsim.results.statistics import (
    Floats,
    batch_means,
    chance_of_luck,
    mser5,
    paired_power,
    pairs_needed,
    percentile_interval,
    percentile_ranks,
    t_interval,
)

TRIALS = 2000
HONEST = (0.94, 0.96)
"""Share of 95 % intervals that hold the true value, over 2,000 trials."""


def walk(load: float, trials: int, customers: int, seed: int) -> Iterator[Floats]:
    """Waiting times of M/M/1 queues with mean service 1, customer by customer, by Lindley's recursion.

    Each queue begins in its stationary state: empty with chance 1 - load, otherwise with an exponential wait.
    """
    rng = np.random.default_rng(seed)
    wait = np.where(rng.random(trials) < load, rng.exponential(1 / (1 - load), trials), 0.0)
    for _ in range(customers):
        yield wait
        wait = np.maximum(wait + rng.exponential(1.0, trials) - rng.exponential(1 / load, trials), 0.0)


def waits(load: float, trials: int, customers: int, seed: int) -> Floats:
    """All of them, shape ``(trials, customers)``."""
    return np.array(list(walk(load, trials, customers, seed))).T


def mean_waits(load: float, trials: int, customers: int, seed: int) -> Floats:
    """The mean of each queue, shape ``(trials,)``."""
    return sum(walk(load, trials, customers, seed), np.zeros(trials)) / customers


def mean_wait(load: float) -> float:
    return load / (1 - load)


def wait_percentile(load: float, share: float) -> float:
    """P(wait > w) = load * exp(-(1 - load) w) (Kleinrock, Queueing Systems I, 1975, section 5.12)."""
    return float(np.log(load / (1 - share)) / (1 - load))


def test_intervals_over_replications_cover_as_often_as_they_say() -> None:
    """Runs long against the queue's memory, so that their means are nearly normal, as Student's t supposes."""
    means = mean_waits(0.3, 5 * TRIALS, 6000, seed=0).reshape(TRIALS, 5)
    found = [t_interval(runs) for runs in means]
    assert HONEST[0] <= np.mean([each.low <= mean_wait(0.3) <= each.high for each in found]) <= HONEST[1]


def test_batch_means_cover_as_often_as_they_say() -> None:
    found = [batch_means(series) for series in waits(0.5, TRIALS, 6000, seed=1)]
    assert HONEST[0] <= np.mean([each.low <= mean_wait(0.5) <= each.high for each in found]) <= HONEST[1]


def test_means_taken_as_independent_would_not() -> None:
    """What batch means are for: neighbours wait alike."""
    found = [t_interval(series) for series in waits(0.5, 200, 6000, seed=1)]
    assert np.mean([each.low <= mean_wait(0.5) <= each.high for each in found]) < 0.8


@pytest.mark.parametrize(("percentile", "customers"), [(90, 2000), (99, 6000)])
def test_intervals_of_percentiles_cover_as_often_as_they_say(percentile: int, customers: int) -> None:
    truth = wait_percentile(0.3, percentile / 100)
    found = [percentile_interval(series, percentile) for series in waits(0.3, TRIALS // 2, customers, seed=2)]
    assert np.mean([np.isfinite(each.high) for each in found]) > 0.97
    assert HONEST[0] <= np.mean([each.low <= truth <= each.high for each in found]) <= HONEST[1]


@pytest.mark.parametrize(("load", "customers"), [(0.3, 1000), (0.5, 2000), (0.7, 4000), (0.8, 1000), (0.9, 2000)])
def test_a_tail_that_cannot_be_known_is_not_said_to_be(load: float, customers: int) -> None:
    """The series are too short for a 99th percentile: most have no upper bound, few a wrong one."""
    truth = wait_percentile(load, 0.99)
    found = [percentile_interval(series, 99) for series in waits(load, 400, customers, seed=5)]
    assert np.mean([np.isfinite(each.high) for each in found]) < 0.6
    assert np.mean([each.high < truth or each.low > truth for each in found]) < 0.1


def test_pairs_of_equal_systems_differ_as_seldom_as_they_should() -> None:
    logs = np.log(mean_waits(0.5, 12 * TRIALS, 1000, seed=3).reshape(TRIALS, 12))
    found = [t_interval(runs[:6] - runs[6:]) for runs in logs]
    assert 0.04 <= np.mean([each.low > 0 or each.high < 0 for each in found]) <= 0.06


def test_a_planted_warm_up_is_found() -> None:
    series = np.random.default_rng(0).normal(10.0, 1.0, 5000)
    assert mser5(series) == pytest.approx(0, abs=25)
    series[:400] += np.linspace(10.0, 5.0, 400)
    assert mser5(series) == pytest.approx(400, abs=15)


def test_a_series_that_never_settles_has_no_end_of_warm_up() -> None:
    assert mser5(np.linspace(0.0, 1.0, 1000)) is None


@pytest.mark.parametrize(
    ("run_cv", "luck", "for_5_percent", "for_2_percent"),
    [(0.01, 0.000, 3, 7), (0.02, 0.039, 5, 18), (0.03, 0.119, 8, 38), (0.05, 0.240, 18, 101)],
)
def test_what_one_pair_of_runs_shows(run_cv: float, luck: float, for_5_percent: int, for_2_percent: int) -> None:
    """A 5 % gain in one before and after: how likely by luck alone, and how many pairs would tell."""
    sd = np.sqrt(2) * run_cv
    assert chance_of_luck(0.05, run_cv) == pytest.approx(luck, abs=0.0006)
    assert pairs_needed(0.05, sd) == for_5_percent
    assert pairs_needed(0.02, sd) == for_2_percent


def test_six_pairs_are_what_the_normal_law_would_ask_for() -> None:
    """(1.96 + 0.84)^2 sd^2 / effect^2, which forgets that the deviation is estimated: 6 pairs, where 8 are needed."""
    assert round(((1.96 + 0.8416) * np.sqrt(2) * 0.03 / 0.05) ** 2) == 6
    assert paired_power(0.05, np.sqrt(2) * 0.03, 6) < 0.8 < paired_power(0.05, np.sqrt(2) * 0.03, 8)


def test_power_is_how_often_an_effect_is_seen() -> None:
    differences = np.random.default_rng(4).normal(0.05, 0.06, (4000, 10))
    found = [t_interval(row) for row in differences]
    seen = np.mean([each.low > 0 or each.high < 0 for each in found])
    assert paired_power(0.05, 0.06, 10) == pytest.approx(seen, abs=0.02)


def test_too_little_to_tell_has_no_bounds() -> None:
    for found in (
        t_interval(np.array([3.0])),
        batch_means(np.full(30, 3.0)),
        percentile_interval(np.full(30, 3.0), 50),
    ):
        assert found.value == 3.0
        assert np.isnan(found.half_width)
    assert np.isnan(t_interval(np.zeros(0)).value)
    assert paired_power(0.05, 0.0, 3) == 1.0
    with pytest.raises(ValueError, match="effect of 0"):
        pairs_needed(0.0, 0.1)


def test_ranks_of_a_percentile() -> None:
    """The 99th of 1,000 values lies between the 984th and the 996th; the drawn binomial says how often."""
    low, high = percentile_ranks(1000, 99)
    assert (low, high) == (pytest.approx(990 - 6.2, abs=0.05), pytest.approx(990 + 6.2, abs=0.05))
    below = np.random.default_rng(0).binomial(1000, 0.99, 20_000)
    assert np.mean((below >= low) & (below <= high)) == pytest.approx(0.95, abs=0.02)
