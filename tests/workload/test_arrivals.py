"""Arrivals obey their law and keep their gaps when the rate changes."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.errors import ScenarioError
from llmsim.workload.arrivals import (
    Constant,
    Gamma,
    OnOff,
    Poisson,
    Replay,
    Weibull,
    arrivals_until_s,
    first_arrivals_s,
)
from llmsim.workload.random_streams import stream
from llmsim.workload.rates import STEADY, Steps


def rng(seed: int = 0) -> np.random.Generator:
    return stream(seed, "test")


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential_and_independent(seed: int) -> None:
    from scipy.stats import kstest

    gaps = Poisson().gaps(20_000, rng(seed))
    assert kstest(gaps, "expon").pvalue > 1e-3
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / np.sqrt(len(gaps))


@pytest.mark.parametrize("seed", range(5))
def test_poisson_counts_a_second_have_the_poisson_law(seed: int) -> None:
    from scipy.stats import chisquare, poisson

    seconds, rate = 20_000, 4.0
    times = arrivals_until_s(Poisson(), rate, seconds, rng(seed))
    counts = np.bincount(times.astype(int), minlength=seconds)
    observed = np.bincount(np.minimum(counts, 11), minlength=12)
    expected = seconds * np.append(poisson.pmf(np.arange(11), rate), poisson.sf(10, rate))
    assert chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("cv", [0.25, 1.0, 2.0, 4.0])
def test_gamma_gaps_have_mean_one_and_the_cv_asked_for(cv: float) -> None:
    count = 400_000
    gaps = Gamma(cv=cv).gaps(count, rng())
    assert gaps.mean() == pytest.approx(1, abs=4 * cv / np.sqrt(count))
    # The sample variance has relative variance (kurtosis - 1) / n; a gamma law's kurtosis is 3 + 6 cv^2.
    assert gaps.std() == pytest.approx(cv, rel=2 * np.sqrt((2 + 6 * cv**2) / count))


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0, 4.0])
def test_weibull_gaps_have_their_law_and_the_cv_asked_for(cv: float) -> None:
    from scipy.stats import kstest, weibull_min

    law = Weibull(cv=cv)
    gaps = law.gaps(20_000, rng())
    shape = law.shape
    exact = weibull_min(shape, scale=1 / weibull_min(shape).mean())
    assert exact.std() == pytest.approx(cv, rel=1e-9)
    assert kstest(gaps, exact.cdf).pvalue > 1e-3


@pytest.mark.parametrize(("on_share", "burst"), [(0.5, 1.0), (0.1, 20.0), (0.9, 5.0)])
def test_bursts_are_an_interrupted_poisson_process(on_share: float, burst: float) -> None:
    from scipy.stats import ks_2samp

    gaps = OnOff(on_share=on_share, burst_requests=burst).gaps(20_000, rng())
    # The process itself, step by step: phases of exponential length, Poisson arrivals in those that are on.
    other = rng(1)
    on_s = other.exponential(burst * on_share, 60_000)
    off_s = other.exponential(burst * (1 - on_share), 60_000)
    begins = np.cumsum(on_s + off_s) - off_s - on_s
    counts = other.poisson(on_s / on_share)
    times = np.sort(np.repeat(begins, counts) + other.random(counts.sum()) * np.repeat(on_s, counts))
    assert gaps.mean() == pytest.approx(1, abs=5 * gaps.std() / np.sqrt(len(gaps)))
    assert ks_2samp(gaps, np.diff(times)[:20_000]).pvalue > 1e-3
    assert np.diff(times).std() == pytest.approx(gaps.std(), rel=0.1)


def test_a_replay_has_the_gaps_of_the_trace_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,1,1\n4,1,1\n6,1,1\n")
    assert Replay(path=path).gaps(5, rng()).tolist() == [0.5, 1.5, 1.0, 0.5, 1.5]
    assert first_arrivals_s(Replay(path=path), 4.0, 3, rng())[-1] == pytest.approx(3 / 4)
    # More gaps than expected are needed before the end: they go on where the trace is, not from its beginning.
    steady = first_arrivals_s(Replay(path=path), 10.0, 400, rng())
    np.testing.assert_array_equal(arrivals_until_s(Replay(path=path), 10.0, 5.0, rng()), steady[steady < 5.0])
    path.write_text("arrival_s,prompt_tokens,output_tokens\n5,1,1\n5,1,1\n")
    with pytest.raises(ScenarioError, match="all arrive at once; a replay needs gaps"):
        Replay(path=path).gaps(5, rng())


def test_gamma_of_cv_one_is_poisson() -> None:
    from scipy.stats import kstest

    assert kstest(Gamma(cv=1.0).gaps(20_000, rng()), "expon").pvalue > 1e-3


@pytest.mark.parametrize("process", [Poisson(), Gamma(cv=3.0), Constant()])
def test_a_change_of_rate_keeps_the_gaps(process: Poisson | Gamma | Constant) -> None:
    slow, fast = (first_arrivals_s(process, rate, 1_000, rng()) for rate in (2.0, 10.0))
    np.testing.assert_allclose(slow, 5 * fast, rtol=1e-12)


@pytest.mark.parametrize(
    "process", [Poisson(), Gamma(cv=3.0), Constant(), Weibull(cv=3.0), OnOff(on_share=0.2, burst_requests=9.0)]
)
def test_more_requests_begin_with_the_same(process: Poisson | Gamma | Constant) -> None:
    few, many = (first_arrivals_s(process, 2.0, count, rng()) for count in (100, 5_000))
    np.testing.assert_array_equal(few, many[:100])


@pytest.mark.parametrize("process", [Poisson(), Gamma(cv=8.0), Constant(), OnOff(on_share=0.05, burst_requests=90.0)])
def test_arrivals_until_are_the_first_arrivals_before_the_end(process: Poisson | Gamma | Constant) -> None:
    times = first_arrivals_s(process, 2.0, 20_000, rng())
    np.testing.assert_array_equal(arrivals_until_s(process, 2.0, 300.0, rng()), times[times < 300])


def test_no_arrival_before_time_zero_ends() -> None:
    assert len(arrivals_until_s(Poisson(), 5.0, 0.0, rng())) == 0


def test_a_profile_changes_the_rate_in_its_steps_and_repeats() -> None:
    profile = Steps(step_s=10.0, relative=(1.0, 0.0, 3.0))
    steady = first_arrivals_s(Constant(), 100.0, 8_000, rng()) - 0.005
    times = profile.warp(steady)
    np.testing.assert_array_equal(np.histogram(times, np.arange(0, 61, 10))[0], [1_000, 0, 3_000] * 2)


def test_warp_inverts_the_integral() -> None:
    profile = Steps(step_s=7.0, relative=(0.5, 2.0, 1.25))
    times = np.linspace(0.1, 100, 57)
    np.testing.assert_allclose(profile.warp(np.array([profile.integral(time) for time in times])), times)


def test_a_steady_profile_changes_nothing() -> None:
    times = first_arrivals_s(Poisson(), 3.0, 1_000, rng())
    np.testing.assert_allclose(STEADY.warp(times), times, rtol=1e-12)


@pytest.mark.parametrize("relative", [(), (0.0, 0.0), (1.0, -1.0)])
def test_a_profile_without_arrivals_is_refused(relative: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError, match="relative"):
        Steps(step_s=1.0, relative=relative)


@pytest.mark.parametrize("cv", [0.0, -1.0, float("inf")])
def test_a_bad_cv_is_refused(cv: float) -> None:
    with pytest.raises(ValidationError, match="cv"):
        Gamma(cv=cv)
